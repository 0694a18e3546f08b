"""Small environments, sound and broken, named by `faults.fault_envs:<factory>`."""

from __future__ import annotations

import time

import gymnasium
import numpy as np
from gymnasium import spaces


class Point(gymnasium.Env):
    """A point on a line that the action should sit on; an episode lasts `length` steps."""

    metadata = {"render_modes": ["rgb_array"], "render_fps": 10}  # noqa: RUF012
    observation_space = spaces.Box(-2.0, 2.0, (2,), np.float32)
    action_space = spaces.Box(-1.0, 1.0, (1,), np.float32)

    def __init__(
        self, length: int = 20, *, at: int = 0, reward: float = 0.0, nap: float = 0.0
    ) -> None:
        self.length, self.at, self.reward, self.nap = length, at, reward, nap
        self.steps = self.total = 0

    def reset(self, *, seed: int | None = None, options: dict | None = None):
        super().reset(seed=seed)
        self.place, self.steps = float(self.np_random.uniform(-1, 1)), 0
        return self._observe(), {}

    def step(self, action: np.ndarray):
        if self.nap:
            time.sleep(self.nap)
        self.steps, self.total = self.steps + 1, self.total + 1
        reward = self.reward if self.total == self.at else -abs(self.place - float(action[0]))
        return self._observe(), reward, False, self.steps >= self.length, {}

    def _observe(self) -> np.ndarray:
        return np.array([self.place, self.steps / self.length], np.float32)


class Drawn(Point):
    """A point that can be seen."""

    def __init__(self, render_mode: str | None = None) -> None:
        super().__init__()
        self.render_mode = render_mode

    def render(self) -> np.ndarray:
        return np.full((8, 8, 3), self.steps, np.uint8)


class Undrawn(Drawn):
    """Takes a render mode and gives no picture."""

    def render(self) -> None:
        return None


def point(length: int = 20, nap: float = 0.0) -> Point:
    return Point(length, nap=nap)


class TwoActions(Point):
    """A point that takes a number more than it needs."""

    action_space = spaces.Box(-1.0, 1.0, (2,), np.float32)


def two_actions() -> Point:
    return TwoActions()


class Keyed(Point):
    """A point whose observation has a name of its own."""

    observation_space = spaces.Dict({"place": Point.observation_space})

    def _observe(self) -> dict[str, np.ndarray]:
        return {"place": super()._observe()}


def keyed() -> Point:
    return Keyed()


def nan_reward(at: int) -> Point:
    return Point(at=at, reward=float("nan"))


def huge_reward(at: int) -> Point:
    return Point(at=at, reward=1e38)


def broken() -> Point:
    raise RuntimeError("the licence server\nis on holiday")


def broken_value() -> Point:
    raise ValueError("the licence server\nis on holiday")


class BrokenReset(Point):
    def reset(self, *, seed: int | None = None, options: dict | None = None):
        raise TypeError("the licence server is on holiday")


class OldReset(Point):
    def reset(self, *, seed: int | None = None, options: dict | None = None):
        return super().reset(seed=seed)[0]


class OldSeed(Point):
    def reset(self):
        return super().reset()[0]


class OldStep(Point):
    def step(self, action: np.ndarray):
        observation, reward, terminated, truncated, info = super().step(action)
        return observation, reward, terminated or truncated, info


broken_reset, old_reset, old_seed, old_step = BrokenReset, OldReset, OldSeed, OldStep


class Sick(Point):
    """Returns NaN in place of a reward or an observation, `at` so many steps of all."""

    def __init__(self, where: str, at: int) -> None:
        super().__init__()
        self.where, self.sick_at = where, at

    def step(self, action: np.ndarray):
        assert np.isfinite(action).all(), "a NaN action reached the simulator"
        observation, reward, *rest = super().step(action)
        if self.total == self.sick_at:
            reward = float("nan") if self.where == "reward" else reward
            observation = observation * (np.nan if self.where == "observation" else 1)
        return observation, reward, *rest


def not_an_environment() -> int:
    return 3
