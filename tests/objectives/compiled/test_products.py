"""Products by the own kernel: the same numbers, and a choice that is made once."""

from __future__ import annotations

import json
import random

import pytest
import torch

from torchrl_elegant.objectives.compiled import products
from torchrl_elegant.objectives.compiled.compiler import compile_recording
from torchrl_elegant.objectives.compiled.products import choose_products, own_product
from torchrl_elegant.objectives.compiled.recording import record

OWN = products.OWN_PRODUCT


def chosen(function, *given):
    """Results of ``function`` after the choice, and the number of products that were replaced."""
    recording = record(function, list(given))
    choose_products(recording.graph.graph)
    recording.graph.recompile()
    count = sum(node.target is OWN for node in recording.graph.graph.nodes)
    return recording.graph(*recording.arguments(given)), count


@pytest.fixture
def always(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(products, "_saves_time", lambda target, forms: True)


def shapes():
    x, w = torch.randn(8, 5), torch.randn(5, 3)
    batch, weights = torch.randn(2, 8, 5), torch.randn(2, 5, 3)
    yield "mm", lambda a, b: [a @ b], x, w
    yield "mm of transposed", lambda a, b: [a.t() @ b.t()], torch.randn(5, 8), torch.randn(3, 5)
    yield "addmm", lambda a, b, c: [torch.addmm(c, a, b)], x, w, torch.randn(3)
    yield "bmm", lambda a, b: [torch.bmm(a, b)], batch, weights
    yield "shared rows", lambda a, b: [torch.bmm(a.expand(2, 8, 5), b)], x, weights
    bias = torch.randn(2, 1, 3)
    yield "baddbmm", lambda a, b, c: [torch.baddbmm(c, a, b)], batch, weights, bias


@pytest.mark.usefixtures("always")
@pytest.mark.parametrize("case", shapes(), ids=lambda case: case[0])
def test_products_are_equal_to_rounding(case):
    _, function, *given = case
    found, count = chosen(function, *given)
    assert count == 1
    torch.testing.assert_close(found, function(*given), rtol=1e-5, atol=1e-6)


@pytest.mark.usefixtures("always")
def test_other_numbers_and_other_biases_stay_with_torch():
    double = torch.ones(2, 2, dtype=torch.float64)
    assert chosen(lambda a, b: [a @ b], double, double)[1] == 0
    whole = torch.ones(2, 2)  # a bias of every element, and not of every column
    found, count = chosen(lambda a, b: [torch.addmm(whole, a, b)], whole, whole)
    assert found[0].tolist() == [[3.0, 3.0], [3.0, 3.0]]
    assert count == 0


def test_a_shape_is_measured_once(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    measured = []
    monkeypatch.setattr(products, "_saves_time", lambda *about: bool(measured.append(about)))
    x = torch.ones(4, 4)
    for _ in range(2):
        chosen(lambda a, b: [a @ b + a @ b], x, x)
    assert len(measured) == 1
    page = json.loads((tmp_path / "torchrl_elegant" / "compiled" / "products.json").read_text())
    assert [list(known.values()) for known in page.values()] == [[False]]
    torch.set_num_threads(2)
    chosen(lambda a, b: [a @ b], x, x)
    assert len(measured) == 2


@pytest.mark.parametrize("text", ["", "[]", "{", '{"x": 1}', "null"])
def test_a_damaged_file_is_measured_again(monkeypatch, tmp_path, text):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    path = tmp_path / "torchrl_elegant" / "compiled" / "products.json"
    path.parent.mkdir(parents=True)
    path.write_text(text)
    x = torch.ones(4, 4)
    assert chosen(lambda a, b: [a @ b], x, x)[0][0].tolist() == (4 * x).tolist()
    assert json.loads(path.read_text())


def test_measuring_draws_no_random_numbers(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    before = torch.get_rng_state()
    chosen(lambda a, b: [a @ b], torch.ones(4, 4), torch.ones(4, 4))
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.usefixtures("always")
def test_without_a_compiler_products_stay_with_torch(monkeypatch):
    monkeypatch.setattr(products, "kernels", lambda: None)
    x = torch.ones(2, 2)
    assert chosen(lambda a, b: [a @ b], x, x)[1] == 0
    with pytest.raises(RuntimeError, match="needs a C\\+\\+ compiler"):
        own_product(x, x)


SIZES = (1, 2, 4, 5, 6, 7, 12, 16, 17, 23, 33, 64, 65, 100)


@pytest.mark.parametrize("threads", [1, 2])
def test_products_of_all_sizes_and_layouts(threads):
    torch.set_num_threads(threads)
    draw = random.Random(threads)
    cases = [draw.choices(SIZES, k=3) for _ in range(150)]
    cases += [(256, 256, 256), (7, 600, 520), (130, 300, 600), (600, 40, 70)]  # several threads
    for rows, depth, width in cases:
        left, right = torch.randn(rows, depth), torch.randn(depth, width)
        if draw.random() < 0.5:
            left = left.t().contiguous().t()
        if draw.random() < 0.5:
            right = right.t().contiguous().t()
        if draw.random() < 0.3:  # every second row and column of a wider matrix
            right = torch.randn(2 * depth, 2 * width)[::2, ::2]
        bias = torch.randn(width) if draw.random() < 0.5 else None
        if draw.random() < 0.3:  # several members, of which the left ones are one and the same
            left, right = left.expand(3, *left.shape), torch.stack([right, 2 * right, -right])
            bias = None if bias is None else torch.stack([bias, bias + 1, bias + 2])[:, None]
        expected = left.double() @ right.double() + (0.0 if bias is None else bias.double())
        found = own_product(left, right, bias)
        assert found.is_contiguous()
        torch.testing.assert_close(found.double(), expected, rtol=1e-4, atol=1e-4)


@pytest.mark.usefixtures("always")
def test_compiled_code_calls_the_kernel_by_its_own_name(tmp_path):
    """Through PyTorch's dispatcher and Python it would take ten times as long."""

    def products_of(x, w, b, y, v, c):
        return [x @ w, torch.addmm(b, x, w), x.t() @ x, torch.bmm(y, v), torch.baddbmm(c, y, v)]

    shared = torch.randn(9, 5).expand(3, 9, 5)
    bias = torch.randn(3, 1, 7)
    given = [torch.randn(9, 5), torch.randn(7, 5).t(), torch.randn(7)]
    given += [shared, torch.randn(3, 7, 5).transpose(1, 2), bias]
    recording = record(products_of, given)
    found = compile_recording(recording, given)(given)
    torch.testing.assert_close(found, products_of(*given), rtol=1e-5, atol=1e-5)
    code = "".join(path.read_text() for path in tmp_path.rglob("*.cpp"))
    assert code.count("aoti_torch_cpu_own_product(") == 1 + 5  # the declaration, and the calls
    assert "mm_out" not in code


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"left": torch.ones(2, 4)}, "must be \\[M, K\\] and \\[K, N\\]"),
        ({"left": torch.ones(5, 2, 3)}, "must be"),
        ({"left": torch.ones(2, 3, dtype=torch.float64)}, "`left` must have 32-bit numbers"),
        ({"right": torch.ones(3, 4, device="meta")}, "`right` must have 32-bit numbers on the CPU"),
        ({"bias": torch.ones(2, 4)}, "`bias` must have one number a column"),
        ({"bias": torch.ones(8)[::2]}, "`bias` must have one number a column"),
    ],
)
def test_what_the_kernel_would_read_wrongly_is_refused(changed, message):
    given = {"left": torch.ones(2, 3), "right": torch.ones(3, 4), "bias": torch.ones(4)}
    with pytest.raises(ValueError, match=message):
        own_product(**{**given, **changed})


