"""Environments whose every value is known in advance."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces


class Counter(gymnasium.Env):
    """Observes [episode, step, seed]; ends after `length` steps; reward is the step number."""

    observation_space = spaces.Box(-np.inf, np.inf, (3,), np.float64)
    action_space = spaces.Box(np.float32([-2.0, 0.0]), np.float32([2.0, 10.0]))

    def __init__(self, length: int = 3, ends: str = "terminated") -> None:
        self.length, self.ends = length, ends
        self.episode, self.step_number, self.seed_seen = 0, 0, -1
        self.reset_seeds: list[int | None] = []
        self.actions: list[np.ndarray] = []
        self.closed = 0

    def _observe(self) -> np.ndarray:
        return np.array([self.episode, self.step_number, self.seed_seen], np.float64)

    def reset(self, *, seed: int | None = None, options: dict | None = None):
        self.reset_seeds.append(seed)
        if seed is not None:
            self.seed_seen = seed % 1000
        self.episode, self.step_number = self.episode + 1, 0
        return self._observe(), {}

    def step(self, action: np.ndarray):
        self.actions.append(action)
        self.step_number += 1
        over = self.step_number >= self.length
        terminated = over and self.ends == "terminated"
        return self._observe(), float(self.step_number), terminated, over and not terminated, {}

    def close(self) -> None:
        self.closed += 1


class Faulty(Counter):
    """Returns `value` as reward or in the observation at one step of the first episode."""

    def __init__(self, where: str, at: int, value: float = float("nan")) -> None:
        super().__init__(length=100)
        self.where, self.at, self.value = where, at, value

    def reset(self, **kwargs: Any):
        observation, info = super().reset(**kwargs)
        if self.where == "reset":
            observation[1] = self.value
        return observation, info

    def step(self, action: np.ndarray):
        observation, reward, *rest = super().step(action)
        if self.step_number == self.at and self.where == "reward":
            reward = self.value
        if self.step_number == self.at and self.where == "observation":
            observation[1] = self.value
        return observation, reward, *rest


class Spaces(gymnasium.Env):
    """Any pair of spaces; keeps the native actions it was given."""

    def __init__(self, observation_space: spaces.Space, action_space: spaces.Space) -> None:
        self.observation_space, self.action_space = observation_space, action_space
        self.observations: list[Any] = []
        self.actions: list[Any] = []

    def _observe(self) -> Any:
        self.observations.append(self.observation_space.sample())
        return self.observations[-1]

    def reset(self, *, seed: int | None = None, options: dict | None = None):
        return self._observe(), {}

    def step(self, action: Any):
        assert self.action_space.contains(action), (action, self.action_space)
        self.actions.append(action)
        return self._observe(), 0.0, False, False, {}


def kept(make: Callable[[], gymnasium.Env]) -> tuple[list[gymnasium.Env], Callable]:
    """A factory, and the list of what it has made."""
    made: list[gymnasium.Env] = []

    def factory() -> gymnasium.Env:
        made.append(make())
        return made[-1]

    return made, factory


def module_level_counter(length: int = 3) -> Counter:
    return Counter(length)
