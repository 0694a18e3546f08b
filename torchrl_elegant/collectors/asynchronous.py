"""Collection in worker processes beside a learner, at a ratio of updates to data that holds."""

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

from torchrl_elegant.collectors.workers.blueprint import Blueprint, PolicyCopy
from torchrl_elegant.collectors.workers.crew import Crew
from torchrl_elegant.collectors.workers.mover import Fold, RowMover
from torchrl_elegant.collectors.workers.pacing import Pacer


class AsyncCollector(Crew, MultiAsyncCollector):
    """Worker processes collect into a replay buffer while this process learns from it.

    What differs from :class:`~torchrl.collectors.MultiAsyncCollector`: the ratio of updates to
    frames is held from both sides (:class:`Pacer`); frames are counted, and end at
    `total_frames`, exactly; no message discards a batch; weights reach the workers between
    rollouts through shared memory (:class:`SharedWeights`); the buffer belongs to this process
    alone (:class:`RowStage`), so that it may be of any kind and no killed worker can lock it;
    a dead worker is named by :meth:`check`, and no worker outlives this process.

    Args:
        create_env_fn: one factory per worker, or one for all; here called once for its specs.
        policy: any policy; workers get a deep copy.
        num_workers: number of workers, where one factory is given.
        replay_buffer: receives one row per transition, batch dimensions flattened.
        frames_per_batch: frames of one rollout of one worker.
        total_frames: where collection ends; -1 for never.
        updates_per_frame: ratio to hold; `None` lets workers run free.
        warmup_frames: frames that ask for no update.
        slack_batches: batches per worker that collection may be ahead of the learner.
        init_random_frames: random frames at the run's start, over all workers, in whole batches.
        keys: keys of the rows to store; `None` for all.
        seed: every worker gets its own child of it; `None` draws one.
        threads_per_worker: torch threads in each worker.
        frames_done, updates_done: counters of the run that is resumed.
        fold: makes for each worker what turns its batches `[envs, time]` into the rows that are
            stored, such as :class:`MultiStepFold`; frames are counted before it. Of a last batch
            that `total_frames` cuts nothing is stored then.
        rows_kept: newest rows kept for `arrivals`; `None` for all.
        kwargs: options of TorchRL's collectors for the collector inside each worker.

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
        rows_kept: int | None = 1024,
        **kwargs: Any,
    ) -> None:
        self._shutdown_complete = True  # until there is something to shut down
        plan = Blueprint(create_env_fn, policy, num_workers, frames_per_batch, keys, kwargs)
        pacer = Pacer(
            workers=plan.workers,
            updates_per_frame=updates_per_frame,
            warmup_frames=warmup_frames,
            total_frames=None if total_frames < 0 else total_frames,
            slack_frames=plan.slack_frames(slack_batches),
            frames_done=frames_done,
            updates_done=updates_done,
        )
        link = plan.link(pacer, init_random_frames)
        self._pacer = link.pacer
        self._mover = RowMover(
            link.stage,
            replay_buffer,
            workers=link.workers,
            folds=[fold() for _ in plan.env_fns] if fold else (),
            envs=plan.envs,
            keep=rows_kept,
        )
        self._enlist(link)
        super().__init__(
            plan.env_fns,
            policy_factory=None if plan.policy is None else PolicyCopy(plan.policy),
            collector_class=plan.setup(link, (seed, frames_done), threads_per_worker),
            replay_buffer=link.stage,
            frames_per_batch=frames_per_batch,
            num_threads=self._threads,
            num_sub_threads=threads_per_worker,
            **kwargs,
        )
        self.replay_buffer, self.policy = replay_buffer, policy
        self.total_frames = float("inf") if total_frames < 0 else total_frames
        self.init_random_frames, self._frames = init_random_frames, frames_done

    @property
    def _frames(self) -> int:  # TorchRL's counter, for its statistics and state
        return self._mover.frames

    @_frames.setter
    def _frames(self, frames: int) -> None:
        self._mover.frames = frames

    def start(self) -> None:
        """Lets the workers collect; a second call changes nothing."""
        if self.closed:
            raise RuntimeError("`AsyncCollector` must be open to start, got one that is shut down")
        if not self._mover.started:
            self._mover.start()
            super().start()

    def iterator(self) -> Iterator[None]:
        """Yields None, as TorchRL does with a buffer, whenever another batch has arrived."""
        self.start()
        while self.frames < self.total_frames:
            self.wait_for(min(self.frames + self.requested_frames_per_batch, self.total_frames))
            yield None

    def wait_for(self, frames: int, timeout: float | None = None) -> bool:
        """Waits until `frames` rows have been written; False when time ran out before."""
        return self._mover.wait_for(frames, alive=self.check, timeout=timeout)

    @contextmanager
    def pause(self) -> Iterator[None]:
        """Holds all workers between rollouts, with every row they collected in the buffer."""
        if not self._mover.started:
            raise RuntimeError("`AsyncCollector` must have been started to be paused")
        self._pacer.hold(self.check)
        try:
            self.wait_for(self._pacer.frames_ticketed)
            yield
        finally:
            self._pacer.release()

    @property
    def frames(self) -> int:
        """Rows written to the buffer, those of the resumed run included."""
        return self._mover.frames

    @property
    def updates_done(self) -> int:
        """Updates noted, those of the resumed run included."""
        return self._pacer.updates_done

    def updates_due(self) -> int:
        """How many updates the learner owes for the frames so far; none before there is a row."""
        # A fold holds rows back until their span is known.
        return self._pacer.updates_due(self.frames) if len(self.replay_buffer) else 0

    def note_updates(self, count: int = 1) -> None:
        """Enters finished updates, which lets the workers collect on."""
        self._pacer.note_updates(count)

    def episodes(self) -> list[tuple[float, int]]:
        """Return and length of the episodes that ended since the last call, the newest 10,000."""
        return self._mover.episodes()

    def arrivals(self) -> list[tuple[int, TensorDictBase]]:
        """Workers' numbers and their batches `[envs, time]` since the last call, in their order."""
        return self._mover.arrivals()

    def check(self) -> None:
        """Raises RuntimeError if a worker died, saying which, how and why."""
        super().check()
        if not self._shutdown_complete and self._mover.failure is not None:
            raise RuntimeError("writing to the replay buffer failed") from self._mover.failure

    def state_dict(self) -> OrderedDict:
        """The workers' states with the counters of frames and updates."""
        return OrderedDict(super().state_dict(), updates=self.updates_done)

    def load_state_dict(self, state_dict: OrderedDict) -> None:
        """Loads what :meth:`state_dict` gave; before the start only."""
        if self._mover.started:
            raise RuntimeError("`load_state_dict` must come before `start`")
        super().load_state_dict(state_dict)
        self._pacer.restore(frames=state_dict["frames"], updates=state_dict["updates"])

    def _shutdown_main(self, timeout: float | None = None) -> None:
        if self._shutdown_complete or self._owner != os.getpid():
            return
        super()._shutdown_main(timeout)
        self._mover.stop()
