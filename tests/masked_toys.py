"""Environments in which some actions are forbidden, and raise."""

from __future__ import annotations

import gymnasium
import numpy as np
from gymnasium import spaces
from torchrl.envs import EnvBase, GymWrapper, RenameTransform, TransformedEnv


class Doors(gymnasium.Env):
    """Some of ``choices`` doors are open. The open one with the largest number is worth most.

    What is seen is noise and the step, so that only the mask tells which doors are open.
    """

    def __init__(self, choices: int = 4, steps: int = 5) -> None:
        self.choices, self.steps = choices, steps
        self.observation_space = spaces.Dict(
            seen=spaces.Box(-1.0, 1.0, (2,)), action_mask=spaces.MultiBinary(choices)
        )
        self.action_space = spaces.Discrete(choices)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self._step = 0
        return self._look(), {}

    def step(self, action):
        if not self._open[action]:
            raise ValueError(f"door {action} is closed, {self._open}")
        best = self._open.nonzero()[0].max()
        self._step += 1
        over = self._step == self.steps
        reward = float(action == best)
        seen = self._look()
        if over:
            # At the end of a game nothing is allowed.
            seen["action_mask"][:] = 0
        return seen, reward, over, False, {}

    def _look(self):
        self._open = self.np_random.random(self.choices) < 0.5
        self._open[self.np_random.integers(self.choices)] = True
        seen = self.np_random.uniform(-1, 1, 2).astype(np.float32)
        return {"seen": seen, "action_mask": self._open.astype(np.int8)}


class TwoDoors(Doors):
    """Two choices at once, with their masks side by side."""

    def __init__(self) -> None:
        super().__init__(choices=5)
        self.action_space = spaces.MultiDiscrete([3, 2])

    def step(self, action):
        first, second = action
        if not (self._open[first] and self._open[3 + second]):
            raise ValueError(f"doors {action} are closed, {self._open}")
        self._step += 1
        return self._look(), float(first == 2), self._step == self.steps, False, {}

    def _look(self):
        seen = super()._look()
        self._open[self.np_random.integers(3)] = True
        self._open[3 + self.np_random.integers(2)] = True
        seen["action_mask"][:] = self._open
        return seen


def of_torchrl():
    """The same doors, as TorchRL's own wrapper has them."""
    return GymWrapper(Doors(), categorical_action_encoding=False)


def nested() -> EnvBase:
    """The same doors with the mask in a group."""
    names = {"in_keys": ["action_mask"], "out_keys": [("agent", "action_mask")]}
    return TransformedEnv(of_torchrl(), RenameTransform(**names, create_copy=False))


class NestedDoors(gymnasium.Wrapper):
    """The same doors, of Gymnasium, with all that is seen in a group."""

    def __init__(self) -> None:
        super().__init__(Doors())
        self.observation_space = spaces.Dict(agent=self.env.observation_space)

    def reset(self, **options):
        seen, info = self.env.reset(**options)
        return {"agent": seen}, info

    def step(self, action):
        seen, *rest = self.env.step(action)
        return {"agent": seen}, *rest
