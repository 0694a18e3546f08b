"""DDPG and TD3 learn to swing a pendulum up, and do not where the actor cannot learn."""

from __future__ import annotations

from pathlib import Path

import pytest
from quiet_runs import learnt

from torchrl_elegant.algorithms import DDPGConfig, TD3Config

SMALL = {"num_cells": (64, 64), "batch_size": 64, "warmup": 500}


def best_return(config: DDPGConfig, folder: Path, frames: int) -> float:
    run = {"eval_episodes": 10, "eval_interval": frames // 6}
    history = learnt(config, "Pendulum-v1", folder, frames, **run)
    # DDPG comes and goes: what counts is that it was there.
    return max(row["return_mean"] for row in history)


CASES = [
    pytest.param(DDPGConfig, {}, 6_000, id="ddpg"),
    pytest.param(DDPGConfig, {"noise": "ou", "noise_std": 0.2}, 6_000, id="ddpg, drifting noise"),
    pytest.param(TD3Config, {}, 9_000, id="td3"),
]


@pytest.mark.parametrize(("config", "options", "frames"), CASES)
def test_it_learns_to_swing_a_pendulum_up(tmp_path, config, options, frames):
    assert best_return(config(**SMALL, **options), tmp_path / "run", frames) >= -300.0


@pytest.mark.parametrize("config", [DDPGConfig, TD3Config])
def test_it_learns_nothing_where_the_actor_cannot_move(tmp_path, config):
    assert best_return(config(actor_lr=1e-9, **SMALL), tmp_path / "run", 3_000) <= -700.0
