"""Sources of frames: one interface over all collectors.

Iterating over an off-policy source yields, again and again, how many updates the learner owes for
the frames that have arrived in the replay buffer; it ends when all frames are collected and all
updates are made. Iterating over a source of rollouts yields the rollouts. Either goes on where it
was left.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from copy import deepcopy
from typing import Protocol, TypeAlias

import torch
from tensordict import NestedKey, TensorDictBase
from torch import nn
from torchrl.collectors import BaseCollector
from torchrl.data import ReplayBuffer

from torchrl_elegant.collectors import AsyncCollector, ParallelCollector, SyncCollector
from torchrl_elegant.data import MultiStepFold, SequenceFold, without_junk
from torchrl_elegant.trainers.episode_returns import Episode, EpisodeReturns
from torchrl_elegant.trainers.learner import Learner

# Updates made between two looks at the collector; bounds how long a stop has to wait.
_CHUNK = 64


#: Turns batches ``[*envs, time]`` into rows to store.
Fold: TypeAlias = MultiStepFold | SequenceFold


class Source(Protocol):
    """Collector, and where its rows go, as a training loop and its watcher see them."""

    activity: str  # named to the run's clock while the iterator works

    def push(self, updates: int) -> None:
        """Enter ``updates`` as made, and hand the policy's weights on where that is due."""

    def send_weights(self) -> None:
        """Hand the policy's weights on at once."""

    def train_return(self) -> float | None:
        """Mean return of the training episodes that ended since the last call; None without."""

    def episodes(self) -> list[Episode]:
        """Training episodes that ended since the last call, where they are logged one by one."""

    def pause(self) -> AbstractContextManager:
        """Hold the buffer still."""

    def restart(self) -> None:
        """Start all episodes anew, because the environment has been used for something else."""

    def shutdown(self) -> None:
        """Close the collector and its environments."""


def acting_copy(policy: nn.Module, device: torch.device | None) -> nn.Module:
    """Give the policy that acts: the learner's own where it lives on ``device``, else a copy.

    An environment that names no device is on the CPU.
    """
    here, device = next(policy.parameters()).device, device or torch.device("cpu")
    return policy if here == device else deepcopy(policy).to(device)


def copy_weights(source: nn.Module, target: nn.Module) -> None:
    """Copy parameters and buffers across devices."""
    with torch.no_grad():
        # Blocking: a copy still under way from a GPU would be read half done.
        newest, stored = source.state_dict().values(), target.state_dict().values()
        for new, old in zip(newest, stored, strict=True):
            old.copy_(new)


class _CollectedHere:
    """Common part of sources whose batches come to this process in the loop's own time.

    Args:
        collector: yields batches; its own ``total_frames`` must not end before the ledger's.
        learner: learns from them; its policy is handed on.
        ranks: processes that collect as many frames as this one at the same time.
        returns: takes in every batch.
    """

    activity = "collect"

    def __init__(
        self,
        collector: BaseCollector,
        learner: Learner,
        *,
        ranks: int = 1,
        returns: EpisodeReturns | None = None,
    ) -> None:
        self._collector, self._learner, self._ledger = collector, learner, learner.ledger
        self._ranks, self._returns = ranks, returns or EpisodeReturns()
        self._batches: Iterator[TensorDictBase] | None = None
        # Before the first frame: how much a policy explores can depend on the progress.
        learner.at(self._ledger.progress)

    def push(self, updates: int) -> None:
        if updates:
            self.send_weights()

    def send_weights(self) -> None:
        if self._collector.policy is not self._learner.policy:
            copy_weights(self._learner.policy, self._collector.policy)

    def train_return(self) -> float | None:
        return self._returns.take()

    def episodes(self) -> list[Episode]:
        return self._returns.take_each()

    def pause(self) -> AbstractContextManager:
        return nullcontext()

    def restart(self) -> None:
        self._collector.reset()
        self._returns.restart()
        for add_on in self._learner.add_ons.values():
            add_on.restart()

    def shutdown(self) -> None:
        self._collector.shutdown()

    def _next(self) -> TensorDictBase:
        if self._batches is None:
            self._batches = iter(self._collector)
        return next(self._batches)

    def _count(self, batch: TensorDictBase, frames: int) -> None:
        """Enter ``frames`` of this rank, and of all others as many, as collected."""
        self._returns.add(batch, frames=self._ledger.frames, ranks=self._ranks)
        self._ledger.frames += frames * self._ranks
        self._learner.at(self._ledger.progress)


