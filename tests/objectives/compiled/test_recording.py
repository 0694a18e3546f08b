"""A recording is the function itself, for other numbers."""

from __future__ import annotations

import random

import numpy as np
import pytest
import torch

from torchrl_elegant.objectives.compiled.recording import is_recording, record


def test_held_tensors_are_read_anew_and_changed_in_place():
    held, count = torch.ones(2), torch.zeros(())

    def function(x):
        count.add_(1.0)
        return [held * x * count]

    recording = record(function, [torch.ones(2)])
    assert count.item() == 1.0  # the recorded call is a real one
    held.fill_(3.0)
    found = recording.graph(*recording.arguments([torch.full((2,), 2.0)]))
    assert found[0].tolist() == [12.0, 12.0]
    assert count.item() == 2.0


def test_gradients_that_a_function_leaves_are_recorded():
    weight = torch.nn.Parameter(torch.tensor([2.0]))

    def function(x):
        weight.grad = None
        (weight**2 * x).sum().backward()
        return [weight.grad]

    recording = record(function, [torch.ones(1)])
    assert not any(held.requires_grad for held in recording.held)
    with torch.no_grad():
        weight.fill_(5.0)
    assert recording.graph(*recording.arguments([torch.ones(1)]))[0].item() == 10.0


def drawing(x):
    filled = torch.empty(4)
    filled.uniform_(1.0, 2.0)
    first = torch.randn_like(x)
    second = torch.rand(3)
    members = torch.randperm(5)[:3]
    dropped = torch.nn.functional.dropout(x)
    normal = torch.distributions.Normal(x, 2.0 * x).rsample()
    given = [first * x, second + members, torch.randint(0, 9, (3,)), torch.randn(3)]
    return [*given, filled, dropped, normal]


def test_random_numbers_are_those_of_the_function():
    x = torch.ones(3)
    recording = record(drawing, [x])
    assert len(recording.draws) == 8
    torch.manual_seed(7)
    expected = [drawing(x), drawing(x)]
    torch.manual_seed(7)
    found = [recording.graph(*recording.arguments([x])) for _ in range(2)]
    torch.testing.assert_close(found, expected, rtol=0, atol=0)
    assert not torch.equal(found[0][0], found[1][0])


def test_a_draw_that_nothing_reads_is_drawn_all_the_same():
    def function(x):
        torch.randn(2)
        return [x + torch.randn(2)]

    recording = record(function, [torch.zeros(2)])
    torch.manual_seed(3)
    expected = function(torch.zeros(2))
    torch.manual_seed(3)
    found = recording.graph(*recording.arguments([torch.zeros(2)]))
    assert torch.equal(found[0], expected[0])


def test_what_is_not_read_is_no_argument():
    recording = record(lambda x, y: [2.0 * y], [torch.ones(2), torch.ones(3)])
    assert recording.used == [False, True]
    assert recording.graph(torch.ones(3))[0].tolist() == [2.0, 2.0, 2.0]


def test_noise_that_fills_a_part_of_a_tensor_is_read_through_the_whole():
    def function(x):
        noise = torch.zeros(4, 2)
        noise[1:].view(-1).normal_()
        return [x + noise]

    recording = record(function, [torch.zeros(4, 2)])
    torch.manual_seed(3)
    expected = function(torch.zeros(4, 2))
    torch.manual_seed(3)
    found = recording.graph(*recording.arguments([torch.zeros(4, 2)]))
    assert torch.equal(found[0], expected[0])


@pytest.mark.parametrize("draw", [torch.randn_like, torch.rand_like, torch.nn.functional.dropout])
def test_noise_like_a_transposed_tensor_comes_in_its_order(draw):
    turned = torch.ones(5, 7).t()
    recording = record(lambda x: [draw(x)], [turned])
    torch.manual_seed(3)
    expected = draw(turned)
    torch.manual_seed(3)
    found = recording.graph(*recording.arguments([turned] if recording.used[0] else []))
    assert torch.equal(found[0], expected)


def test_a_decision_by_a_held_tensor_is_remembered():
    limit = torch.tensor(1.0)
    recording = record(lambda x: [2.0 * x if limit > 0 else x], [torch.ones(2)])
    assert recording.holds()
    limit.fill_(-1.0)
    assert not recording.holds()


WEIGHT, LEARNT, INDEX = torch.ones(2), torch.ones(2, requires_grad=True), torch.tensor(1)


@pytest.mark.parametrize(
    ("function", "told"),
    [
        (lambda x: [x * WEIGHT[0].item()], "reads a number"),
        (lambda x: [x * float(WEIGHT[0])], "reads a number"),
        (lambda x: [x * x[0].item()], "reads a number"),
        (lambda x: [x if x[0] > 0 else -x], "reads a number"),
        (lambda x: [x if torch.randn(()) > 0 else -x], "reads a number"),
        (lambda x: [x * WEIGHT.tolist()[0]], "reads a number"),
        (lambda x: [x * float(x.numpy().sum())], "reads a number"),
        (lambda x: [x * WEIGHT[INDEX]], "reads a number"),
        (lambda x: [torch.add(x, x, alpha=INDEX)], "reads a number"),
        (lambda x: [x if torch.equal(WEIGHT, WEIGHT) else -x], "reads a number"),
        (lambda x: [x if (LEARNT > 0).all() else -x], "reads a number"),
        (
            lambda x: [torch.func.grad(lambda y: (2 * y if y.sum() > 0 else y).sum())(x)],
            "reads a number",
        ),
        (lambda x: [x * random.random()], "by Python or NumPy"),
        (lambda x: [x * np.random.rand()], "by Python or NumPy"),  # noqa: NPY002
        (lambda x: [x[x > 0]], "selects rows by their numbers"),
        (lambda x: [x.nonzero()], "selects rows by their numbers"),
        (lambda x: [torch.bernoulli(x)], r"draws random numbers by aten\.bernoulli\.default"),
        (lambda x: [torch.poisson(x)], r"draws random numbers by aten\.poisson"),
    ],
    ids=[
        "item",
        "float",
        "item of given",
        "given",
        "drawn",
        "list",
        "numpy",
        "index",
        "scalar",
        "equal",
        "learnt",
        "inside grad",
        "python",
        "numpy noise",
        "mask",
        "nonzero",
        "bernoulli",
        "poisson",
    ],
)
def test_what_a_graph_cannot_hold_is_refused(function, told):
    with pytest.raises(RuntimeError, match=told):
        record(function, [torch.ones(2)])
    assert not is_recording()
    assert WEIGHT[0].item() == 1.0


def test_whether_constants_are_in_order_may_be_asked():
    def function(x):
        if not (WEIGHT > 0).all():
            raise ValueError("weights must be positive")
        return [x * WEIGHT]

    assert record(function, [torch.ones(2)]).graph(torch.ones(2), WEIGHT)[0].tolist() == [1.0, 1.0]
