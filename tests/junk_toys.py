"""A simulator in tensors that resets in the next step, and says so."""

from __future__ import annotations

import numpy as np
import torch
from tensordict import TensorDict, TensorDictBase
from torchrl.data import Bounded, Categorical, Composite, Unbounded

from torchrl_elegant.envs.wrap import SettledEnv


class NextStep(SettledEnv):
    """Row i plays episodes of i + 2 steps; each step is rewarded with 1.

    The observation is ``(row, episode, step)``. Odd rows are terminated at an episode's end, even
    ones truncated. The transition after an end is junk: it leads to the next episode.
    """

    resets_by_mask = True

    def __init__(self, *, num_envs: int = 3, device: torch.device | str = "cpu") -> None:
        super().__init__(device=device, batch_size=[num_envs])
        self.action_low = -np.ones(1, np.float32)
        self.action_high = np.ones(1, np.float32)
        column = (num_envs, 1)
        self.observation_spec = Composite(
            observation=Unbounded((num_envs, 3)),
            step_count=Unbounded(column, dtype=torch.int64),
            episode_reward=Unbounded(column),
            junk=Categorical(2, column, dtype=torch.bool),
            shape=[num_envs],
        )
        self.action_spec = Composite(
            action=Bounded(-1.0, 1.0, column, dtype=torch.float32), shape=[num_envs]
        )
        self.reward_spec = Composite(reward=Unbounded(column), shape=[num_envs])
        names = ("done", "terminated", "truncated")
        flags = {name: Categorical(2, column, dtype=torch.bool) for name in names}
        self.done_spec = Composite(flags, shape=[num_envs])
        self.row = torch.arange(num_envs).unsqueeze(-1)
        self.episode, self.at = torch.zeros(2, *column, dtype=torch.int64)
        self.ended = torch.zeros(column, dtype=torch.bool)  # its next step leads to a new episode

    def _set_seed(self, seed: int | None) -> None:
        pass

    def _reset(self, tensordict: TensorDictBase | None = None, **kwargs) -> TensorDict:
        mask = None if tensordict is None else tensordict.get("_reset", None)
        if mask is None:
            self.episode = self.episode + 1
            self.at, self.ended = torch.zeros_like(self.at), torch.zeros_like(self.ended)
        never = torch.zeros_like(self.ended)
        return self._outcome(never, never).set("junk", self.ended.clone())

    def _step(self, tensordict: TensorDictBase) -> TensorDict:
        junk = self.ended
        self.episode = self.episode + junk
        self.at = torch.where(junk, 0, self.at + 1)
        self.ended = self.at == self.row + 2
        odd = self.row % 2 == 1
        out = self._outcome(self.ended & odd, junk | (self.ended & ~odd))
        out.set("junk", torch.zeros_like(junk))
        return out.set("reward", (~junk).float())

    def _outcome(self, terminated: torch.Tensor, truncated: torch.Tensor) -> TensorDict:
        values = {
            "observation": torch.cat([self.row, self.episode, self.at], -1).float(),
            "step_count": self.at,
            "episode_reward": self.at.float(),
            "done": terminated | truncated,
            "terminated": terminated.clone(),
            "truncated": truncated.clone(),
        }
        return TensorDict(values, self.batch_size)
