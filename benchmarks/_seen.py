"""Two small tasks that are only seen: bytes in, nothing else."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

SIDE = 20


class Catch(gymnasium.Env):
    """A ball falls aslant and bounces off the sides; the bat below has to be there.

    One ball an episode, +1 if caught, -1 if not. Where the ball will land is not in one picture
    alone: it needs two. Chance catches one in five (-0.6), the best play all (1.0).
    """

    observation_space = spaces.Box(0, 255, (1, SIDE, SIDE), np.uint8)
    action_space = spaces.Discrete(3)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None):
        super().reset(seed=seed)
        self.row, self.bat = 0, SIDE // 2
        self.column, self.drift = (
            self.np_random.integers(2, SIDE - 2),
            self.np_random.integers(-1, 2),
        )
        return self._observe(), {}

    def step(self, action: int):
        self.bat = int(np.clip(self.bat + action - 1, 1, SIDE - 2))
        self.row += 1
        self.column += self.drift
        if not 0 <= self.column < SIDE:
            self.drift = -self.drift
            self.column += 2 * self.drift
        landed = self.row == SIDE - 2
        caught = abs(self.column - self.bat) <= 1
        return self._observe(), (1.0 if caught else -1.0) if landed else 0.0, landed, False, {}

    def _observe(self) -> np.ndarray:
        picture = np.zeros((1, SIDE, SIDE), np.uint8)
        picture[0, self.row : self.row + 2, max(self.column, 0) : self.column + 1] = 255
        picture[0, SIDE - 1, self.bat - 1 : self.bat + 2] = 160
        return picture


class Reach(gymnasium.Env):
    """Move a red dot onto a green one: 15 steps of at most 3 pixels, minus the distance each.

    Standing still gives -6.4 on average, going there straight -0.4.
    """

    observation_space = spaces.Box(0, 255, (3, SIDE, SIDE), np.uint8)
    action_space = spaces.Box(-1.0, 1.0, (2,), np.float32)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None):
        super().reset(seed=seed)
        self.place, self.goal = self.np_random.uniform(2, SIDE - 2, (2, 2))
        self.steps = 0
        return self._observe(), {}

    def step(self, action: np.ndarray):
        self.place = np.clip(self.place + 3.0 * action, 1.0, SIDE - 2.0)
        self.steps += 1
        distance = float(np.linalg.norm(self.place - self.goal)) / SIDE
        return self._observe(), -distance, False, self.steps == 15, {}

    def _observe(self) -> np.ndarray:
        picture = np.zeros((3, SIDE, SIDE), np.uint8)
        for channel, dot in enumerate((self.place, self.goal)):
            row, column = dot.astype(int)
            picture[channel, row - 1 : row + 2, column - 1 : column + 2] = 255
        return picture
