"""PPO's objective, what is reported of the ratio, and the distances of values."""

from __future__ import annotations

import pytest
import torch

from torchrl_elegant.functional import (
    clipped_surrogate,
    clipped_value_loss,
    explained_variance,
    ratio_statistics,
    value_loss,
)

LOW, HIGH = 0.8, 1.3

# ratio, advantage, objective, slope in log ratio
CASES = [
    (1.0, 2.0, 2.0, 2.0),
    (1.2, 2.0, 2.4, 2.4),  # within the bounds
    (1.5, 2.0, 2.6, 0.0),  # has risen enough
    (0.5, 2.0, 1.0, 1.0),  # has fallen, and is wanted back
    (1.5, -2.0, -3.0, -3.0),  # has risen, and is wanted back
    (0.5, -2.0, -1.6, 0.0),  # has fallen enough
    (1.5, 0.0, 0.0, 0.0),
]


@pytest.mark.parametrize(("ratio", "advantage", "gain", "slope"), CASES)
def test_objective_and_slope_by_hand(ratio, advantage, gain, slope):
    log_ratio = torch.tensor([ratio], dtype=torch.double).log().requires_grad_()
    found = clipped_surrogate(log_ratio, torch.tensor([advantage]), LOW, HIGH)
    assert found.item() == pytest.approx(gain)
    found.sum().backward()
    assert log_ratio.grad.item() == pytest.approx(slope)


def test_bounds_may_be_tensors():
    log_ratio, advantage = torch.randn(50), torch.randn(50)
    bounds = torch.tensor(LOW), torch.tensor(HIGH)
    numbers = clipped_surrogate(log_ratio, advantage, LOW, HIGH)
    torch.testing.assert_close(clipped_surrogate(log_ratio, advantage, *bounds), numbers)


def test_gradient_of_the_objective():
    log_ratio = torch.randn(40, dtype=torch.double, requires_grad=True)
    advantage = torch.randn(40, dtype=torch.double)
    weights = torch.randn(40, dtype=torch.double)

    def weighted(x):
        return weights * clipped_surrogate(x, advantage, LOW, HIGH)

    assert torch.autograd.gradcheck(weighted, (log_ratio,))
    ratio = log_ratio.exp()
    plain = torch.minimum(ratio * advantage, ratio.clamp(LOW, HIGH) * advantage)
    torch.testing.assert_close(clipped_surrogate(log_ratio, advantage, LOW, HIGH), plain)


def test_the_objective_leaves_its_inputs_alone():
    given = [torch.randn(9), torch.randn(9)]
    kept = [x.clone() for x in given]
    clipped_surrogate(*given, LOW, HIGH)
    torch.testing.assert_close(given, kept, atol=0.0, rtol=0.0)


def test_statistics_by_hand():
    found = ratio_statistics(torch.tensor([0.5, 1.0, 1.25, 2.0]).log(), LOW, HIGH)
    squares = 0.25 + 1 + 1.5625 + 4
    expected = {
        "clip_fraction": 0.5,
        "kl_approx": -torch.tensor(1.25).log().item() / 4,
        "ESS": 4.75**2 / squares / 4,
        "max_ratio": 2.0,
        "mean_ratio": 4.75 / 4,
    }
    assert {name: value.item() for name, value in found.items()} == pytest.approx(expected)


@pytest.mark.parametrize(("kind", "by_hand"), [("l2", 4.625), ("l1", 1.75), ("smooth_l1", 1.3125)])
def test_distances_by_hand(kind, by_hand):
    value, target = torch.tensor([[0.5], [4.0]]), torch.tensor([[0.0], [1.0]])
    assert value_loss(value, target, kind=kind).item() == pytest.approx(by_hand)


@pytest.mark.parametrize(
    ("value", "target", "loss", "slope"),
    [
        (0.4, 1.0, 0.36, -1.2),  # within the limit
        (0.9, 1.0, 0.25, 0.0),  # the clipped value is farther away, and does not move
        (0.9, -1.0, 3.61, 3.8),  # has moved the wrong way
        (-0.9, -1.0, 0.25, 0.0),
    ],
)
def test_clipped_distance_by_hand(value, target, loss, slope):
    x = torch.tensor([[value]], requires_grad=True)
    old = torch.zeros(1, 1)
    found = clipped_value_loss(x, torch.tensor([[target]]), old, torch.tensor(0.5), kind="l2")
    assert found.item() == pytest.approx(loss)
    found.backward()
    assert x.grad.item() == pytest.approx(slope)


def test_the_clipped_value_starts_from_the_old_one():
    target, old = torch.tensor([[10.0]]), torch.tensor([[5.0]])
    found = clipped_value_loss(torch.tensor([[9.0]]), target, old, torch.tensor(0.5), kind="l1")
    assert found.item() == 4.5


def test_explained_variance_by_hand():
    target = torch.tensor([[1.0], [3.0], [5.0]])
    assert explained_variance(target, target).item() == pytest.approx(1.0)
    # A constant error is not the variance's business; a constant guess explains nothing.
    assert explained_variance(target + 7, target).item() == pytest.approx(1.0)
    assert explained_variance(torch.zeros(3, 1), target).item() == pytest.approx(0.0, abs=1e-6)
    assert explained_variance(-target, target).item() == pytest.approx(-3.0)
    assert explained_variance(target, torch.zeros(3, 1)).isfinite()
