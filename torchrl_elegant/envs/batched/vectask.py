"""`VecTaskEnv`: simulators with the interface of IsaacGymEnvs' VecTask, true to the last frame."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np
import torch
from tensordict import TensorDict, TensorDictBase
from torch import Tensor
from torchrl.data import Bounded, Categorical, Unbounded

from torchrl_elegant.envs.batched.rows import RowsEnv
from torchrl_elegant.envs.batched.vectask_server import (
    MANUAL,
    SAME_STEP,
    Signals,
    TaskDriver,
)
from torchrl_elegant.functional import JUNK

# Names of VecTask and of this package.
_NAMES = {"observation": "obs", "state": "states"}


class TaskSource(Protocol):
    """VecTask as the environment calls it; every tensor that it returns is the caller's own."""

    resets: str
    sizes: dict[str, int]
    device: torch.device

    def begin(self) -> Signals:
        """Starts all rows anew; a row that is done is not started yet."""

    def step(self, actions: Tensor, marks: Tensor) -> Signals:
        """Steps all rows; those in `marks`, flags `[n]`, are reset by the way."""

    def reset_done(self, rows: Tensor) -> dict[str, Tensor]:
        """Resets exactly `rows` of a task of the style `manual`; returns what all rows show."""

    def close(self) -> None:
        """Ends what was started for the task."""


class LocalTask:
    """VecTask in this process; its live buffers are copied.

    Args:
        task: anything with the interface of IsaacGymEnvs' VecTask.
        resets: style of the task (`VecTaskEnv`).
    """

    def __init__(self, task: Any, *, resets: str) -> None:
        self._driver, self.resets = TaskDriver(task, resets), resets
        self.sizes, self.device = self._driver.sizes, torch.device(task.rl_device)

    def begin(self) -> Signals:
        """See `TaskSource`."""
        return self._own(self._driver.begin())

    def step(self, actions: Tensor, marks: Tensor) -> Signals:
        """See `TaskSource`."""
        return self._own(self._driver.step(actions, marks))

    def reset_done(self, rows: Tensor) -> dict[str, Tensor]:
        """See `TaskSource`."""
        return self._own_seen(self._driver.reset_done(rows))

    def close(self) -> None:
        """Do nothing: the task belongs to the caller."""

    def _own(self, found: Signals) -> Signals:
        reward, done, time_out = (
            value.to(dtype, copy=True)
            for value, dtype in zip(found[1:], (torch.float32, torch.bool, torch.bool), strict=True)
        )
        return Signals(self._own_seen(found.seen), reward, done, time_out)

    def _own_seen(self, seen: dict[str, Tensor]) -> dict[str, Tensor]:
        names = ["observation", *(["state"] if self.sizes["num_states"] else [])]
        return {name: seen[_NAMES[name]].to(torch.float32, copy=True) for name in names}


