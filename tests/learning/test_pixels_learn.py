"""SAC and PPO learn from pictures to go where they should, and do not where the pictures are black.

The same runs, the same rewards: what is learnt comes through the encoders.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from quiet_runs import learnt

from torchrl_elegant.algorithms import PPOConfig, SACConfig

SIDE = 9


class Seek(gymnasium.Env):
    """A dot in one channel moves to the dot in the other: 8 steps, minus the distance each.

    Standing still gives -23.7 on average, the best play -5.2.
    """

    observation_space = spaces.Box(0, 255, (2, SIDE, SIDE), np.uint8)

    def __init__(self, moves: str, light: int) -> None:
        self.moves, self.light = moves, light
        box = spaces.Box(-1.0, 1.0, (1,), np.float32)
        self.action_space = box if moves == "any" else spaces.Discrete(3)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.places, self.steps = self.np_random.integers(SIDE, size=2).astype(float), 0
        return self._observe(), {}

    def step(self, action):
        move = float(action[0]) if self.moves == "any" else int(action) - 1
        self.places[0] = np.clip(self.places[0] + move, 0, SIDE - 1)
        self.steps += 1
        distance = abs(self.places[0] - self.places[1])
        return self._observe(), -float(distance), False, self.steps == 8, {}

    def _observe(self):
        picture = np.zeros((2, SIDE, SIDE), np.uint8)
        for channel, place in enumerate(self.places):
            picture[channel, :, round(place)] = self.light
        return picture


OFF = SACConfig(
    num_cells=(32,),
    batch_size=32,
    warmup=200,
    buffer_size=2_000,
    gamma=0.8,
    alpha=0.1,
    actor_lr=1e-3,
    critic_lr=1e-3,
    alpha_lr=1e-3,
    updates_per_frame=0.5,
)
ON = PPOConfig(num_cells=(32,), batch_size=128, epochs=4, lr=1e-3, gamma=0.8, activation="relu")
RUNS = pytest.mark.parametrize(
    ("config", "moves", "frames"), [(OFF, "any", 1_600), (ON, "whole", 8_192)], ids=["sac", "ppo"]
)


def final_return(config, moves: str, light: int, frames: int, folder: Path) -> float:
    run = {"num_envs": 8, "frames_per_batch": 16 if config is OFF else 512, "eval_episodes": 48}
    return learnt(config, partial(Seek, moves, light), folder, frames, **run)[-1]["return_mean"]


@RUNS
def test_they_learn_what_they_see(tmp_path, config, moves, frames):
    assert final_return(config, moves, 255, frames, tmp_path / "run") >= -13.0


@RUNS
def test_they_learn_nothing_in_the_dark(tmp_path, config, moves, frames):
    assert final_return(config, moves, 0, frames, tmp_path / "run") <= -17.0
