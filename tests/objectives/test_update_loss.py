"""Every loss answers what a learner asks, and so can a loss of someone else."""

from __future__ import annotations

from copy import deepcopy

import pytest
import torch
from loss_cases import CASES
from ppo_cases import lean_nets, make_rollout, make_rows, torchrl_nets
from sac_cases import lean_loss
from tensordict import TensorDict
from torch import nn

from torchrl_elegant.objectives import A2CLoss, ClipPPOLoss, ModSACLoss
from torchrl_elegant.objectives.common.update_loss import (
    RolloutLoss,
    UpdateDefaults,
    UpdateLoss,
    minimized,
)

pytestmark = pytest.mark.filterwarnings("ignore:No target network updater")

MODSAC = {
    "modsac": (lambda: lean_loss(3, loss=ModSACLoss, std_regularization=0.1), CASES["sac"][1])
}
EVERY = CASES | MODSAC
ROLLOUT = ("ppo", "a2c")
CRITICS = {"ppo": "loss_critic", "a2c": "loss_critic", "dqn": "loss", "ddpg": "loss_value"}


def made(name):
    make, rows = EVERY[name]
    torch.manual_seed(0)
    loss = make()
    return loss, make_rows(loss.actor_network) if rows is None else rows()


def gradients(loss):
    return {name: param.grad for name, param in loss.named_parameters()}


@pytest.mark.parametrize("name", EVERY)
def test_every_loss_keeps_the_protocol_of_its_family(name):
    loss, batch = made(name)
    assert isinstance(loss, UpdateLoss)
    assert isinstance(loss, RolloutLoss) == (name in ROLLOUT)
    assert loss.observes == (name == "modsac")
    terms = loss.update_terms(batch)
    assert set(terms) <= set(loss.metric_names)
    if loss.priority_key is not None:
        assert batch.get(loss.priority_key).numel() == batch.numel()


@pytest.mark.parametrize("name", EVERY)
@pytest.mark.parametrize("actor", [True, False])
def test_gradients_are_those_of_the_terms(name, actor):
    loss, batch = made(name)
    twin = deepcopy(loss)
    torch.manual_seed(1)
    expected = twin.update_terms(batch.clone(), actor=actor)
    minimized(expected).backward()
    torch.manual_seed(1)
    found = loss.backward_terms(batch.clone(), actor=actor)
    assert list(found) == list(expected)
    for term, value in found.items():
        torch.testing.assert_close(value, expected[term].detach())
        assert not value.requires_grad
    torch.testing.assert_close(gradients(loss), gradients(twin))


@pytest.mark.parametrize("name", EVERY)
def test_without_the_actor_only_the_critics_learn(name):
    loss, batch = made(name)
    whole = loss.update_terms(batch)
    found = loss.backward_terms(batch, actor=False)
    assert {key for key in found if key.startswith("loss")} == {CRITICS.get(name, "loss_qvalue")}
    assert found.keys() < whole.keys() or name == "dqn"
    learned = {key.split(".")[0] for key, grad in gradients(loss).items() if grad is not None}
    assert len(learned) == 1
    assert "actor" not in learned.pop()


def test_terms_of_the_actor_stay_away_over_networks_of_torchrl():
    loss = ClipPPOLoss(*torchrl_nets())
    rows = make_rows(loss.actor_network)
    assert set(loss.update_terms(rows, actor=False)) == {"loss_critic"}


def test_the_sum_leaves_reports_out():
    terms = {name: torch.tensor(2.0) for name in ("loss", "loss_actor", "alpha", "entropy")}
    assert minimized(terms) == 4.0


@pytest.mark.parametrize("kind", [ClipPPOLoss, A2CLoss])
def test_a_rollout_becomes_rows_and_reports(kind):
    loss = kind(*lean_nets())
    rollout = make_rollout(loss.actor_network, 3, 8)
    rows = loss.estimate(rollout).select(*loss.row_keys).reshape(-1)
    loss.update_terms(rows)
    assert set(loss.report(rows)) == set(loss.report_keys)
    rows["action_log_prob"] = rollout["action_log_prob"].reshape(-1)
    assert loss.divergence(rows).abs() < 1e-6
    rows["action_log_prob"] -= 1.0
    torch.testing.assert_close(loss.divergence(rows).detach(), torch.tensor(1.0).exp() - 2.0)


def test_a2c_names_the_log_probability_that_a_divergence_needs():
    loss = A2CLoss(*lean_nets())
    rows = make_rows(loss.actor_network).exclude("action_log_prob")
    with pytest.raises(KeyError, match="rows must hold `action_log_prob`"):
        loss.divergence(rows)


class Level(UpdateDefaults, nn.Module):
    """A loss of someone else: one number that goes to the mean of the rewards."""

    metric_names = ("loss", "level")

    def __init__(self) -> None:
        super().__init__()
        self.level = nn.Parameter(torch.zeros(()))

    def update_terms(self, tensordict, *, actor=True):
        error = self.level - tensordict["next", "reward"].mean()
        return {"loss": error.square(), "level": self.level}


def test_a_foreign_class_keeps_it_with_the_defaults():
    loss, batch = Level(), TensorDict({"next": {"reward": torch.ones(4, 1)}}, [4])
    assert isinstance(loss, UpdateLoss)
    assert not isinstance(loss, RolloutLoss)
    assert (loss.priority_key, loss.observes, loss.observe(batch)) == (None, False, None)
    terms = loss.backward_terms(batch)
    assert (terms["loss"], loss.level.grad) == (1.0, -2.0)
    assert not isinstance(nn.Linear(1, 1), UpdateLoss)
