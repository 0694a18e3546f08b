"""Collection in worker processes in rounds: one batch of them all, and one ahead if asked for."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
from tensordict import TensorDict, TensorDictBase
from torch import nn
from torchrl.collectors import MultiSyncCollector
from torchrl.envs import EnvBase

from torchrl_elegant.collectors.rollout.episodes import TRAJ_IDS
from torchrl_elegant.collectors.workers.blueprint import Blueprint, PolicyCopy
from torchrl_elegant.collectors.workers.crew import Crew
from torchrl_elegant.collectors.workers.pacing import Turns
from torchrl_elegant.collectors.workers.weights import Weights
from torchrl_elegant.collectors.workers.worker import WorkerSetup

_NAP = 0.1  # seconds between two looks at whether the workers live
_BLINK = 0.001  # seconds between two looks at whether all have begun


class ParallelCollector(Crew, MultiSyncCollector):
    """Workers that collect at the same time, and rest while this process learns or are one ahead.

    What differs from :class:`~torchrl.collectors.MultiSyncCollector`: a batch is laid out as one
    collector over all environments would give it, `[environments, time]`, in memory of its own;
    rows and weights go through shared memory with no message per batch; the same seed gives the
    same batches, trajectory ids included; a dead worker is named by :meth:`check`, and no worker
    outlives this process.

    With ``ahead`` the next batch is collected while the caller has one, by the policy as it was
    before that batch: always one update old, however fast anybody is, because new weights wait
    until all workers have begun. Messages, such as :meth:`reset`, wait for the round under way.

    Args:
        create_env_fn: one factory per worker, or one for all; here called once for its specs.
        policy: any policy; workers get a deep copy, and new weights when
            :meth:`update_policy_weights_` is called.
        num_workers: number of workers, where one factory is given.
        frames_per_batch: frames of a batch, over all workers.
        total_frames: where collection ends; -1 for never.
        init_random_frames: random frames at the run's start, in whole batches.
        postproc: applied to each batch.
        seed: every worker gets its own child of it; `None` draws one.
        threads_per_worker: torch threads in each worker.
        frames_done: frames of the run that is resumed.
        ahead: collect the next batch while the caller has one.
        kwargs: options of TorchRL's collectors for the collector inside each worker.

    Examples:
        >>> from functools import partial
        >>> from torchrl_elegant.envs import make_env
        >>> env = partial(make_env, "CartPole-v1", 2)
        >>> with ParallelCollector(env, num_workers=2, frames_per_batch=32) as collector:
        ...     batch = next(iter(collector))
        >>> batch.shape, batch.names
        (torch.Size([4, 8]), [None, 'time'])
    """

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
        self._shutdown_complete = True  # until there is something to shut down
        workers = num_workers or (len(create_env_fn) if isinstance(create_env_fn, Sequence) else 1)
        if frames_per_batch % workers:
            raise ValueError(
                f"`frames_per_batch` must be a multiple of the number of workers ({workers}), "
                f"got `{frames_per_batch}`"
            )
        rows = frames_per_batch // workers
        plan = Blueprint(create_env_fn, policy, num_workers, rows, None, kwargs)
        self._turns = Turns(workers=plan.workers)
        link = plan.link(self._turns, init_random_frames)
        self._enlist(link)
        super().__init__(
            plan.env_fns,
            policy_factory=None if plan.policy is None else PolicyCopy(plan.policy),
            collector_class=OwnIds(plan.setup(link, (seed, frames_done), threads_per_worker)),
            replay_buffer=link.stage,
            frames_per_batch=frames_per_batch,
            num_threads=self._threads,
            num_sub_threads=threads_per_worker,
            **kwargs,
        )
        # Rows come by the stage; of a buffer, what TorchRL sees behind it here, there is none.
        self.replay_buffer, self.policy, self.postproc = None, policy, postproc
        self.total_frames = float("inf") if total_frames < 0 else total_frames
        self.init_random_frames, self._frames = init_random_frames, frames_done
        self._started, self._under_way, self._ahead = False, False, ahead
        self._steps = rows // self.getattr_env("batch_size").numel()
        self._episodes: list[tuple[float, int]] = []

    def iterator(self) -> Iterator[TensorDictBase]:
        """Yields a batch at a time; while the caller has it none is collected, or the next."""
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
        """Publishes weights and buffers, which the next round that begins is collected with."""
        while self._ahead and self._under_way and not self._turns.begun:
            self.check()
            time.sleep(_BLINK)
        super().update_policy_weights_(policy_or_weights, weights_dict=weights_dict)

    def episodes(self) -> list[tuple[float, int]]:
        """Return and length of every episode that ended since the last call."""
        episodes, self._episodes = self._episodes, []
        return episodes

    @property
    def is_ahead(self) -> bool:
        """Whether the next batch is collected while the caller has one."""
        return self._ahead

    @property
    def frames(self) -> int:
        """How many frames it has collected, those of the resumed run included."""
        return self._frames

    def _begin(self) -> None:
        if not self._under_way:
            self._under_way = True
            self._turns.grant(start=self._frames)

    def _gathered(self) -> list[TensorDictBase]:
        stage, parts = self._link.stage, dict[int, TensorDictBase]()
        while len(parts) < self.num_workers:
            if not stage.bell.acquire(timeout=_NAP):
                self.check()
            for worker in range(self.num_workers):
                rows, episodes = stage.take(worker)
                self._episodes += episodes
                if rows is not None:
                    parts[worker] = rows
        return [parts[worker] for worker in range(self.num_workers)]

    def _assembled(self, parts: list[TensorDictBase]) -> TensorDictBase:
        batch = TensorDict.cat(parts).reshape(-1, self._steps)
        batch.refine_names(None, "time")
        ids = batch.get(TRAJ_IDS, None)
        if ids is not None:
            # Each worker counts for itself: spread out, so that no two share a number.
            worker = torch.arange(self.num_workers).view(-1, 1, 1)
            ids.view(self.num_workers, -1, self._steps).mul_(self.num_workers).add_(worker)
        return batch


class OwnIds:
    """Builds workers that number their trajectories without a look at the others."""

    def __init__(self, setup: WorkerSetup) -> None:
        self._setup = setup

    def __call__(self, create_env_fn: EnvBase | Callable[[], EnvBase], **kwargs: Any) -> Any:
        """Called by TorchRL's worker loop with the arguments of a plain collector."""
        return self._setup(create_env_fn, **{**kwargs, "traj_pool": None})
