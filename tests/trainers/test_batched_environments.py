"""Batched environments train: made once, shared where asked, with keys of their own."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch
from quiet_runs import QUIET
from torchrl.envs.utils import check_env_specs

from torchrl_elegant import (
    A2CConfig,
    HTermConfig,
    PPOConfig,
    SACConfig,
    TD3Config,
    Trial,
    resume,
    train,
)
from torchrl_elegant.config.text import UsageError
from torchrl_elegant.runs.evaluate import evaluate

# Workers and stored runs import the environments by name.
sys.path.insert(0, str(Path(__file__).parent))
from lanes import Lanes, lanes, nested_lanes, six_lanes

SMALL = {"num_cells": (8,), "batch_size": 16}
OFF = {**SMALL, "warmup": 40}
OPTIONS = {"normalize_observation": True, "normalize_value": True, "reward_scale": 0.5}
KINDS = pytest.mark.parametrize(
    "config",
    [
        SACConfig(**OFF),
        SACConfig(**OFF, **OPTIONS, n_steps=3, priority_alpha=0.6, long_return_weight=0.1),
        TD3Config(**OFF),
        PPOConfig(**SMALL),
        PPOConfig(**SMALL, **OPTIONS),
        A2CConfig(**SMALL),
    ],
    ids=["sac", "sac with options", "td3", "ppo", "ppo with options", "a2c"],
)


@pytest.fixture(autouse=True)
def count_from_zero():
    Lanes.made = 0


@pytest.mark.parametrize("nested", [False, True])
def test_the_environment_keeps_torchrls_rules(nested):
    check_env_specs(Lanes(nested=nested))


@KINDS
@pytest.mark.parametrize("factory", [lanes, nested_lanes])
def test_a_factory_of_batches_trains(config, factory, tmp_path):
    run = {"num_envs": 4, "total_frames": 320, "eval_episodes": 3, "frames_per_batch": 80}
    folder = str(tmp_path / "run")
    result = train(config, factory, **run, folder=folder, eval_interval=160, **QUIET)
    last = result.history[-1]
    assert (last["frames"], last["length_mean"]) == (320, 10.0)
    assert all(abs(row["train_return"]) <= 10.0 for row in result.history)
    assert last["updates"] > 0
    more = resume(result.folder, total_frames=480, env_factory=factory)
    assert more.history[-1]["frames"] == 480


def test_what_is_collected_is_learnt(tmp_path):
    """The sign that the reward asks for; a random policy gets nothing."""
    config = PPOConfig(num_cells=(16,), batch_size=64, lr=3e-3)
    run = {"num_envs": 16, "total_frames": 8_000, "frames_per_batch": 800, "eval_episodes": 16}
    result = train(config, nested_lanes, **run, folder=str(tmp_path / "run"), **QUIET)
    assert result.history[-1]["return_mean"] > 8.0


def test_an_environment_is_made_once_for_training_and_once_for_evaluation(tmp_path):
    train(
        SACConfig(**OFF), lanes, num_envs=4, total_frames=80, folder=str(tmp_path / "run"), **QUIET
    )
    assert Lanes.made == 2


@pytest.mark.parametrize("config", [SACConfig(**OFF), PPOConfig(**SMALL)])
def test_one_environment_serves_training_and_evaluation(config, tmp_path):
    run = {"num_envs": 4, "total_frames": 240, "frames_per_batch": 40, "evaluation_env": "shared"}
    result = train(config, lanes, **run, folder=str(tmp_path / "run"), eval_interval=80, **QUIET)
    assert Lanes.made == 1
    assert [row["frames"] for row in result.history] == [80, 160, 240]
    assert result.history[-1]["length_mean"] == 10.0


def test_training_starts_anew_after_a_shared_evaluation():
    config = PPOConfig(**SMALL)
    with Trial(
        config, lanes, num_envs=4, total_frames=400, frames_per_batch=20, evaluation_env="shared"
    ) as trial:
        trial.train(frames=20)
        env = trial.environments.training()
        assert env.time.flatten().tolist() == [5.0] * 4
        trial.evaluate(episodes=2)
        assert env.time.flatten().tolist() == [0.0] * 4
        trial.train(frames=20)
        assert env.time.flatten().tolist() == [5.0] * 4


def test_a_fixed_batch_must_be_the_one_that_is_asked_for(tmp_path):
    folder = str(tmp_path / "run")
    with pytest.raises(UsageError, match=r"`num_envs`.*6"):
        train(PPOConfig(**SMALL), six_lanes, num_envs=4, folder=folder, **QUIET)
    train(PPOConfig(**SMALL), six_lanes, num_envs=6, total_frames=120, folder=folder, **QUIET)


def test_a_stored_run_is_evaluated(tmp_path):
    config = SACConfig(**OFF)
    result = train(
        config,
        "lanes:nested_lanes",
        num_envs=4,
        total_frames=80,
        folder=str(tmp_path / "run"),
        **QUIET,
    )
    evaluation = evaluate(result.folder, episodes=5)
    assert evaluation.lengths == (10,) * 5


@KINDS
def test_actor_and_critics_read_their_own_entries(config, tmp_path):
    from dataclasses import replace

    config = replace(config, actor_keys=("observation",), critic_keys=("observation", "hint"))
    config = replace(config, normalize_observation=True)
    with Trial(config, lanes, num_envs=4, total_frames=320, frames_per_batch=80) as trial:
        trial.train()
        loss = trial.learner.loss
        critic = (
            loss.critic_network
            if isinstance(config, PPOConfig | A2CConfig)
            else loss.qvalue_network
        )
        assert set(loss.actor_network.in_keys) == {"observation"}
        assert {"observation", "hint"} <= set(critic.in_keys)
        norm = trial.learner.add_ons["scaling"].norm
        assert set(norm.shapes) == {"observation", "hint"}
        assert all(norm.scales(key)[0].any() for key in norm.shapes)
        assert trial.ledger.updates > 0


@pytest.mark.parametrize("config", [SACConfig(**OFF), PPOConfig(**SMALL)])
def test_workers_collect_from_batches(config, tmp_path):
    run = {"num_envs": 4, "total_frames": 320, "frames_per_batch": 80, "num_workers": 1}
    with Trial(config, "lanes:nested_lanes", **run, collector="async") as trial:
        assert trial.train().frames == 320
        assert torch.isfinite(torch.tensor(trial.evaluate(episodes=2).return_mean))


@pytest.mark.parametrize(("steps", "rows"), [(1, 60), (2, 40), (4, 0)])
def test_no_row_reaches_from_before_a_shared_evaluation_to_after_it(steps, rows):
    """Steps without enough later ones before an evaluation are dropped, of three each time."""
    config = SACConfig(**{**OFF, "warmup": 10_000}, n_steps=steps)
    run = {"num_envs": 4, "total_frames": 20_000, "frames_per_batch": 12}
    with Trial(config, lanes, **run, evaluation_env="shared") as trial:
        for _ in range(5):
            trial.train(frames=12)
            trial.evaluate(episodes=1)
        assert len(trial.store) == rows


def test_returns_and_slices_start_anew_after_a_shared_evaluation():
    hterm = HTermConfig(horizon=4, slices=2)
    config = SACConfig(**{**OFF, "warmup": 10_000}, normalize_value=True, hterm=hterm)
    run = {"num_envs": 4, "total_frames": 20_000, "frames_per_batch": 12}
    with Trial(config, lanes, **run, evaluation_env="shared") as trial:
        for _ in range(5):
            trial.train(frames=12)
            trial.evaluate(episodes=1)
            assert not trial.learner.add_ons["scaling"].returns._last
        # No slice of four steps fits between two evaluations.
        assert len(trial.learner.add_ons["hterm"].term.store) == 0
