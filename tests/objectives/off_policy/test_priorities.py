"""Priorities, importance weights and the temperature's loss: one equation for every loss."""

from __future__ import annotations

from functools import partial

import pytest
import torch
from loss_cases import CASES
from sac_cases import lean_loss, make_batch

from torchrl_elegant.objectives import ModSACLoss, REDQLoss

pytestmark = pytest.mark.filterwarnings("ignore:No target network updater")

LOSSES = {name: case for name, case in CASES.items() if name not in ("ppo", "a2c")}
LOSSES["modsac"] = (partial(lean_loss, 3, loss=ModSACLoss), make_batch)


def made(name):
    torch.manual_seed(0)
    loss, rows = (make() for make in LOSSES[name])
    loss.loss_function = "l1"  # whose rows are the absolute errors of the members, summed
    return loss, rows


def errors_of(loss, batch):
    """Absolute errors of the members, ``[N, *B]``."""
    torch.manual_seed(1)
    target = loss._target_value(batch)
    return (loss._stored_values(batch) - target).abs().detach()


@pytest.mark.parametrize("name", LOSSES)
def test_a_priority_is_the_largest_absolute_error_of_a_member(name):
    loss, batch = made(name)
    errors = errors_of(loss, batch)
    torch.manual_seed(1)
    loss.critic_terms(batch)
    torch.testing.assert_close(batch.get(loss.priority_key).flatten(), errors.amax(0).flatten())
    assert not torch.allclose(errors, errors.square())


@pytest.mark.parametrize("name", LOSSES)
def test_the_weighted_mean_divides_by_the_sum_of_the_weights(name):
    loss, batch = made(name)
    errors = errors_of(loss, batch)
    rows = errors.mean(0) if isinstance(loss, REDQLoss) else errors.sum(0)
    weights = torch.rand(batch.shape) + 0.1
    found = []
    for factor in (1.0, 0.01):  # small weights everywhere do not shorten the step
        batch["priority_weight"] = factor * weights
        torch.manual_seed(1)
        terms = loss.critic_terms(batch)
        found.append(next(value for key, value in terms.items() if key.startswith("loss")))
    torch.testing.assert_close(found[0], (weights * rows).sum() / weights.sum())
    torch.testing.assert_close(found[1], found[0])
    # Schaul et al. divide by the number of rows instead: shorter, in the same direction.
    assert (weights / weights.amax() * rows).mean() < found[0]


@pytest.mark.parametrize("alpha", [0.01, 1.0])
def test_the_temperature_learns_at_one_speed_whatever_its_size(alpha):
    """The slope by log alpha is -(log pi + H); the paper's equation 18 has that times alpha."""
    loss = lean_loss(alpha_init=alpha, target_entropy=-3.0)
    torch.manual_seed(1)
    log_prob = loss.actor_network.sample([make_batch()["observation"]])[1].detach()
    loss.alpha_loss(log_prob).mean().backward()
    torch.testing.assert_close(loss.log_alpha.grad, -(log_prob - 3.0).mean())
