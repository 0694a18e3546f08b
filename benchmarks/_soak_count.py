"""An environment that numbers its steps, and a replay buffer that checks the numbers."""

from __future__ import annotations

from functools import partial
from typing import Any

import gymnasium
import numpy as np
import torch
from gymnasium import spaces
from tensordict import TensorDictBase
from torchrl.data import LazyTensorStorage, TensorDictReplayBuffer

from torchrl_elegant.envs import GymnasiumEnv

# Observations are single precision: a number is written as two digits to this base.
BASE = 1 << 20


class Numbered(gymnasium.Env):
    """Observes (its own name, steps ever made as two digits, steps of the episode, episodes).

    An episode takes 5 to 204 steps, by a rule that differs between environments, and ends as a
    termination or a truncation in turn. The reward of a step is its number in the episode.
    """

    observation_space = spaces.Box(0, BASE, (5,), np.float32)
    action_space = spaces.Box(-1, 1, (1,), np.float32)

    def __init__(self, name: int) -> None:
        self.name, self.steps, self.age, self.episodes = name, 0, 0, 0

    def _observe(self) -> np.ndarray:
        digits = self.steps // BASE, self.steps % BASE
        return np.array([self.name, *digits, self.age, self.episodes % BASE], np.float32)

    def reset(self, *, seed: int | None = None, options: dict | None = None) -> tuple:
        super().reset(seed=seed)
        self.age, self.episodes = 0, self.episodes + 1
        return self._observe(), {}

    def step(self, action: np.ndarray) -> tuple:
        self.steps, self.age = self.steps + 1, self.age + 1
        over = self.age >= 5 + (37 * self.episodes + 11 * self.name) % 200
        terminated = over and self.episodes % 2 == 0
        return self._observe(), float(self.age), terminated, over and not terminated, {}


def numbered_envs(worker: int, count: int) -> GymnasiumEnv:
    """The environments of one worker; no two environments of a run have the same name."""
    factories = [partial(Numbered, 100 * worker + index) for index in range(count)]
    return GymnasiumEnv(factories=factories)


def numbers_of(observation: torch.Tensor) -> torch.Tensor:
    """[rows, 5] -> [rows], the steps that each environment had ever made."""
    return observation[:, 1].long() * BASE + observation[:, 2].long()


class CountingBuffer(TensorDictReplayBuffer):
    """A replay buffer that follows every environment through the stream of rows written to it.

    Raises `AssertionError` where a row is missing, comes twice or comes in another order, and
    where an episode does not begin at its beginning. Its counts are those of `frames`.
    """

    def __init__(self, *, capacity: int, batch_size: int) -> None:
        super().__init__(storage=LazyTensorStorage(capacity), batch_size=batch_size)
        self._made: dict[int, int] = {}
        self._fresh: dict[int, bool] = {}
        self.episodes = 0

    @property
    def frames(self) -> dict[int, int]:
        """Rows per environment, by its name."""
        return dict(self._made)

    def extend(self, tensordicts: TensorDictBase, **kwargs: Any) -> torch.Tensor:
        """Checks the rows, then stores them."""
        self.check(tensordicts)
        return super().extend(tensordicts, **kwargs)

    def check(self, rows: TensorDictBase) -> None:
        """Follows the rows of each environment on from the last that came before."""
        before, after = rows["observation"], rows["next", "observation"]
        names = before[:, 0].long()
        for name in names.unique().tolist():
            mine = names == name
            self._follow(name, before[mine], after[mine], rows["next"][mine])

    def _follow(
        self, name: int, before: torch.Tensor, after: torch.Tensor, following: TensorDictBase
    ) -> None:
        first = self._made.get(name, 0)
        expected = torch.arange(first, first + len(before))
        for what, seen, wanted in (
            ("begin at", numbers_of(before), expected),
            ("lead to", numbers_of(after), expected + 1),
        ):
            if not torch.equal(seen, wanted):
                at = int((seen != wanted).nonzero()[0])
                raise AssertionError(
                    f"row {first + at} of environment {name} must {what} step "
                    f"{int(wanted[at])}, got {int(seen[at])}"
                )
        done = following["done"].reshape(-1)
        starts = torch.cat([torch.tensor([self._fresh.get(name, True)]), done[:-1]])
        if not torch.equal(before[:, 3] == 0, starts):
            raise AssertionError(f"an episode of environment {name} must begin where one ended")
        if not torch.equal(following["reward"].reshape(-1), after[:, 3]):
            raise AssertionError(f"a reward of environment {name} must be that of its step")
        self._made[name], self._fresh[name] = first + len(before), bool(done[-1])
        self.episodes += int(done.sum())
