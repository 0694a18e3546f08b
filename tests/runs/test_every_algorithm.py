"""The options of data with each algorithm that there is."""

from __future__ import annotations

import pytest
import torch

from torchrl_elegant.algorithms import ALGORITHMS, OffPolicyConfig
from torchrl_elegant.data import make_buffer
from torchrl_elegant.envs import make_env
from torchrl_elegant.runs.policy import load_policy, save_policy
from torchrl_elegant.trainers.learner import Learner
from torchrl_elegant.trainers.off_policy import draw, row_keys

OFF_POLICY = sorted(
    name
    for name, kind in ALGORITHMS.items()
    if issubclass(kind, OffPolicyConfig) and not kind.teams
)
OPTIONS = {
    "num_cells": (8,),
    "batch_size": 16,
    "n_steps": 3,
    "priority_alpha": 0.6,
    "long_return_weight": 0.1,
    "reward_scale": 0.5,
    "normalize_observation": True,
    "normalize_value": True,
}


def env_of(config: OffPolicyConfig):
    discrete = "discrete" in getattr(config, "actions", ())
    return make_env("CartPole-v1" if discrete else "Pendulum-v1", 4, seed=0)


@pytest.mark.parametrize("name", OFF_POLICY)
def test_from_collector_to_policy_file(name, tmp_path):
    config = ALGORITHMS[name](**OPTIONS)
    env = env_of(config)
    learner = Learner(config.assemble(env))
    buffer = make_buffer(size=200, priority=config.priority())
    fold = config.fold()
    with torch.no_grad():
        rollout = env.rollout(40, learner.policy, break_when_any_done=False)
    learner.observe(rollout)
    buffer.extend(fold(rollout.select(*row_keys(learner))))
    before = buffer.sampler._sum_tree[torch.arange(len(buffer))].clone()
    for batch in draw(buffer, config.batch_size, 4):
        terms = learner.update(batch)
        assert "loss_long_return" in terms
        assert {"priority_weight", "steps_to_next_obs"} <= set(batch.keys())
    assert not torch.equal(buffer.sampler._sum_tree[torch.arange(len(buffer))], before)
    save_policy(tmp_path / "policy.pt", learner.policy, {})
    loaded = load_policy(tmp_path / "policy.pt")
    for key, value in learner.policy.state_dict().items():
        assert torch.equal(loaded.state_dict()[key], value)


@pytest.mark.parametrize("algorithm", OFF_POLICY)
def test_targets_follow_by_tau(algorithm):
    config = ALGORITHMS[algorithm](num_cells=(8,), tau=0.1)
    parts = config.assemble(env_of(config))
    loss = parts.loss
    learnt = dict(loss.named_parameters())
    names = [name for name in loss.state_dict() if name.removeprefix("target_") in learnt]
    targets = {name: loss.state_dict()[name].clone() for name in names if name not in learnt}
    assert len(targets) >= 4
    for param in learnt.values():
        param.data.add_(1.0)
    for _ in range(getattr(config, "actor_period", 1)):
        parts.target_updater.step()
    for name, before in targets.items():
        torch.testing.assert_close(loss.state_dict()[name], before + 0.1)


@pytest.mark.parametrize("name", OFF_POLICY)
def test_the_return_fit_is_the_square_of_how_far_the_means_are_apart(name):
    """Here the critics value nothing, and the returns end in a termination."""
    config = ALGORITHMS[name](num_cells=(8,), long_return_weight=0.1, reward_scale=0.5)
    env = env_of(config)
    learner = Learner(config.assemble(env))
    with torch.no_grad():
        batch = env.rollout(4, learner.policy, break_when_any_done=False).reshape(-1)
    reward = torch.arange(1.0, 17.0).unsqueeze(-1)
    for param in learner.loss.parameters():
        param.data.zero_()
    ahead = batch["next"].clone().update({"reward": reward})
    ahead["terminated"] = torch.ones_like(ahead["terminated"])
    batch["ahead"] = ahead.set("steps_to_next_obs", torch.ones(16, dtype=torch.int64))
    found = learner.update(batch)["loss_long_return"].item()
    critics = getattr(config, "num_critics", 1)
    assert found == pytest.approx(0.1 * critics * (0.5 * reward.mean().item()) ** 2)


@pytest.mark.parametrize("name", OFF_POLICY)
def test_longer_steps_are_discounted_as_such(name):
    """What a longer step bootstraps with is smaller: only losses that read its length know."""
    config = ALGORITHMS[name](num_cells=(8,), gamma=0.5)
    env = env_of(config)
    learner = Learner(config.assemble(env))
    with torch.no_grad():
        batch = env.rollout(4, learner.policy, break_when_any_done=False).reshape(-1)
    errors = []
    for steps in (1, 30):
        rows = batch.clone().set("steps_to_next_obs", torch.full(batch.shape, steps))
        rows["next", "reward"] = torch.full_like(rows["next", "reward"], 10.0)
        torch.manual_seed(1)
        learner.loss(rows)
        errors.append(rows["td_error"])
    assert not torch.allclose(errors[0], errors[1])
