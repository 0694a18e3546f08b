"""Sources of frames: collectors behind one face."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from copy import deepcopy
from typing import Protocol

import torch
from tensordict import NestedKey, TensorDictBase
from torch import nn
from torchrl.collectors import BaseCollector
from torchrl.data import ReplayBuffer

from torchrl_elegant.collectors import AsyncCollector, ParallelCollector, SyncCollector
from torchrl_elegant.trainers.learner import Learner


def behaviour_copy(policy: nn.Module, device: torch.device) -> nn.Module:
    """The module that acts: the learner's own where it lives on ``device``, else a copy there."""
    here = next(policy.parameters()).device
    return policy if here == device else deepcopy(policy).to(device)


def copy_weights(source: nn.Module, target: nn.Module) -> None:
    """Copy parameters and buffers across devices."""
    with torch.no_grad():
        # Blocking: a copy still under way from a GPU would be read half done.
        newest, stored = source.state_dict().values(), target.state_dict().values()
        for new, old in zip(newest, stored, strict=True):
            old.copy_(new)


class Collecting:
    """Counts frames and episodes of ``collector``, whose policy follows the learner's."""

    activity = "collect"

    def __init__(
        self,
        collector: BaseCollector,
        learner: Learner,
        *,
        total_frames: int,
        frames: int,
        ranks: int,
    ) -> None:
        self.frames = frames
        self._collector, self._learner = collector, learner
        self._total, self._ranks = total_frames, ranks
        self._episodes: list[tuple[float, int]] = []
        # Before the first frame: how much a policy explores can depend on the progress.
        self._learner.at(self.frames / self._total)

    def push(self, updates: int) -> None:
        if updates and self._collector.policy is not self._learner.policy:
            copy_weights(self._learner.policy, self._collector.policy)

    def episodes(self) -> list[tuple[float, int]]:
        ended, self._episodes = self._episodes, []
        return ended

    def pause(self) -> AbstractContextManager:
        return nullcontext()

    def shutdown(self) -> None:
        self._collector.shutdown()

    def _count(self, batch: TensorDictBase) -> None:
        """Enter a batch of this rank, and of all others as large a one, as collected."""
        done = batch.get(("next", "done")).squeeze(-1)
        if done.any():
            after = batch.get("next")
            returns, lengths = (after.get(key)[done] for key in ("episode_reward", "step_count"))
            self._episodes += zip(
                returns.flatten().tolist(), lengths.flatten().tolist(), strict=True
            )
        self.frames += batch.numel() * self._ranks
        self._learner.at(self.frames / self._total)


# Updates made between two looks at the collector; bounds how long a stop has to wait.
_CHUNK = 64


class Source(Protocol):
    """What a training loop needs of a collector and its buffer."""

    activity: str  # What the run's clock is told that the iterator does.

    @property
    def frames(self) -> int: ...

    def __iter__(self) -> Iterator[int]: ...

    def push(self, updates: int) -> None:
        """Enter ``updates`` as made, and hand the policy's weights on where that is due."""

    def debt(self) -> float:
        """Updates still owed for the frames so far; a source may go below zero for frames that
        ask for none yet."""

    def episodes(self) -> list[tuple[float, int]]:
        """Return and length of every training episode that ended since the last call."""

    def pause(self) -> AbstractContextManager:
        """Hold the buffer still."""

    def shutdown(self) -> None: ...


