"""A2C learns, of one choice and of several, and does not where its advantages lie; PPO does with
data that is one rollout old."""

from __future__ import annotations

from pathlib import Path

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from quiet_runs import learnt

from torchrl_elegant.algorithms import A2CConfig, PPOConfig
from torchrl_elegant.objectives import A2CLoss

BALANCE = A2CConfig(batch_size=64, lr=1e-3, normalize_advantage=True)
CHOOSE = {"num_cells": (32,), "gamma": 0.0, "lr": 3e-3}


class Locks(gymnasium.Env):
    """Two dials show what they want; a step pays 1 where both get it. 8 steps.

    Chance earns 1, the first dial alone 4, the second alone 2, both 8.
    """

    observation_space = spaces.Dict(first=spaces.Discrete(4), second=spaces.Discrete(2, start=3))
    action_space = spaces.MultiDiscrete([4, 2], start=[0, 3])

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.steps = 0
        return self._turn(), {}

    def step(self, action):
        reward = float(list(action) == self.wanted)
        self.steps += 1
        return self._turn(), reward, False, self.steps == 8, {}

    def _turn(self):
        self.wanted = [int(self.np_random.integers(4)), 3 + int(self.np_random.integers(2))]
        return {"first": np.int64(self.wanted[0]), "second": np.int64(self.wanted[1])}


def final_return(config, env, folder: Path, frames: int, **run) -> float:
    run = {"num_envs": 8, "eval_episodes": 20, **run}
    return learnt(config, env, folder, frames, **run)[-1]["return_mean"]


@pytest.fixture
def turned_around(monkeypatch):
    """Every advantage with the other sign."""
    advantage = A2CLoss._advantage
    monkeypatch.setattr(A2CLoss, "_advantage", lambda *args: -advantage(*args))


def test_it_learns_to_balance_a_pole(tmp_path):
    assert final_return(BALANCE, "CartPole-v1", tmp_path / "run", 65_536) >= 300.0


@pytest.mark.usefixtures("turned_around")
def test_it_learns_to_drop_the_pole_where_advantages_lie(tmp_path):
    assert final_return(BALANCE, "CartPole-v1", tmp_path / "run", 20_480) <= 12.0


@pytest.mark.parametrize(
    "config",
    [A2CConfig(**CHOOSE), PPOConfig(batch_size=128, epochs=5, **CHOOSE)],
    ids=["a2c", "ppo"],
)
def test_it_learns_to_make_two_choices_at_once(tmp_path, config):
    assert final_return(config, Locks, tmp_path / "run", 20_480) >= 7.0


@pytest.mark.usefixtures("turned_around")
def test_it_makes_neither_choice_where_advantages_lie(tmp_path):
    assert final_return(A2CConfig(**CHOOSE), Locks, tmp_path / "run", 10_240) <= 1.0


def test_ppo_learns_from_workers_that_are_one_rollout_ahead(tmp_path):
    config = PPOConfig(
        epochs=10, batch_size=256, lr=1e-3, lmbda=0.9, advantage="vtrace", target_kl=0.05
    )
    run = {"num_envs": 4, "collector": "async"}
    assert final_return(config, "CartPole-v1", tmp_path / "run", 32_768, **run) >= 200.0
