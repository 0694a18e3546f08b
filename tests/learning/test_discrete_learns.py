"""Every value-based algorithm learns choices, and does not where rewards lie or nothing moves."""

from __future__ import annotations

from pathlib import Path

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from quiet_runs import learnt

from torchrl_elegant.algorithms import ALGORITHMS, OffPolicyConfig
from torchrl_elegant.objectives.off_policy.base import OffPolicyLoss


class Target(gymnasium.Env):
    """Move a point left, not at all, or right, to where it should be: 10 steps, at most 0 a step.

    Standing still gives about -6.7, the nearest move every time about -1.3, fleeing about -18.
    """

    observation_space = spaces.Box(-2.0, 2.0, (2,), np.float32)
    action_space = spaces.Discrete(3)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.place, self.goal, self.steps = (*self.np_random.uniform(-1, 1, 2), 0)
        return self._observe(), {}

    def step(self, action):
        self.place = float(np.clip(self.place + 0.3 * (int(action) - 1), -2.0, 2.0))
        self.steps += 1
        return self._observe(), -abs(self.place - self.goal), False, self.steps == 10, {}

    def _observe(self):
        return np.array([self.place, self.goal], np.float32)


NAMES = ("dqn", "double_dqn", "dueling_dqn", "d3qn", "discrete_sac")
EACH = pytest.mark.parametrize("name", NAMES)
FRAMES = 2_400


def config(name: str, lr: float = 2e-3) -> OffPolicyConfig:
    small = {
        "num_cells": (32, 32),
        "batch_size": 64,
        "warmup": 400,
        "gamma": 0.8,
        "tau": 0.02,
        "n_steps": 1,
        "updates_per_frame": 1.0,
    }
    if name == "discrete_sac":
        rates = {"actor_lr": lr, "critic_lr": lr, "alpha_lr": lr}
        return ALGORITHMS[name](alpha=0.1, target_entropy_weight=0.1, **rates, **small)
    return ALGORITHMS[name](lr=lr, **small)


def final_return(config: OffPolicyConfig, folder: Path) -> float:
    return learnt(config, Target, folder, FRAMES, num_envs=4, eval_episodes=40)[-1]["return_mean"]


@EACH
def test_it_learns_to_go_where_it_should(tmp_path, name):
    assert final_return(config(name), tmp_path / "run") >= -1.9


@pytest.mark.parametrize("name", ["d3qn", "discrete_sac"])
def test_it_learns_to_flee_where_rewards_lie(tmp_path, name, monkeypatch):
    value = OffPolicyLoss._target_value

    def turned_around(self, batch, *given):
        liar = batch.clone()
        liar["next", "reward"] = -liar["next", "reward"]
        return value(self, liar, *given)

    monkeypatch.setattr(OffPolicyLoss, "_target_value", turned_around)
    assert final_return(config(name), tmp_path / "run") <= -14.0


@pytest.mark.parametrize("name", ["d3qn", "discrete_sac"])
def test_it_learns_nothing_where_nothing_can_move(tmp_path, name):
    assert final_return(config(name, lr=1e-9), tmp_path / "run") <= -4.0
