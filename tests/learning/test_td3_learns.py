"""DDPG and TD3 learn to swing a pendulum up, and do not where the actor cannot learn."""

from __future__ import annotations

import pytest
from quiet_runs import pendulum_return, swings_up

from torchrl_elegant.algorithms import DDPGConfig, TD3Config

SMALL = {"num_cells": (64, 64), "batch_size": 64, "warmup": 500}

CASES = [
    pytest.param(DDPGConfig, {}, 6_000, id="ddpg"),
    pytest.param(DDPGConfig, {"noise": "ou", "noise_std": 0.2}, 6_000, id="ddpg, drifting noise"),
    pytest.param(TD3Config, {}, 9_000, id="td3"),
]


@pytest.mark.parametrize(("config", "options", "frames"), CASES)
def test_it_learns_to_swing_a_pendulum_up(tmp_path, config, options, frames):
    assert swings_up(config(**SMALL, **options), tmp_path / "run", frames, goal=-300.0)


@pytest.mark.parametrize("config", [DDPGConfig, TD3Config])
def test_it_learns_nothing_where_the_actor_cannot_move(tmp_path, config):
    assert pendulum_return(config(actor_lr=1e-9, **SMALL), tmp_path / "run", 1_800) <= -700.0
