"""PPO's configuration and what it builds."""

from __future__ import annotations

import math
from dataclasses import FrozenInstanceError

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium import spaces

from torchrl_elegant.algorithms import ALGORITHMS, OnPolicyConfig, PPOConfig
from torchrl_elegant.algorithms.adam import LeanAdam
from torchrl_elegant.config.options import options_of
from torchrl_elegant.envs import make_env
from torchrl_elegant.modules import (
    CategoricalActor,
    GaussianActor,
    MultiCategoricalActor,
    StateValue,
)
from torchrl_elegant.objectives import GAE, ClipPPOLoss


class Toy(gymnasium.Env):
    observation_space = spaces.Box(-1.0, 1.0, (2,))

    def __init__(self, action_space: spaces.Space) -> None:
        self.action_space = action_space

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return np.zeros(2, np.float32), {}

    def step(self, action):
        return np.zeros(2, np.float32), 0.0, False, False, {}


def build(env="Pendulum-v1", **options):
    return PPOConfig(num_cells=(8,), **options).build(make_env(env))


def test_it_is_known_documented_and_frozen():
    assert ALGORITHMS["ppo"] is PPOConfig
    assert PPOConfig.name == "ppo"
    assert issubclass(PPOConfig, OnPolicyConfig)
    assert all(item.help for item in options_of(PPOConfig).values())
    with pytest.raises(FrozenInstanceError):
        PPOConfig().gamma = 0.5


def test_defaults_are_those_of_the_papers_continuous_tasks():
    config = PPOConfig()
    assert (config.epochs, config.batch_size, config.lr) == (10, 64, 3e-4)
    assert (config.gamma, config.lmbda, config.clip_epsilon) == (0.99, 0.95, 0.2)


def test_every_parameter_is_optimised_once():
    parts = build()
    held = [p for group in parts.optimizer.param_groups for p in group["params"]]
    assert len(held) == len({id(p) for p in held})
    assert {id(p) for p in held} == {id(p) for p in parts.loss.parameters()}
    assert {id(p) for p in parts.policy.parameters()} < {id(p) for p in held}
    assert parts.policy is parts.loss.actor_network
    assert parts.target_updater is None
    assert parts.schedule.due()


def test_options_arrive():
    parts = build(
        gamma=0.9,
        lmbda=0.5,
        lr=0.1,
        critic_coeff=0.25,
        entropy_coeff=0.01,
        normalize_advantage=False,
        log_std=-0.5,
        activation="relu",
        clip_epsilon=0.1,
        clip_value=0.3,
        loss_function="smooth_l1",
    )
    loss = parts.loss
    assert isinstance(loss, ClipPPOLoss)
    assert isinstance(loss.value_estimator, GAE)
    numbers = {
        loss.value_estimator.gamma: 0.9,
        loss.value_estimator.lmbda: 0.5,
        loss.critic_coeff: 0.25,
        loss.entropy_coeff: 0.01,
        loss.clip_epsilon: 0.1,
        loss.clip_value: 0.3,
        parts.policy.log_std: -0.5,
    }
    for tensor, value in numbers.items():
        assert tensor.item() == pytest.approx(value)
    assert (loss.loss_critic_type, loss.normalize_advantage) == ("smooth_l1", False)
    assert loss.entropy_bonus
    assert parts.policy.net.activation == loss.critic_network.net.activation == "relu"
    assert isinstance(parts.optimizer, LeanAdam)
    assert [group["lr"] for group in parts.optimizer.param_groups] == [0.1]


def test_defaults_arrive():
    loss = build().loss
    assert not loss.entropy_bonus
    assert loss.clip_value is None
    assert (loss.loss_critic_type, loss.normalize_advantage) == ("l2", True)
    assert loss.critic_coeff.item() == 0.5


