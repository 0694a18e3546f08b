"""`RowsEnv`: base of environments that step many rows of one agent each in tensors."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from tensordict import TensorDict, TensorDictBase
from torch import Tensor
from torchrl.data import Bounded, Categorical, Composite, TensorSpec, Unbounded

from torchrl_elegant.envs.wrap import SettledEnv


class RowsEnv(SettledEnv):
    """Rows with a reward, a step count and flags each, `[num_envs, 1]`.

    A subclass calls `_write_specs` in its construction. Its `_reset` and `_step` keep the counts by
    `_restart_counts` and `_count`, and return `_outcome`. Nothing here writes in place: what is
    handed out stays as it was.
    """

    def __init__(self, *, num_envs: int, device: torch.device | str) -> None:
        if num_envs < 1:
            raise ValueError(f"`num_envs` must be at least 1, got `{num_envs}`")
        super().__init__(device=present_device(device), batch_size=[num_envs])
        self.num_envs = num_envs
        self._step_count = torch.zeros(num_envs, 1, dtype=torch.int64, device=self.device)
        self._episode_reward = torch.zeros(num_envs, 1, device=self.device)

    def _write_specs(self, observation: Mapping[str, TensorSpec], action: TensorSpec) -> None:
        """Writes the specs, from those of an observation's entries and of the action."""
        rows, most = self.num_envs, torch.iinfo(torch.int64).max
        counts: dict[str, TensorSpec] = {
            "step_count": Bounded(0, most, (rows, 1), dtype=torch.int64),
            "episode_reward": Unbounded((rows, 1)),
        }
        self.observation_spec = self._composite({**observation, **counts})
        self.action_spec = self._composite({"action": action})
        self.reward_spec = self._composite({"reward": Unbounded((rows, 1))})
        flags = ("done", "terminated", "truncated")
        self.done_spec = self._composite(
            {flag: Categorical(2, (rows, 1), dtype=torch.bool) for flag in flags}
        )

    def _composite(self, specs: Mapping[str, TensorSpec]) -> Composite:
        return Composite(dict(specs), shape=(self.num_envs,)).to(self.device)

    def _rows_to_reset(self, tensordict: TensorDictBase | None) -> Tensor:
        """Mask of the rows that a reset is for, `[num_envs, 1]`."""
        mask = None if tensordict is None else tensordict.get("_reset", None)
        return torch.ones_like(self._step_count, dtype=torch.bool) if mask is None else mask

    def _restart_counts(self, mask: Tensor) -> None:
        self._step_count = self._step_count.masked_fill(mask, 0)
        self._episode_reward = self._episode_reward.masked_fill(mask, 0.0)

    def _count(self, reward: Tensor) -> None:
        self._step_count = self._step_count + 1
        self._episode_reward = self._episode_reward + reward

    def _outcome(
        self, seen: Mapping[str, Tensor], terminated: Tensor, truncated: Tensor
    ) -> TensorDict:
        values = {
            **seen,
            "step_count": self._step_count,
            "episode_reward": self._episode_reward,
            "done": terminated | truncated,
            "terminated": terminated,
            "truncated": truncated,
        }
        return TensorDict(values, self.batch_size, device=self.device)


def present_device(device: torch.device | str) -> torch.device:
    """The device, if it is there.

    >>> present_device("cpu")
    device(type='cpu')
    """
    wanted = torch.device(device)
    if wanted.type == "cuda":
        count = torch.cuda.device_count()
        if (wanted.index or 0) >= count:
            raise ValueError(
                f"`device` must be one that is there, got `{device}`; PyTorch sees {count} CUDA "
                "devices here: take 'cpu', or install a CUDA build of torch"
            )
    return wanted
