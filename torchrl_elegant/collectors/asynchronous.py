"""Collector whose worker processes fill a replay buffer while this process learns from it."""

from __future__ import annotations

import os
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from tensordict import NestedKey, TensorDictBase
from torch import nn
from torchrl.collectors import MultiAsyncCollector
from torchrl.data import ReplayBuffer
from torchrl.envs import EnvBase

from torchrl_elegant.collectors.signatures import shows_arguments
from torchrl_elegant.collectors.sync import SyncCollector
from torchrl_elegant.collectors.workers.arguments import WORKER_OPTIONS, WorkerArguments
from torchrl_elegant.collectors.workers.base import MultiWorkerBase
from torchrl_elegant.collectors.workers.buffer_writer import ROWS_KEPT, BufferWriter, Fold
from torchrl_elegant.collectors.workers.pacing import Pacer


class AsyncCollector(MultiWorkerBase, MultiAsyncCollector):
    """Worker processes collect into a replay buffer while this process learns from it.

    In contrast to :class:`~torchrl.collectors.MultiAsyncCollector` the ratio of updates to frames
    holds: whichever side is too far ahead waits (:class:`Pacer`). Collection ends at exactly
    `total_frames`. No message discards a batch. Weights reach the workers between rollouts,
    through shared memory (:class:`SharedWeights`). This process alone writes to the buffer
    (:class:`BufferWriter`), so that it may be of any kind and no killed worker can lock it.
    :meth:`check` names a dead worker, and no worker outlives this process.

    There is one count of frames, :attr:`frames`: rows that have reached the buffer, or its fold.
    It starts at ``frames_done``.

    Args:
        create_env_fn: one factory per worker, or one for all; it may make a batched environment.
            This process calls the first one once, for its specs.
        policy: any policy; workers get a deep copy.
        num_workers: number of workers, if there is one factory.
        replay_buffer: receives one row per transition, batch dimensions flattened.
        frames_per_batch: frames of one rollout of one worker.
        total_frames: count of frames at which collection ends; -1 for never.
        updates_per_frame: ratio to hold; `None` lets the workers run free.
        warmup_frames: frames that ask for no update.
        slack_batches: batches per worker that collection may be ahead of the learner.
        init_random_frames: random frames at the run's start, over all workers, in whole batches.
        keys: keys of the rows to store; `None` for all.
        seed: each worker gets a seed that is derived from it; `None` draws one.
        threads_per_worker: torch threads in each worker.
        frames_done, updates_done: counts of a resumed run.
        fold: called once per worker; makes a function from batches `[envs, time]` to the rows
            that are stored, such as :class:`MultiStepFold`. Frames are counted before it. If
            `total_frames` cuts the last batch, a fold stores nothing of it.
        rows_kept: newest rows kept for :meth:`arrivals`; `None` for all.
        kwargs: options of :class:`SyncCollector` for the collector inside each worker.

    Examples:
        >>> from functools import partial
        >>> from torchrl.data import LazyTensorStorage, TensorDictReplayBuffer
        >>> from torchrl.envs import GymEnv
        >>> buffer = TensorDictReplayBuffer(storage=LazyTensorStorage(64), batch_size=4)
        >>> env = partial(GymEnv, "Pendulum-v1")
        >>> with AsyncCollector(
        ...     [env, env], replay_buffer=buffer, total_frames=64, frames_per_batch=16
        ... ) as collector:
        ...     collector.start()
        ...     arrived = collector.wait_for(64)
        >>> collector.frames, len(buffer)
        (64, 64)
    """

    @shows_arguments(SyncCollector, only=WORKER_OPTIONS)
    def __init__(
        self,
        create_env_fn: Callable[[], EnvBase] | Sequence[Callable[[], EnvBase]],
        policy: nn.Module | Callable[[TensorDictBase], TensorDictBase] | None = None,
        *,
        num_workers: int | None = None,
        replay_buffer: ReplayBuffer,
        frames_per_batch: int,
        total_frames: int = -1,
        updates_per_frame: float | None = None,
        warmup_frames: int = 0,
        slack_batches: int = 2,
        init_random_frames: int = 0,
        keys: Sequence[NestedKey] | None = None,
        seed: int | None = None,
        threads_per_worker: int = 1,
        frames_done: int = 0,
        updates_done: int = 0,
        fold: Callable[[], Fold] | None = None,
        rows_kept: int | None = ROWS_KEPT,
        **kwargs: Any,
    ) -> None:
        if slack_batches < 1:
            raise ValueError(f"`slack_batches` must be at least 1, got {slack_batches}")
        arguments = WorkerArguments(
            create_env_fn, policy, num_workers, frames_per_batch, keys, kwargs
        )
        self._pacer = Pacer(
            workers=arguments.workers,
            updates_per_frame=updates_per_frame,
            warmup_frames=warmup_frames,
            total_frames=None if total_frames < 0 else total_frames,
            slack_frames=slack_batches * arguments.workers * frames_per_batch,
            frames_done=frames_done,
            updates_done=updates_done,
        )
        link = arguments.link(self._pacer, init_random_frames=init_random_frames)
        self._writer = BufferWriter(
            link.rings,
            replay_buffer,
            workers=arguments.workers,
            folds=[fold() for _ in arguments.env_fns] if fold else (),
            envs=arguments.envs,
            keep=rows_kept,
        )
        super().__init__(
            arguments,
            link,
            policy=policy,
            frames_per_batch=frames_per_batch,
            total_frames=total_frames,
            seed=seed,
            threads_per_worker=threads_per_worker,
            frames_done=frames_done,
            trajectory_ids="shared",
        )
        self.replay_buffer = replay_buffer

    @property
    def _frames(self) -> int:  # the name under which TorchRL reads and sets the count
        return self._writer.frames

    @_frames.setter
    def _frames(self, frames: int) -> None:
        self._writer.frames = frames

    def start(self) -> None:
        """Lets the workers collect; a second call changes nothing."""
        if self.closed:
            raise RuntimeError("`AsyncCollector` must be open to start, got one that is shut down")
        if not self._writer.started:
            self._writer.start()
            super().start()

    def iterator(self) -> Iterator[None]:
        """Yields None, as TorchRL does with a buffer, whenever another batch has arrived."""
        self.start()
        while self.frames < self.total_frames:
            self.wait_for(min(self.frames + self.requested_frames_per_batch, self.total_frames))
            yield None

    def wait_for(self, frames: int, timeout: float | None = None) -> bool:
        """Waits until the count of frames is `frames`; False if the time ran out before."""
        return self._writer.wait_for(frames, alive=self.check, timeout=timeout)

    @contextmanager
    def pause(self) -> Iterator[None]:
        """Holds all workers between rollouts; all their rows are in the buffer by then."""
        if not self._writer.started:
            raise RuntimeError("`AsyncCollector` must have been started to be paused")
        self._pacer.hold(self.check)
        try:
            self.wait_for(self._pacer.frames_ticketed)
            yield
        finally:
            self._pacer.release()

    @property
    def updates_done(self) -> int:
        """Updates counted so far, those of the resumed run included."""
        return self._pacer.updates_done

    def updates_due(self) -> int:
        """Updates that the learner owes for the frames so far; none while the buffer is empty."""
        # A fold keeps rows back until their last step is known.
        return self._pacer.updates_due(self.frames) if len(self.replay_buffer) else 0

    def note_updates(self, count: int = 1) -> None:
        """Counts finished updates, so that the workers may collect more."""
        self._pacer.note_updates(count)

    def episodes(self) -> list[tuple[float, int]]:
        """Return and length of the newest episodes that ended since the last call."""
        return self._writer.episodes()

    def arrivals(self) -> list[tuple[int, TensorDictBase]]:
        """Pairs of a worker's number and its steps `[envs, time]` since the last call."""
        return self._writer.arrivals()

    def check(self) -> None:
        """Raises RuntimeError if a worker died, or if writing to the buffer failed."""
        super().check()
        if not self._shutdown_complete and self._writer.failure is not None:
            raise RuntimeError("writing to the replay buffer failed") from self._writer.failure

    def state_dict(self) -> OrderedDict:
        """State of the workers, with the counts of frames and updates."""
        return OrderedDict(super().state_dict(), updates=self.updates_done)

    def load_state_dict(self, state_dict: OrderedDict) -> None:
        """Loads a :meth:`state_dict`; only before :meth:`start`."""
        if self._writer.started:
            raise RuntimeError("`load_state_dict` must come before `start`")
        super().load_state_dict(state_dict)
        self._pacer.restore(frames=state_dict["frames"], updates=state_dict["updates"])

    def _shutdown_main(self, timeout: float | None = None) -> None:
        if self._shutdown_complete or self._owner != os.getpid():
            return
        super()._shutdown_main(timeout)
        self._writer.stop()
