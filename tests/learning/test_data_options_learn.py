"""SAC learns with every option of its data on, and does not where the actor cannot learn."""

from __future__ import annotations

from quiet_runs import pendulum_return, swings_up

from torchrl_elegant.algorithms import SACConfig

ALL = {
    "num_cells": (64, 64),
    "batch_size": 64,
    "critic_lr": 1e-3,
    "alpha_lr": 1e-3,
    "warmup": 500,
    "alpha": 0.1,  # rewards of unit spread are small beside an entropy weighed with one
    "n_steps": 3,
    "priority_alpha": 0.6,
    "long_return_weight": 0.1,
    "normalize_observation": True,
    "normalize_value": True,
}


def test_it_learns_to_swing_a_pendulum_up(tmp_path):
    assert swings_up(SACConfig(actor_lr=1e-3, **ALL), tmp_path / "run", 4_000, goal=-250.0)


def test_it_learns_nothing_where_the_actor_cannot_move(tmp_path):
    assert pendulum_return(SACConfig(actor_lr=1e-9, **ALL), tmp_path / "run", 1_200) <= -700.0
