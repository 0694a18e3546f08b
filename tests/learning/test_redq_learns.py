"""REDQ learns to swing a pendulum up in few frames, and does not where its actor cannot learn."""

from __future__ import annotations

import pytest
from quiet_runs import pendulum_return, swings_up

from torchrl_elegant.algorithms import REDQConfig


def config(**options) -> REDQConfig:
    return REDQConfig(
        num_cells=(32, 32),
        batch_size=64,
        num_critics=5,
        updates_per_frame=5,
        critic_lr=1e-3,
        alpha_lr=1e-3,
        warmup=500,
        **options,
    )


@pytest.mark.parametrize(
    "target", [{}, {"target": "weighted", "target_members": None}], ids=["subset", "weighted"]
)
def test_it_learns_to_swing_a_pendulum_up(tmp_path, target):
    assert swings_up(config(actor_lr=3e-3, **target), tmp_path / "run", 2_000, goal=-300.0)


def test_it_learns_nothing_where_the_actor_cannot_move(tmp_path):
    assert pendulum_return(config(actor_lr=1e-9), tmp_path / "run", 1_200) <= -700.0
