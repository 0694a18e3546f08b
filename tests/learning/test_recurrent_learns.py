"""With a memory an agent answers what it was shown once; without one it stays at chance."""

from __future__ import annotations

from typing import Any

import pytest
from quiet_runs import learnt

from torchrl_elegant.algorithms import ALGORITHMS

MEMORY = {"recurrent": True, "hidden_size": 16, "sequence_length": 8}
FRAMES = {"dqn": 1_600, "qmix": 1_600, "sac": 2_400, "ppo": 6_144}
RATES = {"actor_lr": 3e-3, "critic_lr": 3e-3, "alpha_lr": 3e-3, "alpha": 0.1}


def config(name: str, **memory: Any) -> Any:
    small = {"num_cells": (32,), "gamma": 0.9}
    if name == "ppo":
        return ALGORITHMS[name](**small, lr=1e-3, **memory)
    small |= {"warmup": 160, "batch_size": 64, "updates_per_frame": 0.25}
    if name == "dqn":
        return ALGORITHMS[name](**small, lr=3e-3, tau=0.05, n_steps=3, **memory)
    if name == "qmix":
        return ALGORITHMS[name](**small, lr=3e-3, tau=0.05, **memory)
    return ALGORITHMS[name](**small, **RATES, target_entropy=-2.0, tau=0.05, **memory)


def final_return(name: str, folder: Any, **memory: Any) -> float:
    asks = {"delay": 4, "discrete": name != "sac", "agents": 2 if name == "qmix" else None}
    run = {"num_envs": 16, "eval_episodes": 200, "env_kwargs": asks, "seed": 0}
    run |= {"frames_per_batch": 1_024} if name == "ppo" else {}
    made = config(name, **memory)
    return learnt(made, "elegant/recall", folder, FRAMES[name], **run)[-1]["return_mean"]


@pytest.mark.parametrize("name", sorted(FRAMES))
def test_a_memory_answers(tmp_path, name) -> None:
    assert final_return(name, tmp_path / "run", **MEMORY) >= 0.8


@pytest.mark.parametrize("name", sorted(FRAMES))
def test_without_one_it_guesses(tmp_path, name) -> None:
    assert abs(final_return(name, tmp_path / "run")) <= 0.3
