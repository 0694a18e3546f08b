"""The pull of mean values to mean returns, by hand."""

from __future__ import annotations

import pytest
import torch
from sac_cases import lean_loss, make_batch

from torchrl_elegant.algorithms import SACConfig
from torchrl_elegant.envs import make_env
from torchrl_elegant.objectives.off_policy.long_return import LongReturnFit
from torchrl_elegant.trainers.learner import Learner

GAMMA, WEIGHT = 0.9, 0.3


def case(num_critics=3):
    loss = lean_loss(num_critics)
    loss.make_value_estimator(gamma=GAMMA)
    batch = make_batch(16)
    ahead = make_batch(16)["next"]
    ahead["steps_to_next_obs"] = torch.randint(1, 9, (16,))
    batch["ahead"] = ahead
    batch["steps_to_next_obs"] = torch.ones(16, dtype=torch.int64)
    return loss, batch


def by_hand(loss, batch):
    ahead = batch["ahead"]
    with torch.no_grad():
        action, log_prob = loss.actor_network.sample([ahead["observation"]])
        values = loss._critic.delayed.values([ahead["observation"]], action).amin(0)
        value = values - loss.log_alpha.exp() * log_prob
        discount = GAMMA ** ahead["steps_to_next_obs"]
        alive = (~ahead["terminated"]).float().squeeze(-1)
        target = ahead["reward"].squeeze(-1) + discount * alive * value
    q = loss.qvalue_network.values([batch["observation"]], batch["action"])
    return WEIGHT * sum((member.mean() - target.mean()) ** 2 for member in q)


def test_value_and_gradients():
    loss, batch = case()
    torch.manual_seed(1)
    found = LongReturnFit(loss, weight=WEIGHT)(batch)
    torch.manual_seed(1)
    expected = by_hand(loss, batch)
    torch.testing.assert_close(found, expected)
    params = list(loss.qvalue_network_params.values(True, True))
    grads = torch.autograd.grad(found, params)
    for grad, wanted in zip(grads, torch.autograd.grad(expected, params), strict=True):
        torch.testing.assert_close(grad, wanted)
    assert any(grad.any() for grad in grads)


def test_it_reaches_the_critics_alone():
    loss, batch = case()
    LongReturnFit(loss, weight=WEIGHT)(batch).backward()
    reached = {name for name, param in loss.named_parameters() if param.grad is not None}
    assert reached == {name for name, _ in loss.named_parameters() if name.startswith("qvalue")}


def test_termination_cuts_the_value_and_truncation_does_not():
    loss, batch = case()
    fit = LongReturnFit(loss, weight=WEIGHT)

    def with_flags(terminated: bool, done: bool) -> float:
        one = batch.clone()
        one["ahead", "terminated"] = torch.full((16, 1), terminated)
        one["ahead", "done"] = torch.full((16, 1), done)
        torch.manual_seed(1)
        return fit(one).item()

    assert with_flags(False, True) == with_flags(False, False) != with_flags(True, True)


def test_the_batch_is_left_as_it_was():
    loss, batch = case()
    kept = batch.clone()
    LongReturnFit(loss, weight=WEIGHT)(batch)
    assert set(batch.keys(True, True)) == set(kept.keys(True, True))
    assert (batch == kept).all()


def test_a_learner_adds_the_term():
    env = make_env("Pendulum-v1", 2)
    parts = SACConfig(num_cells=(8,), long_return_weight=WEIGHT).assemble(env)
    learner = Learner(parts)
    assert "loss_long_return" in learner.metric_names
    batch = env.rollout(8).reshape(-1)
    ahead = batch["next"].clone()
    batch["ahead"] = ahead.set("steps_to_next_obs", torch.ones(16, dtype=torch.int64))
    before = learner.loss.qvalue_network_params["net", "bias_0"].clone()
    assert learner.update(batch)["loss_long_return"] > 0
    assert not torch.equal(learner.loss.qvalue_network_params["net", "bias_0"], before)


def test_refusals():
    with pytest.raises(ValueError, match="`weight` must be positive, got `0`"):
        LongReturnFit(lean_loss(), weight=0)
    with pytest.raises(TypeError, match="`loss` must be an OffPolicyLoss, got `Linear`"):
        LongReturnFit(torch.nn.Linear(1, 1), weight=1.0)
