// Kernels for one processor: matrix products, and the steps of Adam and of target networks.
//
// PyTorch hands products of 32-bit numbers to MKL, which holds processors of AMD back and costs
// more than a microsecond a call. The products of small networks take less.

#include <ATen/cpu/vec/vec.h>
#include <torch/csrc/inductor/aoti_torch/c/shim.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <memory>

#ifdef __SSE2__
#include <xmmintrin.h>
#endif

namespace at {
int get_num_threads();
}

namespace {

using Vec = at::vec::Vectorized<float>;
constexpr int64_t WIDTH = Vec::size();
// Columns of a tile, in vectors. Its sums fill most of the registers: those of AVX2, whose vectors
// have 8 numbers, are 16, others 32.
constexpr int64_t VECTORS = WIDTH == 8 ? 2 : 4;
// Operations of a product below which a second thread costs more than it saves.
constexpr int64_t WORTH_THREADS = 1500000;
// Right matrices with longer rows are copied, so that what is read lies together.
constexpr int64_t LONG_ROW = 512;

struct Matrix {
  const float* data;
  int64_t row, column; // strides

  Matrix from(int64_t i, int64_t j) const {
    return {data + i * row + j * column, row, column};
  }
};

// Rows of a result that lie one after another.
struct Rows {
  float* data;
  int64_t row;
};

// R rows and V vectors of columns of left * right + bias; the last vector has `last` columns.
template <int R, int V>
inline __attribute__((always_inline)) void tile(
    int64_t depth, Matrix left, Matrix right, const float* bias, Rows out, int64_t last) {
  Vec sums[R][V];
  for (int v = 0; v < V; ++v) {
    Vec first(0.f);
    if (bias != nullptr) {
      first = v == V - 1 ? Vec::loadu(bias + v * WIDTH, last) : Vec::loadu(bias + v * WIDTH);
    }
    for (int r = 0; r < R; ++r) {
      sums[r][v] = first;
    }
  }
  for (int64_t k = 0; k < depth; ++k) {
    Vec row[V];
    for (int v = 0; v < V; ++v) {
      row[v] = Vec::loadu(right.data + k * right.row + v * WIDTH);
    }
    for (int r = 0; r < R; ++r) {
      const Vec factor(left.data[r * left.row + k * left.column]);
      for (int v = 0; v < V; ++v) {
        sums[r][v] = at::vec::fmadd(factor, row[v], sums[r][v]);
      }
    }
  }
  for (int r = 0; r < R; ++r) {
    for (int v = 0; v < V; ++v) {
      float* to = out.data + r * out.row + v * WIDTH;
      if (v == V - 1 && last != WIDTH) {
        sums[r][v].store(to, last);
      } else {
        sums[r][v].store(to);
      }
    }
  }
}

template <int V>
void columns(
    int64_t rows, int64_t depth, Matrix left, Matrix right, const float* bias, Rows out,
    int64_t last) {
  constexpr int R = V == VECTORS ? 6 : 8; // rows
  int64_t i = 0;
  for (; i + R <= rows; i += R) {
    tile<R, V>(depth, left.from(i, 0), right, bias, {out.data + i * out.row, out.row}, last);
  }
  for (; i + 4 <= rows; i += 4) {
    tile<4, V>(depth, left.from(i, 0), right, bias, {out.data + i * out.row, out.row}, last);
  }
  for (; i < rows; ++i) {
    tile<1, V>(depth, left.from(i, 0), right, bias, {out.data + i * out.row, out.row}, last);
  }
}

// Memory that grows and stays, on a line of the cache.
struct Room {
  std::unique_ptr<float[]> memory;
  int64_t size = 0;

