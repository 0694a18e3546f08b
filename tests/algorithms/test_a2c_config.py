"""A2C's configuration and what it builds; what it shares with PPO."""

from __future__ import annotations

from dataclasses import fields

import pytest
import torch

from torchrl_elegant.algorithms import ALGORITHMS, A2CConfig, OnPolicyConfig, PPOConfig
from torchrl_elegant.algorithms.adam import LeanAdam
from torchrl_elegant.algorithms.schedules import ramp_lr
from torchrl_elegant.config.options import options_of
from torchrl_elegant.envs import make_env
from torchrl_elegant.modules import CategoricalActor, GaussianActor
from torchrl_elegant.objectives import GAE, A2CLoss, VTrace
from torchrl_elegant.trainers.rollout_learner import RolloutLearner

BOTH = pytest.mark.parametrize("config", [A2CConfig, PPOConfig])


def build(env="Pendulum-v1", config=A2CConfig, **options):
    return config(num_cells=(8,), **options).build(make_env(env))


def test_it_is_known_and_documented():
    assert ALGORITHMS["a2c"] is A2CConfig
    assert issubclass(A2CConfig, OnPolicyConfig)
    assert all(item.help for item in options_of(A2CConfig).values())
    # What only a ratio of policies has is PPO's.
    own = {field.name for field in fields(PPOConfig)} - {field.name for field in fields(A2CConfig)}
    assert own == {"clip_epsilon", "target_kl", "lr_kl"}


def test_what_it_builds():
    parts = build(entropy_coeff=0.01, clip_value=0.3, critic_coeff=0.25, lmbda=0.5, gamma=0.9)
    loss = parts.loss
    assert isinstance(loss, A2CLoss)
    assert isinstance(parts.policy, GaussianActor)
    assert isinstance(build("CartPole-v1").policy, CategoricalActor)
    assert isinstance(loss.value_estimator, GAE)
    assert not loss.value_estimator.average_gae
    numbers = (loss.entropy_coeff, loss.clip_value, loss.critic_coeff)
    numbers += (loss.value_estimator.lmbda, loss.value_estimator.gamma)
    assert [x.item() for x in numbers] == pytest.approx([0.01, 0.3, 0.25, 0.5, 0.9])
    held = [p for group in parts.optimizer.param_groups for p in group["params"]]
    assert {id(p) for p in held} == {id(p) for p in loss.parameters()}
    assert parts.target_kl is None
    assert not build().loss.entropy_bonus


def test_the_optimiser_is_a_choice():
    assert isinstance(build().optimizer, LeanAdam)
    optimizer = build(optimizer="rmsprop", lr=0.1).optimizer
    assert isinstance(optimizer, torch.optim.RMSprop)
    (group,) = optimizer.param_groups
    assert (group["lr"], group["alpha"], group["eps"]) == (0.1, 0.99, 1e-5)
    with pytest.raises(ValueError, match="`optimizer` must be one of adam, rmsprop, got `sgd`"):
        A2CConfig(optimizer="sgd")


@pytest.mark.parametrize("optimizer", ["adam", "rmsprop"])
def test_both_optimisers_are_given_gradients_of_the_configured_norm(optimizer):
    norms = {}
    for limit in (None, 0.01, 1e6):
        torch.manual_seed(0)
        env = make_env("Pendulum-v1", 4, seed=0)
        config = A2CConfig(num_cells=(8,), optimizer=optimizer, max_grad_norm=limit)
        learner = RolloutLearner(config.assemble(env))
        rows = learner.rows(env.rollout(8, learner.policy).detach())
        learner.update(rows)
        # The first step leaves a known part of the squares as their running mean.
        name, part = {"adam": ("exp_avg_sq", 0.001), "rmsprop": ("square_avg", 0.01)}[optimizer]
        squares = [state[name].sum() for state in learner.optimizer.state.values()]
        norms[limit] = (sum(squares) / part).sqrt().item()
    assert norms[None] > 1.0
    assert norms[0.01] == pytest.approx(0.01, rel=1e-3)
    assert norms[1e6] == pytest.approx(norms[None], rel=1e-4)