class SyncSource(_CollectedHere):
    """Source that collects in this process, then lets the learner learn.

    Args:
        collector, learner, ranks, returns: see above.
        buffer: receives the rows.
        keys: entries that the buffer keeps.
        fold: turns batches ``[*envs, time]`` into the rows that are stored; None stores their rows.
    """

    def __init__(
        self,
        collector: SyncCollector,
        buffer: ReplayBuffer,
        learner: Learner,
        *,
        keys: Sequence[NestedKey],
        ranks: int = 1,
        returns: EpisodeReturns | None = None,
        fold: Fold | None = None,
    ) -> None:
        super().__init__(collector, learner, ranks=ranks, returns=returns)
        self._buffer, self._keys, self._fold = buffer, list(keys), fold

    def __iter__(self) -> Iterator[int]:
        if self._due:  # left by an earlier loop
            yield from self._parts()
        while not self._ledger.is_full:
            self._collect()
            yield from self._parts()

    def restart(self) -> None:
        super().restart()
        if self._fold is not None:
            self._fold.restart()

    @property
    def _due(self) -> int:
        return self._ledger.due if len(self._buffer) else 0

    def _parts(self) -> Iterator[int]:
        """The updates that are due, in parts between which the loop may be left."""
        due = self._due
        while due > _CHUNK:
            yield _CHUNK
            due -= _CHUNK
        yield due

    def _collect(self) -> None:
        batch, ledger = self._next(), self._ledger
        # Of the last batch no more than the total leaves to each rank.
        left = min(batch.numel(), -(-(ledger.total_frames - ledger.frames) // self._ranks))
        steps = batch[..., : left * batch.shape[-1] // batch.numel()]
        self._store(batch, steps, left)
        if self._learner.observes:
            self._learner.observe(steps)
        self._count(steps, left)

    def _store(self, batch: TensorDictBase, steps: TensorDictBase, left: int) -> None:
        if self._fold is None:
            rows = batch.select(*self._keys).reshape(-1)[:left]
        else:
            rows = self._fold(steps.select(*self._keys))
        rows = without_junk(rows)
        if len(rows):
            self._buffer.extend(rows)


class AsyncSource:
    """Source that lets the learner learn while worker processes collect.

    Args:
        collector: not yet started; fills a buffer of its own.
        learner: shown the newest rows before each round of updates.
        push_interval: updates between two pushes of the policy's weights.
        each: keep each episode for ``episodes``.
    """

    activity = "wait"  # for others, who collect

    def __init__(
        self,
        collector: AsyncCollector,
        learner: Learner,
        *,
        push_interval: int,
        each: bool = False,
    ) -> None:
        self._collector, self._learner, self._ledger = collector, learner, learner.ledger
        self._interval, self._since_push = push_interval, 0
        self._each, self._returns = each, list[float]()

    def __iter__(self) -> Iterator[int]:
        collector, ledger = self._collector, self._ledger
        collector.start()
        while True:
            collector.check()
            ledger.frames = collector.frames
            due = collector.updates_due()
            self._learner.at(ledger.progress)
            if due == 0 and ledger.is_full:
                return
            if due == 0:
                collector.wait_for(ledger.frames + 1, timeout=0.5)
                yield 0
                continue
            self._observe()
            yield min(due, _CHUNK, self._interval - self._since_push)

    def push(self, updates: int) -> None:
        if updates:
            self._collector.note_updates(updates)
        self._since_push += updates
        if self._since_push >= self._interval:
            self.send_weights()

    def send_weights(self) -> None:
        self._since_push = 0
        self._collector.update_policy_weights_(self._learner.policy)

    def train_return(self) -> float | None:
        if not self._each:
            self._returns = [value for value, _ in self._collector.episodes()]
        returns, self._returns = self._returns, []
        return sum(returns) / len(returns) if returns else None

    def episodes(self) -> list[Episode]:
        if not self._each:
            return []
        ended = self._collector.episodes()
        self._returns += [value for value, _ in ended]
        # Workers do not say when; this is when it was seen here.
        return [Episode(self._ledger.frames, *episode) for episode in ended]

    @contextmanager
    def pause(self) -> Iterator[None]:
        with self._collector.pause():
            # Frames arrived meanwhile, and a stored learner has seen all rows that are stored.
            self._ledger.frames = self._collector.frames
            self._observe()
            yield

    def restart(self) -> None:
        """Change nothing: workers have environments of their own."""

    def shutdown(self) -> None:
        self._collector.shutdown()

    def _observe(self) -> None:
        if self._learner.observes:
            for worker, batch in self._collector.arrivals():
                self._learner.observe(batch, stream=worker)


class RolloutSource(_CollectedHere):
    """Source of rollouts ``[*envs, T]`` on the learner's device.

    The last rollout is cut after the step of all environments that reaches the ledger's total.
    """

    def __iter__(self) -> Iterator[TensorDictBase]:
        ledger, device = self._ledger, self._learner.device
        while not ledger.is_full:
            collected = self._next()
            steps = collected.shape[-1]
            per_step = collected.numel() // steps * self._ranks
            left = -(-(ledger.total_frames - ledger.frames) // per_step)
            rollout = collected[..., : min(steps, left)]
            self._count(rollout, rollout.numel())
            yield rollout.to(device)


class WorkerRollouts(RolloutSource):
    """Source of rollouts from worker processes, which take up new weights by themselves."""

    def __init__(
        self,
        collector: ParallelCollector,
        learner: Learner,
        *,
        returns: EpisodeReturns | None = None,
    ) -> None:
        super().__init__(collector, learner, returns=returns)
        # For workers that are ahead only the rest of their round is waited for.
        self.activity = "wait" if collector.is_ahead else "collect"

    def send_weights(self) -> None:
        self._collector.update_policy_weights_(self._learner.policy)

    def restart(self) -> None:
        """Change nothing: workers have environments of their own."""
