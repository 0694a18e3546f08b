"""Environments that are seen, every picture known in advance."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces


class Film(gymnasium.Env):
    """Shows number `10 * episode + step` in every pixel; ends after `length` steps.

    `ends` says how; `entry` puts the picture into a dict beside the step's number.
    """

    metadata = {"render_modes": ["rgb_array"]}  # noqa: RUF012 (Gymnasium's form)
    action_space = spaces.Box(-1.0, 1.0, (1,), np.float32)

    def __init__(
        self,
        shape: tuple[int, ...] = (6, 5, 3),
        length: int = 3,
        ends: str = "terminated",
        entry: str | None = None,
        render_mode: str | None = None,
    ) -> None:
        self.shape, self.length, self.ends, self.entry = shape, length, ends, entry
        self.render_mode = render_mode
        eye = spaces.Box(0, 255, shape, np.uint8)
        clock = spaces.Box(-np.inf, np.inf, (2,), np.float32)
        self.observation_space = eye if entry is None else spaces.Dict({entry: eye, "clock": clock})
        self.episode = self.number = 0

    def reset(self, *, seed: int | None = None, options: dict | None = None):
        self.episode, self.number = self.episode + 1, 0
        return self._observe(), {}

    def step(self, action: np.ndarray):
        self.number += 1
        over = self.number >= self.length
        terminated = over and self.ends == "terminated"
        return self._observe(), float(action[0]), terminated, over and not terminated, {}

    def render(self) -> np.ndarray:
        return np.full((8, 8, 3), 10 * self.episode + self.number, np.uint8)

    def _observe(self) -> Any:
        eye = np.full(self.shape, 10 * self.episode + self.number, np.uint8)
        if self.entry is None:
            return eye
        return {self.entry: eye, "clock": np.array([self.episode, self.number], np.float32)}


class Choices(Film):
    """The same with two choices, of which the second pays."""

    action_space = spaces.Discrete(2)

    def step(self, action: int):
        return super().step(np.array([action]))
