"""Counts along episodes, made for a whole rollout at once: steps, returns, trajectory ids."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

import numpy as np
import torch
from tensordict import NestedKey
from torch import Tensor

from torchrl_elegant.collectors.rollout.layout import Layout

TRAJ_IDS = ("collector", "traj_ids")

#: The state between rollouts: one array [n, ...] per key of the root.
Present = Mapping[NestedKey, np.ndarray]


class EpisodeCounts:
    """Step counts, returns, first steps and trajectory ids of the simulators of one rollout.

    The values equal those of counting step by step, bit for bit: returns are summed in single
    precision and in order.

    Args:
        rewards: `[frames, n]`, filled by the rollout.
        present: the state between rollouts.
        counters: those of `step_count`, `episode_reward` and `is_init` that a batch has.
        max_steps: steps after which episodes are truncated; None for never.
        draw_ids: draws so many new trajectory ids; None if they are not tracked.

    >>> present = {"step_count": np.array([[3], [0]]), TRAJ_IDS: np.array([0, 1])}
    >>> counts = EpisodeCounts(
    ...     rewards=np.ones((3, 2), np.float32),
    ...     present=present,
    ...     counters=frozenset({"step_count"}),
    ...     draw_ids=lambda n: list(range(2, 2 + n)),
    ... )
    >>> counts.begin()
    >>> counts.end(0, 0)
    >>> counts.finish(3)
    >>> entries = counts.entries(Layout(batch_dims=1))
    >>> entries["next", "step_count"].squeeze(-1).tolist()
    [[4, 1, 2], [1, 2, 3]]
    >>> entries["collector", "traj_ids"].tolist()
    [[0, 2, 2], [1, 1, 1]]
    """

    def __init__(
        self,
        *,
        rewards: np.ndarray,
        present: Present,
        counters: frozenset[str],
        max_steps: int | None = None,
        draw_ids: Callable[[int], list[int]] | None,
    ) -> None:
        self._rewards, self._present = rewards, present
        self._counters, self._max_steps = counters, max_steps
        self._draw_ids, self._new_ids = draw_ids, list[int]()
        frames, count = rewards.shape
        self._numbers = np.arange(1, frames + 1)
        # Row 0 is the start of the rollout, row t + 1 the outcome of step t before any reset.
        self._steps = np.zeros((frames + 1, count), np.int64)
        self._returns = np.zeros((frames + 1, count), np.float32)
        self._init = np.zeros((frames + 1, count), np.bool_)
        self._ids = np.zeros((frames + 1, count), np.int64)
        #: Step and row of each end of an episode, in the order of time.
        self.ends: list[tuple[int, int]] = []
        #: The first step at which an episode is to be cut.
        self.next_cut: float = math.inf

    def begin(self) -> None:
        """Starts a rollout at the present state."""
        self.ends, self._new_ids = [], []
        if "step_count" in self._counters:
            self._steps[0] = self._present["step_count"][:, 0]
        if "episode_reward" in self._counters:
            self._returns[0] = self._present["episode_reward"][:, 0]
        if "is_init" in self._counters:
            self._init[:] = False
            self._init[0] = self._present["is_init"][:, 0]
        if self._draw_ids is not None:
            self._ids[0] = self._present[TRAJ_IDS]
        if self._max_steps is not None:
            self._cuts = (self._max_steps - 1 - self._steps[0]).tolist()
            self.next_cut = min(self._cuts)

    def cuts(self, t: int) -> list[int]:
        """Rows whose episode reaches its limit with step `t`."""
        return [row for row, cut in enumerate(self._cuts) if cut <= t]

    def end(self, t: int, row: int) -> None:
        """Notes that an episode ended with step `t`."""
        self.ends.append((t, row))
        if self._max_steps is not None:
            self._cuts[row] = t + self._max_steps
            self.next_cut = min(self._cuts)

    def show(self, t: int) -> None:
        """Moves the present state from before step `t - 1` to before step `t`."""
        ended = [row for time, row in self.ends[-self._rewards.shape[1] :] if time == t - 1]
        if "step_count" in self._counters:
            self._present["step_count"] += 1
            self._present["step_count"][ended] = 0
        if "episode_reward" in self._counters:
            self._present["episode_reward"][:, 0] += self._rewards[t - 1]
            self._present["episode_reward"][ended] = 0
        if "is_init" in self._counters:
            self._present["is_init"][:] = False
            self._present["is_init"][ended] = True
        if self._draw_ids is not None and ended:
            self._present[TRAJ_IDS][ended] = self._drawn()[-len(ended) :]

    def _drawn(self) -> list[int]:
        if self._draw_ids is not None and len(self._new_ids) < len(self.ends):
            self._new_ids += self._draw_ids(len(self.ends) - len(self._new_ids))
        return self._new_ids

    def finish(self, steps: int) -> None:
        """Counts `steps` steps, and moves the present state to their end."""
        new_ids, frames = self._drawn(), len(self._rewards)
        np.add(self._numbers[:, None], self._steps[0], out=self._steps[1:])
        np.add.accumulate(np.vstack((self._returns[:1], self._rewards)), out=self._returns)
        self._ids[1:] = self._ids[0]
        # The last episode first, so that each is written up to the start of the next.
        begins = [frames + 1] * self._rewards.shape[1]
        for k in range(len(self.ends) - 1, -1, -1):
            t, row = self.ends[k]
            begin, stop, begins[row] = t + 1, begins[row], t + 1
            rewards = self._rewards[begin:stop, row]
            self._steps[begin + 1 : stop + 1, row] = self._numbers[: len(rewards)]
            self._returns[begin + 1 : stop + 1, row] = np.add.accumulate(rewards)
            self._init[begin, row] = True
            if new_ids:
                self._ids[begin:stop, row] = new_ids[k]
        self._leave(steps)

    def _leave(self, steps: int) -> None:
        ended = [row for t, row in self.ends if t == steps - 1]
        for key, rows in self._counted().items():
            self._present[key][:, 0] = rows[steps]
            self._present[key][ended] = 0
        if "is_init" in self._counters:
            self._present["is_init"][:, 0] = self._init[steps]
        if self._draw_ids is not None:
            self._present[TRAJ_IDS][:] = self._ids[steps]

    def _counted(self) -> dict[str, np.ndarray]:
        both = {"step_count": self._steps, "episode_reward": self._returns}
        return {key: rows for key, rows in both.items() if key in self._counters}

    def entries(self, layout: Layout) -> dict[tuple[str, ...], Tensor]:
        """Counted entries of the batch; call this once a rollout."""
        out: dict[tuple[str, ...], Tensor] = {}
        after = [t + 1 for t, _ in self.ends]
        rows = [row for _, row in self.ends]
        for key, counted in self._counted().items():
            out["next", key] = layout.column(counted[1:])
            counted[after, rows] = 0
            out[(key,)] = layout.column(counted[:-1])
        if "is_init" in self._counters:
            out[("is_init",)] = layout.column(self._init[:-1])
            out["next", "is_init"] = torch.zeros_like(out[("is_init",)])
        if self._draw_ids is not None:
            out[TRAJ_IDS] = layout.flat(self._ids[:-1])
        return out