  float* of(int64_t needed) {
    if (needed > size) {
      memory.reset(new float[needed + 16]);
      size = needed;
    }
    return reinterpret_cast<float*>((reinterpret_cast<uintptr_t>(memory.get()) + 63) & ~uintptr_t(63));
  }
};

// Copy with rows that lie one after another, filled up with zeros to `padded` columns.
void pack(Matrix from, int64_t depth, int64_t width, int64_t padded, float* to) {
  for (int64_t j = 0; j < padded; j += WIDTH) {
    for (int64_t k = 0; k < depth; k += WIDTH) {
      const int64_t rows = std::min(WIDTH, depth - k), full = std::min(WIDTH, width - j);
      const Matrix block = from.from(k, j);
      float* out = to + k * padded + j;
      if (from.row == 1 && rows == WIDTH && full == WIDTH) {
        at::vec::transpose_mxn<float>(block.data, from.column, out, padded, WIDTH, WIDTH);
        continue;
      }
      for (int64_t r = 0; r < rows; ++r) {
        for (int64_t c = 0; c < WIDTH; ++c) {
          out[r * padded + c] = c < full ? block.data[r * block.row + c * block.column] : 0.f;
        }
      }
    }
  }
}

void product(
    int64_t rows, int64_t depth, int64_t width, Matrix left, Matrix right, const float* bias,
    Rows out) {
  static thread_local Room room;
  for (int64_t j = 0; j < width; j += VECTORS * WIDTH) {
    const int64_t here = std::min(VECTORS * WIDTH, width - j);
    const int64_t vectors = (here + WIDTH - 1) / WIDTH, last = here - (vectors - 1) * WIDTH;
    Matrix part = right.from(0, j);
    if (right.column != 1 || last != WIDTH || right.row > LONG_ROW) {
      float* copy = room.of(depth * vectors * WIDTH);
      pack(part, depth, here, vectors * WIDTH, copy);
      part = {copy, vectors * WIDTH, 1};
    }
    const float* added = bias == nullptr ? nullptr : bias + j;
    const Rows to{out.data + j, out.row};
    if (vectors == VECTORS) {
      columns<VECTORS>(rows, depth, left, part, added, to, last);
    } else if (vectors == 1) {
      columns<1>(rows, depth, left, part, added, to, last);
    } else if (vectors == 2) {
      columns<2>(rows, depth, left, part, added, to, last);
    } else {
      columns<3>(rows, depth, left, part, added, to, last);
    }
  }
}

int64_t part_of(int64_t size, int64_t parts, int64_t multiple) {
  return ((size + parts - 1) / parts + multiple - 1) / multiple * multiple;
}

void product_by_threads(
    int64_t rows, int64_t depth, int64_t width, Matrix left, Matrix right, const float* bias,
    Rows out) {
  const int64_t threads = 2 * rows * depth * width < WORTH_THREADS ? 1 : at::get_num_threads();
  if (threads == 1) {
    product(rows, depth, width, left, right, bias, out);
    return;
  }
  const bool by_rows = rows >= width;
  const int64_t step = by_rows ? part_of(rows, threads, 6) : part_of(width, threads, WIDTH);
#pragma omp parallel for num_threads(threads)
  for (int64_t t = 0; t < threads; ++t) {
    const int64_t first = t * step, count = std::min(step, (by_rows ? rows : width) - first);
    if (count <= 0) {
      continue;
    }
    if (by_rows) {
      const Rows to{out.data + first * out.row, out.row};
      product(count, depth, width, left.from(first, 0), right, bias, to);
    } else {
      const float* added = bias == nullptr ? nullptr : bias + first;
      product(rows, depth, count, left, right.from(0, first), added, {out.data + first, out.row});
    }
  }
}

// Tensor [rows, columns] or [members, rows, columns].
struct Operand {
  Matrix matrix{nullptr, 0, 1};
  int64_t members = 1, rows = 1, columns = 1;
  int64_t member = 0; // stride

  void read(const float* data, const int64_t* sizes, const int64_t* strides, int64_t dims) {
    matrix = {data, dims > 1 ? strides[dims - 2] : 0, strides[dims - 1]};
    columns = sizes[dims - 1];
    rows = dims > 1 ? sizes[dims - 2] : 1;
    members = dims > 2 ? sizes[0] : 1;
    member = dims > 2 ? strides[0] : 0;
  }

  bool read(AtenTensorHandle tensor) {
    void* data = nullptr;
    int64_t dims = 0, *sizes = nullptr, *strides = nullptr;
    const bool is_read = aoti_torch_get_data_ptr(tensor, &data) == 0 &&
        aoti_torch_get_dim(tensor, &dims) == 0 && aoti_torch_get_sizes(tensor, &sizes) == 0 &&
        aoti_torch_get_strides(tensor, &strides) == 0;
    if (is_read) {
      read(static_cast<const float*>(data), sizes, strides, dims);
    }
    return is_read;
  }