@pytest.mark.parametrize(
    ("space", "actor"),
    [
        (spaces.Box(-1.0, 1.0, (2,)), GaussianActor),
        (spaces.Box(-np.inf, np.inf, (2,)), GaussianActor),
        (spaces.Box(-3.0, 1.0, ()), GaussianActor),
        (spaces.Box(0.0, 1.0, (2, 3)), GaussianActor),
        (spaces.Discrete(4), CategoricalActor),
        (spaces.Discrete(4, start=-2), CategoricalActor),
        (spaces.MultiDiscrete([2, 3]), MultiCategoricalActor),
    ],
)
def test_the_action_chooses_the_actor(space, actor):
    parts = build(lambda: Toy(space))
    assert type(parts.policy) is actor
    assert type(parts.loss.critic_network) is StateValue
    env = make_env(lambda: Toy(space), 3)
    assert env.rollout(2, parts.policy)["action_log_prob"].shape == (3, 2)


@pytest.mark.parametrize(
    ("space", "name"),
    [
        (spaces.MultiBinary(3), "Binary"),
    ],
)
def test_actions_that_cannot_be_say_the_way_out(space, name):
    with pytest.raises(ValueError, match=f"got `{name}` of shape .*; flatten the choices into one"):
        build(lambda: Toy(space))


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("gamma", 1.5),
        ("gamma", -0.1),
        ("lmbda", 1.5),
        ("lmbda", -0.1),
        ("epochs", 0),
        ("batch_size", 0),
        ("batch_size", 1),
        ("lr", 0.0),
        ("critic_coeff", 0.0),
        ("critic_coeff", -1.0),
        ("critic_coeff", float("inf")),
        ("entropy_coeff", -0.1),
        ("entropy_coeff", float("nan")),
        ("log_std", float("nan")),
        ("num_cells", ()),
        ("num_cells", (8, 0)),
        ("activation", "swash"),
        ("max_grad_norm", 0.0),
        ("clip_epsilon", 0.0),
        ("clip_epsilon", 1.0),
        ("clip_value", 0.0),
        ("clip_value", math.inf),
        ("lr", math.inf),
        ("critic_coeff", math.inf),
        ("target_kl", math.inf),
        ("lr_kl", 0.0),
        ("lr_kl", math.inf),
        ("loss_function", "l3"),
    ],
)
def test_refusals(name, value):
    with pytest.raises(ValueError, match=f"^`{name}` must .*, got `") as caught:
        PPOConfig(**{name: value})
    assert f"`{value}`" in str(caught.value)


def test_a_single_row_is_let_pass_where_nothing_is_normalised():
    with pytest.raises(ValueError, match="raise batch_size or unset normalize_advantage"):
        PPOConfig(batch_size=1)
    assert PPOConfig(batch_size=1, normalize_advantage=False).batch_size == 1


@pytest.mark.parametrize(
    ("total", "envs", "frames"),
    [(100_000, 1, 2048), (100_000, 8, 2048), (100_000, 10, 2050), (100, 8, 104), (100, 1, 100)],
)
def test_rollouts_are_whole_steps(total, envs, frames):
    assert PPOConfig().frames_per_batch(total_frames=total, num_envs=envs) == frames


def test_a_rollout_holds_at_least_one_batch():
    config = PPOConfig(batch_size=64)
    config.check_budget(total_frames=64, frames_per_batch=64)
    with pytest.raises(ValueError, match=r"`batch_size` must be at most .*\(63\), got `64`; lower"):
        config.check_budget(total_frames=63, frames_per_batch=63)


def test_ranks_share_the_batch():
    share = PPOConfig(batch_size=64, epochs=3).share(2)
    assert (share.batch_size, share.epochs) == (32, 3)


def test_the_seed_decides_the_networks():
    states = []
    for _ in range(2):
        torch.manual_seed(5)
        states.append(build().loss.state_dict())
    torch.testing.assert_close(*states, atol=0.0, rtol=0.0)


def test_a_rate_that_follows_the_divergence_has_no_course_of_its_own():
    told = r"`lr` must be one number with lr_kl, got `0.0003..0.0`; set lr=0.0003, or lr_kl=none"
    with pytest.raises(ValueError, match=told):
        PPOConfig(lr=(3e-4, 0.0), lr_kl=0.01)
    assert PPOConfig(lr=(3e-4, 3e-4), lr_kl=0.01).settled[-2:] == ("log_std", "lr")
    assert build(lr_kl=0.01).kl_rate.target == 0.01
    assert build().kl_rate is None
