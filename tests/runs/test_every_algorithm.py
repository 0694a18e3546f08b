"""The options of data with each algorithm that there is."""

from __future__ import annotations

import pytest
import torch

from torchrl_elegant.algorithms import ALGORITHMS, OffPolicyConfig
from torchrl_elegant.data import make_buffer
from torchrl_elegant.envs import make_env
from torchrl_elegant.runs.off_policy_loop import draw
from torchrl_elegant.runs.policy import load_policy, save_policy
from torchrl_elegant.trainers.learner import Learner

OFF_POLICY = sorted(name for name, kind in ALGORITHMS.items() if issubclass(kind, OffPolicyConfig))
OPTIONS = {
    "num_cells": (8,),
    "batch_size": 16,
    "n_steps": 3,
    "priority_alpha": 0.6,
    "return_fit": 0.1,
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
    buffer.extend(fold(rollout.select(*learner.loss.in_keys)))
    before = buffer.sampler._sum_tree[torch.arange(len(buffer))].clone()
    for batch in draw(buffer, config.batch_size, 4):
        terms = learner.update(batch)
        assert terms["loss_return_fit"] >= 0
        assert {"priority_weight", "steps_to_next_obs"} <= set(batch.keys())
    assert not torch.equal(buffer.sampler._sum_tree[torch.arange(len(buffer))], before)
    save_policy(tmp_path / "policy.pt", learner.policy, {})
    loaded = load_policy(tmp_path / "policy.pt")
    for key, value in learner.policy.state_dict().items():
        assert torch.equal(loaded.state_dict()[key], value)


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