class SyncSource(Collecting):
    """Collect in this process, then learn.

    Args:
        collector: yields batches; its own ``total_frames`` must not end before this source's.
        buffer: receives the rows.
        learner: learns from them; shown each new batch.
        keys: entries that the buffer keeps.
        total_frames: where collection ends, over all ``ranks``.
        updates_per_frame: updates owed per frame beyond ``free_frames``.
        free_frames: frames that ask for no update; fractions and negative numbers come from runs
            that were resumed.
        frames: frames collected before this run was resumed.
        ranks: processes that collect as many frames as this one at the same time.
        fold: turns batches ``[*envs, time]`` into the rows that are stored; by default these are
            their rows.
    """

    def __init__(
        self,
        collector: SyncCollector,
        buffer: ReplayBuffer,
        learner: Learner,
        *,
        keys: Sequence[NestedKey],
        total_frames: int,
        updates_per_frame: float,
        free_frames: float,
        frames: int = 0,
        ranks: int = 1,
        fold: Callable[[TensorDictBase], TensorDictBase] | None = None,
    ) -> None:
        super().__init__(collector, learner, total_frames=total_frames, frames=frames, ranks=ranks)
        self._buffer, self._keys, self._fold = buffer, list(keys), fold
        self._updates_per_frame, self._free_frames = updates_per_frame, free_frames

    def __iter__(self) -> Iterator[int]:
        for batch in self._collector:
            # Of the last batch no more than the total leaves to each rank.
            left = -(-(self._total - self.frames) // self._ranks)
            self._store(batch, left)
            if self._learner.observes:
                self._learner.observe(self._steps(batch, left))
            self._count(batch if batch.numel() <= left else batch.reshape(-1)[:left])
            # 0.1 * 30 and its like fall short of the whole number by one rounding error.
            due = max(0, math.floor(self.debt() + 1e-6)) if len(self._buffer) else 0
            while due > _CHUNK:
                yield _CHUNK
                due -= _CHUNK
            yield due
            if self.frames >= self._total:
                return

    def _store(self, batch: TensorDictBase, most: int) -> None:
        if self._fold is None:
            rows = batch.select(*self._keys).reshape(-1)[:most]
        else:
            rows = self._fold(self._steps(batch, most).select(*self._keys))
        if len(rows):
            self._buffer.extend(rows)

    @staticmethod
    def _steps(batch: TensorDictBase, most: int) -> TensorDictBase:
        """The first steps of all environments, as many as ``most`` frames allow."""
        if batch.numel() <= most:
            return batch
        return batch[..., : most * batch.shape[-1] // batch.numel()]

    def debt(self) -> float:
        owed = self._updates_per_frame * (self.frames - self._free_frames)
        return owed - self._learner.updates


class AsyncSource:
    """Learn while worker processes collect.

    Args:
        collector: not yet started; fills a buffer of its own.
        learner: shown the newest rows before each round of updates.
        push_interval: updates between two pushes of the policy's weights.
    """

    activity = "wait"  # Others collect.

    def __init__(
        self,
        collector: AsyncCollector,
        learner: Learner,
        *,
        push_interval: int,
    ) -> None:
        self._collector, self._learner = collector, learner
        self._interval, self._since_push = push_interval, 0

    @property
    def frames(self) -> int:
        """Rows that have arrived in the buffer."""
        return self._collector.frames

    def __iter__(self) -> Iterator[int]:
        collector = self._collector
        collector.start()
        while True:
            collector.check()
            arrived = collector.frames
            due = collector.updates_due()
            self._learner.at(arrived / collector.total_frames)
            if due == 0 and arrived >= collector.total_frames:
                return
            if due == 0:
                collector.wait_for(arrived + 1, timeout=0.5)
                yield 0
                continue
            self._observe()
            yield min(due, _CHUNK, self._interval - self._since_push)

    def push(self, updates: int) -> None:
        if updates:
            self._collector.note_updates(updates)
        self._since_push += updates
        if self._since_push >= self._interval:
            self._since_push = 0
            self._collector.update_policy_weights_(self._learner.policy)

    def debt(self) -> float:
        """Never below zero: frames that ask for no update are the collector's business."""
        return self._collector.updates_due()

    def episodes(self) -> list[tuple[float, int]]:
        return self._collector.episodes()

    @contextmanager
    def pause(self) -> Iterator[None]:
        with self._collector.pause():
            # What is stored of the learner has seen all rows that are stored.
            self._observe()
            yield

    def shutdown(self) -> None:
        self._collector.shutdown()

    def _observe(self) -> None:
        if self._learner.observes:
            for worker, batch in self._collector.arrivals():
                self._learner.observe(batch, stream=worker)


class RolloutSource(Collecting):
    """Yields rollouts ``[*envs, T]``, on the learner's device, until all frames are collected.

    Args:
        collector: yields rollouts of one size; its own ``total_frames`` must not end before this
            source's.
        learner: learns from them.
        total_frames: where collection ends, over all ``ranks``. The last rollout is cut after the
            step of all environments that reaches it.
        frames: frames collected before this run was resumed.
        ranks: processes that collect as many frames as this one at the same time.
    """

    def __init__(
        self,
        collector: BaseCollector,
        learner: Learner,
        *,
        total_frames: int,
        frames: int = 0,
        ranks: int = 1,
    ) -> None:
        super().__init__(collector, learner, total_frames=total_frames, frames=frames, ranks=ranks)
        self._device = next(learner.policy.parameters()).device

    def __iter__(self) -> Iterator[TensorDictBase]:
        for collected in self._collector:
            rollout = self._cut(collected)
            self._count(rollout)
            yield rollout.to(self._device)
            if self.frames >= self._total:
                return

    def debt(self) -> float:
        """Nothing is owed: a rollout is learnt from before the next is collected."""
        return 0.0

    def _cut(self, rollout: TensorDictBase) -> TensorDictBase:
        steps = rollout.shape[-1]
        per_step = rollout.numel() // steps * self._ranks
        return rollout[..., : min(steps, -(-(self._total - self.frames) // per_step))]


class WorkerRollouts(RolloutSource):
    """Rollouts from worker processes, which take up new weights by themselves."""

    def __init__(self, collector: ParallelCollector, learner: Learner, **counts: int) -> None:
        super().__init__(collector, learner, **counts)
        # Of workers that are ahead only the rest of their round is waited for.
        self.activity = "wait" if collector.is_ahead else "collect"

    def push(self, updates: int) -> None:
        if updates:
            self._collector.update_policy_weights_(self._learner.policy)