class VecTaskEnv(RowsEnv):
    """Rows of a VecTask, with true final observations where the task shows them.

    A VecTask resets rows by itself, in one of four styles:

    - `"post_physics"`, `"pre_physics"`: in the next step, after or before its physics. The
      observation at an end is the true last one. The transition that follows is flagged as `junk`.
    - `"same_step"`: in the step of the end. The task shows the first observation of the next
      episode in the place of the last one, which is lost. The transition then leads to the
      observation before it: a time limit bootstraps from V(s_t), as in rsl_rl, and never from
      another episode. The task has forgotten its time-outs by then. They are counted here, by its
      own rule: an end is one from `max_episode_length - 1` steps on.
    - `"manual"`: when `reset_done()` is called. Nothing is lost and nothing is junk. An end is a
      time limit unless `extras["terminate"]` is set, where the task has it.

    `terminated` is an end without a time-out, `truncated` one with it. A row that is reset in the
    middle of an episode is marked for a reset in its next step, which is junk.

    The entry `observation` holds the task's `obs`. `state` holds its `states`, for a critic that
    sees more: set `actor_keys=observation`. Actions lie in [-1, 1]; what lies outside is replaced
    by the nearest within. Nothing here waits for the device. The task draws its random numbers
    itself: a seed is for the callable that makes it.

    Args:
        source: `LocalTask` of a task in this process, or `BridgedTask`.

    >>> from types import SimpleNamespace
    >>> task = SimpleNamespace(num_envs=2, num_obs=3, num_acts=1, device="cpu", rl_device="cpu")
    >>> task.reset_buf = torch.ones(2, dtype=torch.long)
    >>> zeros, more = torch.zeros(2), {"time_outs": torch.zeros(2)}
    >>> task.step = lambda actions: ({"obs": torch.ones(2, 3)}, zeros, zeros, more)
    >>> VecTaskEnv(LocalTask(task, resets="post_physics")).rollout(4).shape
    torch.Size([2, 4])
    """

    #: Resets exactly the rows of a mask, without looking at it on the host.
    resets_by_mask = True

    def __init__(self, source: TaskSource) -> None:
        self._sizes = source.sizes
        rows = self._sizes["num_envs"]
        super().__init__(num_envs=rows, device=source.device)
        self._source, self.resets = source, source.resets
        self.action_low = np.full(self._sizes["num_acts"], -1.0, np.float32)
        self.action_high = -self.action_low
        self._limit = self._sizes["max_episode_length"] - 1
        self._make_specs()
        never = torch.zeros(rows, 1, dtype=torch.bool, device=self.device)
        self._never = never
        #: Rows whose last transition ended, rows whose next one is junk, rows to be reset by it.
        self._over, self._junk, self._marks = never, never, never
        self._task_steps = self._step_count  # those that the task counts, in the style `same_step`
        self._seen: dict[str, Tensor] = {}

    def _make_specs(self) -> None:
        rows, sizes = self.num_envs, self._sizes
        seen: dict[str, Any] = {"observation": Unbounded((rows, sizes["num_obs"]))}
        if sizes["num_states"]:
            seen["state"] = Unbounded((rows, sizes["num_states"]))
        seen[JUNK] = Categorical(2, (rows, 1), dtype=torch.bool)
        action: Any = Bounded(-1.0, 1.0, (rows, sizes["num_acts"]), dtype=torch.float32)
        self._write_specs(seen, action)

    def _set_seed(self, seed: int | None) -> None:
        """Does nothing: the task was seeded when it was made."""

    # Nothing below writes in place: what is handed out stays as it was.

    def _reset(self, tensordict: TensorDictBase | None = None, **kwargs: Any) -> TensorDict:
        mask = None if tensordict is None else tensordict.get("_reset", None)
        if mask is None:
            self._begin()
        else:
            self._restart(mask.view(-1, 1))
        never = self._never
        out = self._outcome(self._seen, never.clone(), never.clone())
        return out.set(JUNK, self._junk.clone())

    def _begin(self) -> None:
        found = self._source.begin()
        done = found.done.unsqueeze(-1)
        self._seen, self._over, self._marks = found.seen, self._never, self._never
        self._junk = self._never if self.resets in (SAME_STEP, MANUAL) else done
        self._step_count = torch.zeros_like(self._step_count)
        self._task_steps = (~done).to(torch.int64)  # it was stepped once
        self._episode_reward = torch.zeros_like(self._episode_reward)

    def _restart(self, mask: Tensor) -> None:
        if self.resets == MANUAL:
            self._seen = self._source.reset_done(mask.squeeze(-1))
        else:
            self._marks = self._marks | (mask & ~self._over & (self._step_count > 0))
            self._junk = self._junk | self._marks
        self._restart_counts(mask)

    def _step(self, tensordict: TensorDictBase) -> TensorDict:
        action = tensordict.get("action").detach().clamp(-1.0, 1.0)
        junk, before = self._junk, self._seen
        found = self._source.step(action, self._marks.squeeze(-1))
        done, time_out = found.done.unsqueeze(-1), found.time_out.unsqueeze(-1)
        shown, self._seen, self._marks = found.seen, found.seen, self._never
        if self.resets == SAME_STEP:
            steps = self._task_steps + 1
            time_out = steps >= self._limit
            self._task_steps = steps.masked_fill(done, 0)
            shown = {key: torch.where(done, before[key], now) for key, now in shown.items()}
        self._junk = self._never if self.resets in (SAME_STEP, MANUAL) else done
        self._over = done | junk
        reward = found.reward.unsqueeze(-1).masked_fill(junk, 0.0)
        self._step_count = (self._step_count + 1).masked_fill(junk, 0)
        self._episode_reward = (self._episode_reward + reward).masked_fill(junk, 0.0)
        out = self._outcome(shown, done & ~time_out & ~junk, (done & time_out) | junk)
        return out.set(JUNK, torch.zeros_like(junk)).set("reward", reward)

    def close(self, *, raise_if_closed: bool = True) -> None:
        """Closes the environment, and what was started for its task."""
        super().close(raise_if_closed=raise_if_closed)
        self._source.close()
