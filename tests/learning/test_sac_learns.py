"""SAC and ModSAC learn to swing a pendulum up, and do not where the actor cannot learn."""

from __future__ import annotations

import pytest
from quiet_runs import pendulum_return, swings_up

from torchrl_elegant.algorithms import ModSACConfig, SACConfig

SMALL = {
    "num_cells": (64, 64),
    "batch_size": 64,
    "critic_lr": 1e-3,
    "alpha_lr": 1e-3,
    "warmup": 500,
}


@pytest.mark.parametrize(
    ("config", "options"),
    [(SACConfig, {}), (ModSACConfig, {"num_critics": 4})],
    ids=["sac", "modsac"],
)
def test_it_learns_to_swing_a_pendulum_up(tmp_path, config, options):
    config = config(actor_lr=1e-3, **SMALL, **options)
    assert swings_up(config, tmp_path / "run", 5_000, goal=-250.0)


def test_critics_of_distributions_learn_to_swing_a_pendulum_up(tmp_path):
    atoms = {"atoms": 51, "v_min": -20.0, "v_max": 1.0, "layer_norm": "critics"}
    task = {"gamma": 0.95, "reward_scale": 0.1, "alpha": 0.2, "updates_per_frame": 0.6}
    config = SACConfig(actor_lr=1e-3, **SMALL, **atoms, **task)
    assert swings_up(config, tmp_path / "run", 6_000, goal=-300.0)


@pytest.mark.parametrize("config", [SACConfig, ModSACConfig], ids=["sac", "modsac"])
def test_it_learns_nothing_where_the_actor_cannot_move(tmp_path, config):
    assert pendulum_return(config(actor_lr=1e-9, **SMALL), tmp_path / "run", 2_000) <= -700.0
