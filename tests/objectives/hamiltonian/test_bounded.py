"""Gradients that must not outgrow others: by hand, in general, and where some are missing."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from torchrl_elegant.objectives.hamiltonian.term import add_bounded

F64 = torch.float64


def params_with(*grads) -> list[nn.Parameter]:
    """Parameters that hold these gradients; None for none."""
    params = []
    for grad in grads:
        grad = None if grad is None else torch.tensor(grad, dtype=F64)
        params.append(nn.Parameter(torch.zeros(2, dtype=F64)))
        params[-1].grad = grad
    return params


def own_of(*grads) -> list[Tensor | None]:
    return [None if grad is None else torch.tensor(grad, dtype=F64) for grad in grads]


def grads_of(params) -> list[list[float] | None]:
    return [None if param.grad is None else param.grad.tolist() for param in params]


# Gradients of two parameters that are added, and that are there; the bound, and their sum.
BY_HAND = {
    "too large": (([0, 8], [6, 0]), ([3, 0], [0, 4]), 0.5, ([3, 2], [1.5, 4])),  # 10 is held at 2.5
    "just so": (([0, 8], [6, 0]), ([3, 0], [0, 4]), 2.0, ([3, 8], [6, 4])),
    "small": (([0, 0.3], [0.4, 0]), ([3, 0], [0, 4]), 0.5, ([3, 0.3], [0.4, 4])),
    "the size of all counts": (([8, 0], [0, 6]), ([0, 5], [0, 0]), 1, ([4, 5], [0, 3])),
    "nothing there": (([8, 0], [0, 6]), ([0, 0], [0, 0]), 1.0, ([0, 0], [0, 0])),
    "nothing added": (([0, 0], [0, 0]), ([3, 0], [0, 4]), 1.0, ([3, 0], [0, 4])),
    "neither": (([0, 0], [0, 0]), ([0, 0], [0, 0]), 1.0, ([0, 0], [0, 0])),
    "one not held": (([0, 8], [6, 0]), (None, [0, 5]), 1.0, ([0, 4], [3, 5])),
    "one not added": ((None, [0, 10]), ([3, 0], [4, 0]), 1.0, ([3, 0], [4, 5])),
    "not held, not added": ((None, [0, 10]), (None, [5, 0]), 1.0, (None, [5, 5])),
    "each of another": ((None, [0, 10]), ([5, 0], None), 1.0, ([5, 0], [0, 5])),
    "none added": ((None, None), ([3, 0], [0, 4]), 1.0, ([3, 0], [0, 4])),
    # There is nothing that it could outgrow.
    "none held": (([0, 8], [6, 0]), (None, None), 0.5, ([0, 8], [6, 0])),
    "none at all": ((None, None), (None, None), 1.0, (None, None)),
}


@pytest.mark.parametrize("case", BY_HAND)
def test_by_hand(case):
    added, held, bound, expected = BY_HAND[case]
    params, own = params_with(*added), own_of(*held)
    add_bounded(params, own, bound)
    for found, wanted in zip(grads_of(params), expected, strict=True):
        assert found == (None if wanted is None else pytest.approx(wanted, abs=1e-12))


def test_no_parameters():
    add_bounded([], [], 1.0)


def test_each_parameter_has_a_gradient_of_its_own_or_none():
    with pytest.raises(ValueError, match="zip"):
        add_bounded(params_with([1, 0]), own_of([1, 0], [1, 0]), 1.0)


def test_what_was_held_is_left_as_it_was():
    params, own = params_with([0, 8]), own_of([4, 0])
    add_bounded(params, own, 0.5)
    assert own[0].tolist() == [4, 0]


sizes = st.floats(1e-6, 1e6)


@settings(max_examples=60, deadline=None)
@given(sizes, sizes, st.floats(1e-3, 1e3), st.integers(0, 1000))
def test_in_general(base, term, bound, seed):
    generator = torch.Generator().manual_seed(seed)
    shapes = ((3, 2), (3,), ())
    own, more = (
        [size * torch.randn(shape, generator=generator, dtype=F64) for shape in shapes]
        for size in (base, term)
    )
    params = [nn.Parameter(torch.zeros(shape, dtype=F64)) for shape in shapes]
    for param, grad in zip(params, more, strict=True):
        param.grad = grad.clone()
    add_bounded(params, own, bound)
    own, more, found = (
        torch.cat([x.flatten() for x in parts])
        for parts in (own, more, [param.grad for param in params])
    )
    part = min(1.0, (bound * own.norm() / more.norm()).item())
    torch.testing.assert_close(found, own + part * more, rtol=1e-9, atol=1e-9 * base)


@pytest.mark.parametrize("bound", [1.0, 1e-3])
def test_to_add_nothing_changes_no_bit(bound):
    own = [torch.randn(50, dtype=torch.float32) for _ in range(2)]
    params = [nn.Parameter(torch.zeros(50)) for _ in own]
    for param in params:
        param.grad = torch.zeros(50)
    add_bounded(params, own, bound)
    for param, grad in zip(params, own, strict=True):
        assert torch.equal(param.grad, grad)


@pytest.mark.parametrize("added", [1e-30, 1e-12, 1e12])
@pytest.mark.parametrize("held", [1e-12, 1e12])
def test_sizes_far_apart_in_single_precision(added, held):
    param = nn.Parameter(torch.zeros(2))
    param.grad = torch.tensor([0.0, added])
    add_bounded([param], [torch.tensor([held, 0.0])], 0.5)
    expected = [held, min(added, 0.5 * held)]
    assert param.grad.tolist() == pytest.approx(expected, rel=1e-5)


def test_what_is_not_finite_stays_to_be_seen():
    param = nn.Parameter(torch.zeros(2))
    param.grad = torch.tensor([math.nan, 1.0])
    add_bounded([param], [torch.ones(2)], 1.0)
    assert not param.grad.isfinite().all()


def test_shapes_alone_are_enough():
    """On the meta device, where no value is ever there to be read: nothing waits for a GPU."""
    params = [nn.Parameter(torch.zeros(3, device="meta")) for _ in range(2)]
    params[0].grad = torch.zeros(3, device="meta")
    add_bounded(params, [torch.zeros(3, device="meta"), None], 1.0)
    assert params[0].grad.device.type == "meta"
    assert params[1].grad is None
