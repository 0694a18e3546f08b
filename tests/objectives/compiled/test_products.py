"""Products by another library: the same numbers, and a choice that is made once."""

from __future__ import annotations

import json

import pytest
import torch

from torchrl_elegant.objectives.compiled import products
from torchrl_elegant.objectives.compiled.products import choose_products, product
from torchrl_elegant.objectives.compiled.recording import record

OWN = torch.ops.torchrl_elegant.product.default


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


def test_where_the_library_is_missing_nothing_changes(monkeypatch):
    monkeypatch.setattr(torch.backends.mkldnn, "is_available", lambda: False)
    x = torch.ones(2, 2)
    assert chosen(lambda a, b: [a @ b], x, x)[1] == 0
    assert torch.equal(product(x, x), x @ x)


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
