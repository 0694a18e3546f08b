"""REDQ learns to swing a pendulum up in few frames, and does not where its actor cannot learn."""

from __future__ import annotations

from pathlib import Path

import pytest
from quiet_runs import learnt

from torchrl_elegant.algorithms import REDQConfig


def final_return(folder: Path, frames: int, **options) -> float:
    config = REDQConfig(
        num_cells=(32, 32),
        batch_size=64,
        num_critics=5,
        updates_per_frame=5,
        critic_lr=1e-3,
        alpha_lr=1e-3,
        warmup=500,
        **options,
    )
    return learnt(config, "Pendulum-v1", folder, frames, eval_episodes=10)[-1]["return_mean"]


@pytest.mark.parametrize(
    "target", [{}, {"target": "weighted", "target_members": None}], ids=["subset", "weighted"]
)
def test_it_learns_to_swing_a_pendulum_up(tmp_path, target):
    assert final_return(tmp_path / "run", 2_000, actor_lr=3e-3, **target) >= -300.0


def test_it_learns_nothing_where_the_actor_cannot_move(tmp_path):
    assert final_return(tmp_path / "run", 1_200, actor_lr=1e-9) <= -700.0
