"""Matrix products by the kernel that is faster for their shape on this machine."""

from __future__ import annotations

import ctypes
import json
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, fx

from torchrl_elegant.objectives.compiled.cache import cache_folder, machine, write_cached
from torchrl_elegant.objectives.compiled.kernels import kernels, kernels_digest
from torchrl_elegant.objectives.compiled.recording import replace_node

_ATEN = torch.ops.aten
# The time of a product is the least of this many, each at least so long.
_TRIES, _SECONDS = 7, 1e-3
# Part of the time that must be saved: below it, the choice would be one of noise.
_GAIN = 0.1

_LIBRARY = torch.library.Library("torchrl_elegant", "DEF")
_LIBRARY.define("own_product(Tensor left, Tensor right, Tensor? bias) -> Tensor")
#: Operation that stands for ``own_product`` in graphs; compiled code calls its C function directly.
OWN_PRODUCT = torch.ops.torchrl_elegant.own_product.default
DECLARATION = (
    "AOTITorchError aoti_torch_cpu_own_product("
    "AtenTensorHandle, AtenTensorHandle, AtenTensorHandle*, AtenTensorHandle*)"
)


def own_product(left: Tensor, right: Tensor, bias: Tensor | None = None) -> Tensor:
    """``left @ right + bias`` by the kernel of this package, ``[M, N]`` or ``[B, M, N]``.

    PyTorch computes products of 32-bit numbers with MKL, which on a processor of AMD is half as
    fast (``benchmarks/products.py``).

    >>> own_product(torch.ones(2, 3), torch.ones(3, 1)).tolist()
    [[3.0], [3.0]]
    """
    _require_product(left, right, bias)
    return _own_products(left, right, bias, times=1)


def _require_product(left: Tensor, right: Tensor, bias: Tensor | None) -> None:
    """Refuse what the kernel would read wrongly."""
    for name, each in (("left", left), ("right", right), ("bias", bias)):
        if each is not None and (each.dtype is not torch.float32 or not each.is_cpu):
            found = f"{each.dtype} on {each.device}"
            raise ValueError(f"`{name}` must have 32-bit numbers on the CPU, got {found}")
    (*members, _, depth), (*others, rows, _) = left.shape, right.shape
    if len(members) > 1 or members != others or depth != rows:
        shapes = f"{tuple(left.shape)} and {tuple(right.shape)}"
        raise ValueError(f"`left` and `right` must be [M, K] and [K, N], or batches, got {shapes}")
    if bias is not None and not _has_usual_bias([*map(_form, (left, right, bias))]):
        raise ValueError(f"`bias` must have one number a column, got {tuple(bias.shape)}")


def _own_products(left: Tensor, right: Tensor, bias: Tensor | None, *, times: int) -> Tensor:
    library = kernels()
    if library is None:
        raise RuntimeError("`own_product` needs a C++ compiler, and none was found")
    out = left.new_empty((*left.shape[:-1], right.shape[-1]))
    tensors = [each if each is None else _as_members(each) for each in (left, right, bias)]
    numbers: list[int] = []
    for each in tensors:
        numbers += [0] * 6 if each is None else [*each.shape, *each.stride()]
    forms = (ctypes.c_int64 * len(numbers))(*numbers)
    addresses = [ctypes.c_void_p(each if each is None else each.data_ptr()) for each in tensors]
    library.own_products(*addresses, ctypes.c_void_p(out.data_ptr()), forms, ctypes.c_int64(times))
    return out


def _as_members(tensor: Tensor) -> Tensor:
    """View ``[members, rows, columns]`` of a tensor with at most three dimensions."""
    return tensor[(None,) * (3 - tensor.ndim)]


_LIBRARY.impl("own_product", own_product, "CPU")


@torch.library.register_fake("torchrl_elegant::own_product", lib=_LIBRARY)
def _shape_of_product(left: Tensor, right: Tensor, bias: Tensor | None = None) -> Tensor:
    return left.new_empty((*left.shape[:-1], right.shape[-1]))


# Each operation as left, right and bias, in the order of its own arguments.
_FORMS: dict[Any, Callable[..., tuple[Any, Any, Any]]] = {
    _ATEN.mm.default: lambda left, right: (left, right, None),
    _ATEN.bmm.default: lambda left, right: (left, right, None),
    _ATEN.addmm.default: lambda bias, left, right: (left, right, bias),
    _ATEN.baddbmm.default: lambda bias, left, right: (left, right, bias),
}