def test_products_of_nothing():
    assert own_product(torch.ones(0, 3), torch.ones(3, 4)).shape == (0, 4)
    assert own_product(torch.ones(2, 3), torch.ones(3, 0)).shape == (2, 0)
    bias = torch.tensor([1.0, 2.0])
    assert own_product(torch.ones(1, 0), torch.ones(0, 2), bias).tolist() == [[1.0, 2.0]]


def test_numbers_that_are_not_finite_go_through():
    left = torch.tensor([[float("nan"), 1.0], [float("inf"), 1.0], [1.0, 1.0]])
    found = own_product(left, torch.ones(2, 1)).flatten()
    assert found.isnan().tolist() == [True, False, False]
    assert found[1:].tolist() == [float("inf"), 2.0]


@pytest.mark.usefixtures("always")
def test_biases_that_do_not_lie_together_stay_with_torch():
    x, bias = torch.randn(4, 3), torch.randn(3, 2)[:, 0]
    found, count = chosen(lambda a, b, c: [torch.addmm(c, a, b)], x, torch.eye(3), bias)
    torch.testing.assert_close(found[0], x + bias)
    assert count == 0


@pytest.mark.usefixtures("always")
@pytest.mark.parametrize("shape", [(3,), (1, 3), (1, 1, 3), (8, 3), (2, 8, 3)])
def test_biases_of_batches_that_differ_stay_with_torch(shape):
    bias, left, right = torch.randn(shape), torch.randn(2, 8, 5), torch.randn(2, 5, 3)
    found, count = chosen(lambda a, b, c: [torch.baddbmm(a, b, c)], bias, left, right)
    torch.testing.assert_close(found[0], torch.baddbmm(bias, left, right))
    assert count == 0


def test_processes_add_to_what_others_have_measured(monkeypatch, tmp_path):
    path = tmp_path / "products.json"
    forms = [((2, 2), (2, 1), torch.float32, "cpu")] * 2 + [None]
    first, second = products._Known(path), products._Known(path)
    monkeypatch.setattr(products, "_saves_time", lambda target, forms: True)
    first.is_faster("first", forms)
    second.is_faster("second", forms)
    first.store()
    second.store()
    (page,) = json.loads(path.read_text()).values()
    assert {name.split()[0] for name in page} == {"first", "second"}
