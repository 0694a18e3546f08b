"""Collector whose worker processes collect in rounds, each round one batch of all workers."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
from tensordict import TensorDict, TensorDictBase
from torch import nn
from torchrl.collectors import MultiSyncCollector
from torchrl.envs import EnvBase

from torchrl_elegant.collectors.rollout.episode_counts import TRAJ_IDS
from torchrl_elegant.collectors.signatures import shows_arguments
from torchrl_elegant.collectors.sync import SyncCollector
from torchrl_elegant.collectors.workers.arguments import WORKER_OPTIONS, WorkerArguments
from torchrl_elegant.collectors.workers.base import MultiWorkerBase
from torchrl_elegant.collectors.workers.pacing import Rounds
from torchrl_elegant.collectors.workers.weights import Weights

_NAP = 0.1  # seconds between two looks at whether the workers live
_BLINK = 0.001  # seconds between two looks at whether all have begun


class ParallelCollector(MultiWorkerBase, MultiSyncCollector):
    """Workers collect at the same time; while this process learns they rest, or are one ahead.

    In contrast to :class:`~torchrl.collectors.MultiSyncCollector` a batch has the layout that one
    collector over all environments would give it, `[environments, time]`, in memory of its own.
    Rows and weights go through shared memory, with no message per batch. The same seed gives the
    same batches, trajectory ids included. :meth:`check` names a dead worker, and no worker
    outlives this process.

    With ``ahead`` the workers collect the next batch while the caller has one. They act by the
    policy as it was before the caller's batch: always one update old, because new weights wait
    until all workers have begun. Messages, such as :meth:`reset`, wait for the present round.

    There is one count of frames, :attr:`frames`; it starts at ``frames_done`` and grows by each
    batch before the caller gets it.

    Args:
        create_env_fn: one factory per worker, or one for all; it may make a batched environment.
            This process calls the first one once, for its specs.
        policy: any policy; workers get a deep copy, and new weights when
            :meth:`update_policy_weights_` is called.
        num_workers: number of workers, if there is one factory.
        frames_per_batch: frames of a batch, over all workers.
        total_frames: count of frames at which collection ends; -1 for never.
        init_random_frames: random frames at the run's start, in whole batches.
        postproc: applied to each batch.
        seed: each worker gets a seed that is derived from it; `None` draws one.
        threads_per_worker: torch threads in each worker.
        frames_done: frames that a resumed run has collected before.
        ahead: collect the next batch while the caller has one.
        kwargs: options of :class:`SyncCollector` for the collector inside each worker.

    Examples:
        >>> from functools import partial
        >>> from torchrl_elegant.envs import make_env
        >>> env = partial(make_env, "CartPole-v1", 2)
        >>> with ParallelCollector(env, num_workers=2, frames_per_batch=32) as collector:
        ...     batch = next(iter(collector))
        >>> batch.shape, batch.names
        (torch.Size([4, 8]), [None, 'time'])
    """

    @shows_arguments(SyncCollector, only=WORKER_OPTIONS)
    def __init__(
        self,
        create_env_fn: Callable[[], EnvBase] | Sequence[Callable[[], EnvBase]],
        policy: nn.Module | Callable[[TensorDictBase], TensorDictBase] | None = None,
        *,
        num_workers: int | None = None,
        frames_per_batch: int,
        total_frames: int = -1,
        init_random_frames: int = 0,
        postproc: Callable[[TensorDictBase], TensorDictBase] | None = None,
        seed: int | None = None,
        threads_per_worker: int = 1,
        frames_done: int = 0,
        ahead: bool = False,
        **kwargs: Any,
    ) -> None:
        workers = num_workers or (len(create_env_fn) if isinstance(create_env_fn, Sequence) else 1)
        if frames_per_batch % workers:
            raise ValueError(
                f"`frames_per_batch` must be a multiple of the number of workers ({workers}), "
                f"got `{frames_per_batch}`"
            )
        rows = frames_per_batch // workers
        arguments = WorkerArguments(create_env_fn, policy, num_workers, rows, None, kwargs)
        self._rounds = Rounds(workers=arguments.workers)
        super().__init__(
            arguments,
            arguments.link(self._rounds, init_random_frames=init_random_frames),
            policy=policy,
            frames_per_batch=frames_per_batch,
            total_frames=total_frames,
            seed=seed,
            threads_per_worker=threads_per_worker,
            frames_done=frames_done,
            trajectory_ids="own",
        )
        # TorchRL takes the rings for a buffer; here they only carry the rows to this process.
        self.replay_buffer, self.postproc = None, postproc
        self._started, self._under_way, self._ahead = False, False, ahead
        self._steps = rows // arguments.envs
        self._episodes: list[tuple[float, int]] = []

    def iterator(self) -> Iterator[TensorDictBase]:
        """Yields one batch after another; the next is begun when asked for, or before if ahead."""
        if self.closed:
            raise RuntimeError("`ParallelCollector` must be open to collect, got one shut down")
        if not self._started:
            self._started = self._running_free = True
            for pipe in self.pipes:
                pipe.send((None, "run_free"))
        while self._frames < self.total_frames:
            self._iter += 1
            self._begin()
            batch = self._assembled(self._gathered())
            self._under_way = False
            self._frames += batch.numel()
            if self._ahead and self._frames < self.total_frames:
                self._begin()
            yield batch if self.postproc is None else self.postproc(batch)

    def update_policy_weights_(
        self,
        policy_or_weights: Weights | None = None,
        *,
        weights_dict: Mapping[str, Weights] | None = None,
    ) -> None:
        """Publishes weights and buffers for the next round that begins."""
        while self._ahead and self._under_way and not self._rounds.begun:
            self.check()
            time.sleep(_BLINK)
        super().update_policy_weights_(policy_or_weights, weights_dict=weights_dict)

    def episodes(self) -> list[tuple[float, int]]:
        """Return and length of every episode that ended since the last call."""
        episodes, self._episodes = self._episodes, []
        return episodes

    @property
    def is_ahead(self) -> bool:
        """True if the next batch is collected while the caller has one."""
        return self._ahead

    def _begin(self) -> None:
        if not self._under_way:
            self._under_way = True
            self._rounds.grant(start=self._frames)

    def _gathered(self) -> list[TensorDictBase]:
        rings, parts = self._link.rings, dict[int, TensorDictBase]()
        while len(parts) < self.num_workers:
            if not rings.bell.acquire(timeout=_NAP):
                self.check()
            for worker in range(self.num_workers):
                rows, episodes = rings.take(worker)
                self._episodes += episodes
                if rows is not None:
                    parts[worker] = rows
        return [parts[worker] for worker in range(self.num_workers)]

    def _assembled(self, parts: list[TensorDictBase]) -> TensorDictBase:
        batch = TensorDict.cat(parts).reshape(-1, self._steps)
        batch.refine_names(None, "time")
        ids = batch.get(TRAJ_IDS, None)
        if ids is not None:
            # Each worker numbers its own: spread them, so that no two workers share a number.
            worker = torch.arange(self.num_workers).view(-1, 1, 1)
            ids.view(self.num_workers, -1, self._steps).mul_(self.num_workers).add_(worker)
        return batch
