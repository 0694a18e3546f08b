"""PPO learns choices and movements, and does not where its advantages lie or nothing can move."""

from __future__ import annotations

from pathlib import Path

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from quiet_runs import learnt

from torchrl_elegant.algorithms import PPOConfig
from torchrl_elegant.objectives import ClipPPOLoss


class Target(gymnasium.Env):
    """Move a point with small steps to where it should be: 10 steps, at most 0 a step.

    Standing still gives about -7, going straight there about -0.4.
    """

    observation_space = spaces.Box(-2.0, 2.0, (2,), np.float32)
    action_space = spaces.Box(-0.5, 0.5, (1,), np.float32)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.place, self.goal, self.steps = (*self.np_random.uniform(-1, 1, 2), 0)
        return self._observe(), {}

    def step(self, action):
        self.place = float(np.clip(self.place + action[0], -2.0, 2.0))
        self.steps += 1
        return self._observe(), -abs(self.place - self.goal), False, self.steps == 10, {}

    def _observe(self):
        return np.array([self.place, self.goal], np.float32)


BALANCE = PPOConfig(epochs=10, batch_size=256, lr=1e-3, lmbda=0.9)
REACH = PPOConfig(epochs=10, batch_size=128, lr=1e-3, gamma=0.9, log_std=-0.5)


def final_row(config: PPOConfig, env, folder: Path, frames: int) -> dict[str, float]:
    return learnt(config, env, folder, frames, num_envs=8, eval_episodes=20)[-1]


def final_return(*run) -> float:
    return final_row(*run)["return_mean"]


@pytest.fixture
def turned_around(monkeypatch):
    """Every advantage with the other sign."""
    advantage = ClipPPOLoss._advantage
    monkeypatch.setattr(ClipPPOLoss, "_advantage", lambda *args: -advantage(*args))


def test_it_learns_to_balance_a_pole(tmp_path):
    assert final_return(BALANCE, "CartPole-v1", tmp_path / "run", 40_960) >= 400.0


@pytest.mark.usefixtures("turned_around")
def test_it_learns_to_drop_the_pole_where_advantages_lie(tmp_path):
    assert final_return(BALANCE, "CartPole-v1", tmp_path / "run", 20_480) <= 12.0


def test_it_learns_to_go_where_it_should(tmp_path):
    assert final_return(REACH, Target, tmp_path / "run", 40_960) >= -1.0


@pytest.mark.usefixtures("turned_around")
def test_it_learns_to_flee_where_advantages_lie(tmp_path):
    assert final_return(REACH, Target, tmp_path / "run", 20_480) <= -12.0


@pytest.mark.parametrize(
    ("env", "most"), [("CartPole-v1", 40.0), (Target, -4.5)], ids=["pole", "target"]
)
def test_it_learns_nothing_where_nothing_can_move(tmp_path, env, most):
    config = PPOConfig(epochs=1, batch_size=256, lr=1e-9)
    # With actions drawn by chance: some new network balances a pole with its preferred ones.
    assert final_row(config, env, tmp_path / "run", 8_192)["train_return"] <= most