@pytest.mark.parametrize(
    ("batch", "total", "envs", "frames"),
    [(64, 10_000, 8, 64), (64, 10_000, 10, 60), (64, 10_000, 100, 100), (64, 10, 4, 8)],
)
def test_a_rollout_is_a_batch(batch, total, envs, frames):
    config = A2CConfig(batch_size=batch)
    assert config.frames_per_batch(total_frames=total, num_envs=envs) == frames
    config.check_budget(total_frames=total, frames_per_batch=frames)


def test_a_single_advantage_cannot_be_normalised():
    A2CConfig().check_budget(total_frames=10, frames_per_batch=1)
    with pytest.raises(ValueError, match="`frames_per_batch` must exceed 1 to normalize, got `1`"):
        A2CConfig(normalize_advantage=True).check_budget(total_frames=10, frames_per_batch=1)


@pytest.mark.parametrize("advantage", ["gae", "vtrace"])
def test_advantages_are_normalised_over_the_rollout(advantage):
    env = make_env("Pendulum-v1", 3)
    options = {"num_cells": (8,), "advantage": advantage, "normalize_advantage": True}
    parts = A2CConfig(**options).build(env)
    rollout = env.rollout(20, parts.policy).detach()
    found = parts.loss.estimate(rollout)["advantage"]
    assert found.mean().item() == pytest.approx(0.0, abs=1e-5)
    assert found.std().item() == pytest.approx(1.0, abs=1e-4)
    # The one row that a total of frames may leave has no spread, and stays as it is.
    assert parts.loss.estimate(rollout[:1, :1])["advantage"].isfinite().all()


@BOTH
def test_vtrace_is_a_choice(config):
    estimator = build(config=config, advantage="vtrace", gamma=0.9, lmbda=0.5).loss.value_estimator
    assert isinstance(estimator, VTrace)
    assert (estimator.gamma.item(), estimator.lmbda) == (pytest.approx(0.9), 0.5)
    # PPO's surrogate weighs by the ratio itself.
    assert estimator.weighted == (config is A2CConfig)
    with pytest.raises(ValueError, match="`advantage` must be one of gae, vtrace, got `td`"):
        config(advantage="td")


@BOTH
def test_what_moves_over_a_run(config):
    assert build(config=config).ramps == ()
    parts = build(config=config, lr=(0.2, 0.1), entropy_coeff=(0.0, 0.4))
    assert parts.loss.entropy_bonus
    for progress, lr, entropy in ((0.0, 0.2, 0.0), (0.5, 0.15, 0.2), (1.0, 0.1, 0.4)):
        for ramp in parts.ramps:
            ramp.at(progress)
        assert parts.optimizer.param_groups[0]["lr"] == pytest.approx(lr)
        assert parts.loss.entropy_coeff.item() == pytest.approx(entropy)


def test_several_learning_rates_fall_each_by_itself():
    groups = [{"params": [torch.nn.Parameter(torch.ones(1))], "lr": lr} for lr in (0.1, 0.4)]
    optimizer = torch.optim.Adam(groups)
    ramps = ramp_lr(optimizer, (0.1, 0.05), (0.4, 0.2))
    optimizer.load_state_dict(optimizer.state_dict())  # which makes new groups
    for ramp in ramps:
        ramp.at(1.0)
    assert [group["lr"] for group in optimizer.param_groups] == pytest.approx([0.05, 0.2])


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("clip_value", 0.0),
        ("target_kl", 0.0),
    ],
)
def test_refusals(name, value):
    for config in (A2CConfig, PPOConfig):
        if name in {field.name for field in fields(config)}:
            with pytest.raises(ValueError, match=f"^`{name}` must .*, got `{value}`"):
                config(**{name: value})
