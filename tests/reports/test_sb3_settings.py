"""What Stable-Baselines3 is told: the same task as ours, in its words."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from torchrl_elegant import A2CConfig, PPOConfig, RunConfig, SACConfig
from torchrl_elegant.algorithms import DDPGConfig, DQNConfig

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
from _sb3_settings import settings_of


@pytest.mark.parametrize(
    ("config", "part"),
    [
        (SACConfig(), 1.0),
        (SACConfig(critic_lr=(1e-3, 0.0), actor_lr=(5e-4, 0.0), alpha_lr=(1e-3, 0.0)), 0.0),
        (DQNConfig(lr=(1e-3, 2.5e-4)), 0.25),
        (PPOConfig(), 1.0),
        (PPOConfig(lr=(2e-3, 5e-4)), 0.25),
        (PPOConfig(lr=(3e-4, 0.0)), 0.0),
    ],
)
def test_its_learning_rate_falls_as_ours_does(config, part) -> None:
    assert settings_of(config, RunConfig())["lr_end_fraction"] == part


@pytest.mark.parametrize(
    "config",
    [
        PPOConfig(lr=(3e-4, 0.0, "cosine")),
        PPOConfig(entropy_coeff=(0.1, 0.0)),
        SACConfig(actor_lr=(3e-4, 0.0)),
        SACConfig(critic_lr=(3e-4, 0.0)),
    ],
)
def test_a_course_that_it_cannot_take_is_refused(config) -> None:
    with pytest.raises(ValueError, match="must leave Stable-Baselines3 one linear learning rate"):
        settings_of(config, RunConfig())


@pytest.mark.parametrize(
    ("config", "parts"),
    [
        (PPOConfig(), {}),
        (DDPGConfig(actor_lr=1e-3, critic_lr=1e-3), {"actor.optimizer": 1.0}),
        (
            SACConfig(actor_lr=5e-4, critic_lr=1e-3, alpha_lr=2.5e-4),
            {"actor.optimizer": 0.5, "ent_coef_optimizer": 0.25},
        ),
    ],
)
def test_its_networks_have_rates_of_their_own_as_ours_do(config, parts) -> None:
    assert settings_of(config, RunConfig())["own_rates"] == parts


def test_its_policy_begins_as_wide() -> None:
    policy = settings_of(A2CConfig(log_std=-0.5, num_cells=(8,)), RunConfig())["policy"]
    assert policy == {"net_arch": [8], "log_std_init": -0.5}
    assert settings_of(DQNConfig(num_cells=(8,)), RunConfig())["policy"] == {"net_arch": [8]}


def test_it_adds_up_as_many_rewards_and_updates_as_often() -> None:
    options = settings_of(DQNConfig(n_steps=5, updates_per_frame=0.25), RunConfig())["options"]
    assert options["n_steps"] == 5
    assert (options["train_freq"], options["gradient_steps"]) == (4, 1)


def test_its_rollouts_are_as_long() -> None:
    run = RunConfig(num_envs=8, total_frames=10_000)
    assert settings_of(A2CConfig(batch_size=64), run)["options"]["n_steps"] == 8
