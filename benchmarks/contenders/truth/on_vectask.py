"""Scripted task with the interface of IsaacGymEnvs' VecTask, in each style of its resets."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from contenders.truth.schedule import LIMIT, ROWS, Truth, played, scripted_truth
from torchrl_elegant.collectors import SyncCollector
from torchrl_elegant.envs import LocalTask, VecTaskEnv
from torchrl_elegant.envs.batched.vectask_server import (
    MANUAL,
    POST_PHYSICS,
    PRE_PHYSICS,
    SAME_STEP,
    STYLES,
)


class ScriptedVecTask:
    """The scripted task; all buffers are live, as in a VecTask."""

    num_envs, num_obs, num_acts = ROWS, 2, 1
    max_episode_length = LIMIT + 1  # VecTask's rule: an end from one step before it on
    device = rl_device = "cpu"

    def __init__(self, resets: str) -> None:
        self.resets = resets
        self.obs_buf, self.rew_buf = torch.zeros(ROWS, 2), torch.zeros(ROWS)
        self.reset_buf = torch.ones(ROWS, dtype=torch.long)
        self.progress_buf = torch.zeros(ROWS, dtype=torch.long)
        self.extras: dict[str, Tensor] = {}

    def step(self, actions: Tensor) -> Any:
        """Counts, falls if told to, and resets as its style has it."""
        fell = actions[:, 0] > 0.5
        if self.resets == PRE_PHYSICS:
            self._reset_marked()
        self.progress_buf += 1
        if self.resets == POST_PHYSICS:
            fell = fell & (self.reset_buf == 0)
            self._reset_marked()
        self.obs_buf[:, 1] = self.progress_buf
        self.rew_buf.copy_(1 + self.progress_buf + 10.0 * fell)
        timed_out = self.progress_buf >= self.max_episode_length - 1
        self.reset_buf.copy_(fell | timed_out)
        self.extras["terminate"] = fell.to(torch.long)
        if self.resets == SAME_STEP:
            self._reset_marked()
        ends = self.progress_buf >= self.max_episode_length - 1
        self.extras["time_outs"] = ends & (self.reset_buf != 0)
        return {"obs": self.obs_buf}, self.rew_buf, self.reset_buf, self.extras

    def reset(self) -> Any:
        """Returns what is seen."""
        return {"obs": self.obs_buf}

    def reset_done(self) -> Any:
        """Resets the rows that are done."""
        rows = self.reset_buf.nonzero().flatten()
        self._reset_marked()
        return {"obs": self.obs_buf}, rows

    def reset_idx(self, rows: Tensor) -> None:
        """Begins episodes in some rows."""
        self.obs_buf[rows, 0] = torch.rand(len(rows))
        self.obs_buf[rows, 1] = 0.0
        self.progress_buf[rows] = 0
        self.reset_buf[rows] = int(self.resets == SAME_STEP)

    def _reset_marked(self) -> None:
        self.reset_idx(self.reset_buf.nonzero().flatten())


def told_truth(seen: Tensor, action: Tensor) -> Truth:
    """Truth as VecTask's interface can tell it: an end at the limit is a time-out, falls too."""
    true = scripted_truth(seen, action)
    return true._replace(terminated=true.terminated & ~true.truncated)


def manual_truth(seen: Tensor, action: Tensor) -> Truth:
    """Truth in the style ``manual``: a fall is told as such, any other end is a time-out."""
    true = scripted_truth(seen, action)
    return true._replace(truncated=true.truncated & ~true.terminated)


def vectask_rows() -> dict[str, Any]:
    """Ours in each style; TorchRL's wrapper asks for more than the interface has."""

    def ours(style: str) -> dict[str, Any]:
        env = VecTaskEnv(LocalTask(ScriptedVecTask(style), resets=style))
        truth = manual_truth if style == MANUAL else told_truth
        return played(env, collector=SyncCollector, truth=truth)

    return {f"ours, {style}": ours(style) for style in STYLES}
