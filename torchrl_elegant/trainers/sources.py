"""Where frames come from: the two modes of collection behind one face.

Iterating over a source yields, again and again, how many updates the learner owes for the frames
that have arrived in the replay buffer; it ends when all frames are collected and all updates made.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Protocol

from tensordict import NestedKey, TensorDictBase
from torchrl.data import ReplayBuffer

from torchrl_elegant.collectors import AsyncCollector, SyncCollector
from torchrl_elegant.trainers.collecting import Collecting
from torchrl_elegant.trainers.learner import Learner

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