def choose_products(graph: fx.Graph) -> None:
    """Replace the matrix products in ``graph`` for which ``own_product`` is faster here.

    Each shape is measured once on a machine; the outcome is kept beside the compiled functions.
    """
    known = _Known(cache_folder() / "products.json")
    for node in list(graph.nodes):
        if node.op == "call_function" and node.target in _FORMS and not node.kwargs:
            operands = _FORMS[node.target](*node.args)
            forms = [None if each is None else _form(each.meta["val"]) for each in operands]
            if _fits(forms) and kernels() is not None and known.is_faster(node.target, forms):
                with graph.inserting_before(node):
                    other = graph.call_function(OWN_PRODUCT, operands)
                replace_node(graph, node, other)
    known.store()


# Shape, strides, type and device of a tensor.
_Form = tuple[tuple[int, ...], tuple[int, ...], torch.dtype, str]


def _form(value: Tensor) -> _Form:
    return tuple(value.shape), tuple(value.stride()), value.dtype, value.device.type


def _fits(forms: list[_Form | None]) -> bool:
    """True if the kernel knows such numbers and such a bias."""
    plain = all(form is None or form[2:] == (torch.float32, "cpu") for form in forms)
    return plain and _has_usual_bias(forms)


class _Known:
    """Products that were measured on this machine, in a file."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._about = f"{machine()} kernels {kernels_digest()}"
        self._known = self._read().get(self._about, {})
        self._is_new = False

    def _read(self) -> dict[str, dict[str, bool]]:
        try:
            pages = json.loads(self._path.read_text())
        except (OSError, ValueError):
            return {}
        known = isinstance(pages, dict) and all(isinstance(each, dict) for each in pages.values())
        return pages if known else {}

    def is_faster(self, target: Any, forms: list[_Form | None]) -> bool:
        """True if the own kernel saves time on this product."""
        threads = torch.get_num_threads()
        shapes = [form and (*form[0], "by", *form[1]) for form in forms]
        name = f"{target} {shapes} {threads} threads"
        if name not in self._known:
            self._known[name], self._is_new = _saves_time(target, forms), True
        return self._known[name] is True

    def store(self) -> None:
        if self._is_new:
            pages = self._read()  # another process may have measured others since
            pages[self._about] = self._known | pages.get(self._about, {})
            write_cached(self._path, json.dumps(pages, indent=1).encode())


def _has_usual_bias(forms: list[_Form | None]) -> bool:
    """True without a bias, or with one for every column, and of every member of a batch."""
    _, right, bias = forms
    if bias is None or right is None:
        return True
    if bias[1][-1] != 1 and bias[0][-1] > 1:
        return False
    *members, _, columns = right[0]
    return bias[0] in (((*members, 1, columns),) if members else ((columns,), (1, columns)))


def _saves_time(target: Any, forms: list[_Form | None]) -> bool:
    left, right, bias = (None if form is None else _example(form) for form in forms)
    assert left is not None
    assert right is not None
    operands = [x for x in (bias, left, right) if x is not None]
    out = target(*operands)
    # Without an allocation, as compiled code calls it.
    into = partial(target.overloadpacket.out, *operands, out=out)

    def own(times: int) -> None:
        _own_products(left, right, bias, times=times)

    def other(times: int) -> None:
        for _ in range(times):
            into()

    ways = (own, other)
    counts = [_count(way) for way in ways]
    best = [float("inf")] * 2
    for _ in range(_TRIES):  # by turns: others use the machine, too
        for index, (way, count) in enumerate(zip(ways, counts, strict=True)):
            best[index] = min(best[index], _seconds(way, count))
    return best[0] < (1.0 - _GAIN) * best[1]


def _example(form: _Form) -> Tensor:
    shape, stride, *_ = form
    size = 1 + sum((n - 1) * step for n, step in zip(shape, stride, strict=True))
    # Not random: the global stream is the run's.
    return torch.linspace(-1.0, 1.0, size).as_strided(shape, stride)


def _count(run: Callable[[int], None]) -> int:
    """Number of times that take long enough to be timed."""
    run(1)
    count = 1
    while _seconds(run, count) * count < _SECONDS:
        count *= 2
    return count


def _seconds(run: Callable[[int], None], count: int) -> float:
    """Seconds of one of ``count`` times."""
    start = time.perf_counter()
    run(count)
    return (time.perf_counter() - start) / count