  Matrix of(int64_t i) const {
    return {matrix.data + i * member, matrix.row, matrix.column};
  }
};

void products(const Operand& left, const Operand& right, const Operand* bias, float* out) {
  for (int64_t i = 0; i < left.members; ++i) {
    const float* added = bias == nullptr ? nullptr : bias->of(i).data;
    const Rows to{out + i * left.rows * right.columns, right.columns};
    product_by_threads(left.rows, left.columns, right.columns, left.of(i), right.of(i), added, to);
  }
}

// Numbers too small for a float's usual form count as 0 while this lives: the moments of units that
// are never active would stay such numbers, and make a step take twice as long.
struct FlushedDenormals {
#if defined(__SSE2__)
  const unsigned int before = _mm_getcsr();
  FlushedDenormals() {
    _mm_setcsr(before | 0x8040);
  }
  ~FlushedDenormals() {
    _mm_setcsr(before);
  }
#elif defined(__aarch64__)
  uint64_t before;
  FlushedDenormals() {
    asm volatile("mrs %0, fpcr" : "=r"(before));
    asm volatile("msr fpcr, %0" : : "r"(before | (uint64_t(1) << 24)));
  }
  ~FlushedDenormals() {
    asm volatile("msr fpcr, %0" : : "r"(before));
  }
#endif
};

double sum_of_squares(const float* data, int64_t size) {
  Vec sums(0.f);
  for (int64_t k = 0; k < size; k += WIDTH) {
    const Vec part = Vec::loadu(data + k, std::min(WIDTH, size - k));
    sums = at::vec::fmadd(part, part, sums);
  }
  float parts[WIDTH];
  sums.store(parts);
  double sum = 0.0;
  for (const float part : parts) {
    sum += part;
  }
  return sum;
}

struct Moved {
  int64_t size;
  float *param, *grad, *first, *second, *step;
  const double* numbers;
  double clip;
};

// Kingma and Ba 2015, algorithm 1, in the order of operations of PyTorch's fused kernel.
void adam(const Moved& of) {
  const double beta1 = of.numbers[1], beta2 = of.numbers[2], step = *of.step += 1.f;
  const Vec rate(static_cast<float>(-of.numbers[0] / (1.0 - std::pow(beta1, step))));
  const Vec correction(static_cast<float>(1.0 / std::sqrt(1.0 - std::pow(beta2, step))));
  const Vec move(static_cast<float>(1.0 - beta1));
  const Vec keep(static_cast<float>(beta2)), add(static_cast<float>(1.0 - beta2));
  const Vec decay(static_cast<float>(of.numbers[3])), eps(static_cast<float>(of.numbers[4]));
  const Vec factor(static_cast<float>(of.numbers[5] * of.clip));
  for (int64_t k = 0; k < of.size; k += WIDTH) {
    const int64_t here = std::min(WIDTH, of.size - k);
    const Vec param = Vec::loadu(of.param + k, here);
    Vec grad = Vec::loadu(of.grad + k, here) * factor;
    if (of.numbers[3] != 0.0) {
      grad = at::vec::fmadd(param, decay, grad);
    }
    Vec first = Vec::loadu(of.first + k, here);
    Vec second = Vec::loadu(of.second + k, here);
    first = at::vec::fmadd(grad - first, move, first);
    second = at::vec::fmadd(grad * grad, add, second * keep);
    const Vec size = at::vec::fmadd(second.sqrt(), correction, eps);
    first.store(of.first + k, here);
    second.store(of.second + k, here);
    at::vec::fmadd(rate, first / size, param).store(of.param + k, here);
  }
}

} // namespace

extern "C" {

// `left @ right + bias`, as code of PyTorch's compiler calls it.
AOTITorchError aoti_torch_cpu_own_product(
    AtenTensorHandle left, AtenTensorHandle right, AtenTensorHandle* bias, AtenTensorHandle* out) {
  Operand a, b, added;
  int64_t dims = 0;
  if (!a.read(left) || !b.read(right) || (bias != nullptr && !added.read(*bias)) ||
      aoti_torch_get_dim(left, &dims) != 0 || a.members != b.members || a.columns != b.rows ||
      (added.columns > 1 && added.matrix.column != 1)) {
    return 1;
  }
  const int64_t sizes[3] = {a.members, a.rows, b.columns};
  const int64_t strides[3] = {a.rows * b.columns, b.columns, 1};
  const int64_t skipped = 3 - dims;
  void* data = nullptr;
  if (aoti_torch_empty_strided(
          dims, sizes + skipped, strides + skipped, aoti_torch_dtype_float32(),
          aoti_torch_device_type_cpu(), 0, out) != 0 ||
      aoti_torch_get_data_ptr(*out, &data) != 0) {
    return 1;
  }
  products(a, b, bias == nullptr ? nullptr : &added, static_cast<float*>(data));
  return 0;
}

// The same for addresses, `times` times. `forms` has the three sizes and the three strides of
// left, right and bias.
void own_products(
    const float* left, const float* right, const float* bias, float* out, const int64_t* forms,
    int64_t times) {
  Operand a, b, added;
  a.read(left, forms, forms + 3, 3);
  b.read(right, forms + 6, forms + 9, 3);
  added.read(bias, forms + 12, forms + 15, 3);
  for (int64_t i = 0; i < times; ++i) {
    products(a, b, bias == nullptr ? nullptr : &added, out);
  }
}

// Adam for all parameters that have a gradient, an address of 0 otherwise. `numbers` has six for
// each: rate, both betas, weight decay, epsilon, and what the gradient is multiplied by. Parameters
// with the same `group` are clipped together; a `max_norm` below 0 is none.
void own_adam(
    int64_t count, const int64_t* sizes, const int64_t* groups, float** params, float** first,
    float** second, float** steps, const double* numbers, float** grads, double max_norm) {
  const FlushedDenormals flushed;
  const bool clips = max_norm >= 0.0;
  int64_t end = 0;
  for (int64_t start = 0; start < count; start = end) {
    double squares = 0.0;
    for (end = start; end < count && groups[end] == groups[start]; ++end) {
      squares += clips && grads[end] != nullptr ? sum_of_squares(grads[end], sizes[end]) : 0.0;
    }
    const double ratio = max_norm / (std::sqrt(squares) + 1e-6);
    const double clip = !clips || ratio >= 1.0 ? 1.0 : ratio; // a norm that is no number stays one
    for (int64_t i = start; i < end; ++i) {
      if (grads[i] != nullptr) {
        adam({sizes[i], params[i], grads[i], first[i], second[i], steps[i], numbers + 6 * i, clip});
      }
    }
  }
}

} // extern "C"
