"""The main function of a worker process."""

from __future__ import annotations

import random
import signal
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import torch
from tensordict import TensorDictBase
from torchrl.envs import EnvBase

from torchrl_elegant.collectors.sync import SyncCollector
from torchrl_elegant.collectors.workers.liveness import leave_now, leave_with_parent
from torchrl_elegant.collectors.workers.pacing import Pacer, Ticket
from torchrl_elegant.collectors.workers.staging import RowStage
from torchrl_elegant.collectors.workers.weights import SharedWeights


class EpisodeTally:
    """Returns and lengths of episodes that run on from one rollout into the next.

    Counted here rather than read from the rows, because any environment has a reward and a done
    flag while its own counters may be absent, or left out of the keys that are stored.

    >>> import torch
    >>> from tensordict import TensorDict
    >>> tally = EpisodeTally(envs=1)
    >>> batch = TensorDict(
    ...     {"next": {"reward": torch.ones(3, 1), "done": torch.tensor([[0], [1], [0]]).bool()}},
    ...     [3],
    ... )
    >>> tally.add(batch, rows=3), tally.add(batch, rows=3)
    ([(2.0, 2)], [(3.0, 3)])
    """

    def __init__(self, *, envs: int) -> None:
        self._returns = np.zeros(envs)
        self._lengths = np.zeros(envs, dtype=np.int64)

    def clear(self) -> None:
        """Forgets the episodes in progress, as when all environments are reset."""
        self._returns[:], self._lengths[:] = 0.0, 0

    def add(self, batch: TensorDictBase, *, rows: int) -> list[tuple[float, int]]:
        """Episodes that ended within the first `rows` rows of a rollout [*envs, time]."""
        reward, done = batch.get(("next", "reward"), None), batch.get(("next", "done"), None)
        if reward is None or done is None:
            return []
        time = batch.shape[-1]
        rewards = reward.reshape(len(self._returns), time, -1).double().sum(-1).cpu().numpy()
        dones = done.reshape(*rewards.shape, -1).any(-1).cpu().numpy()
        finished: list[tuple[float, int]] = []
        for env in np.flatnonzero(dones.any(1)):
            begin = 0
            for end in (np.flatnonzero(dones[env]) + 1).tolist():
                total = float(self._returns[env] + rewards[env, begin:end].sum())
                length = int(self._lengths[env] + end - begin)
                if env * time + end <= rows:
                    finished.append((total, length))
                self._returns[env], self._lengths[env], begin = 0.0, 0, end
            self._returns[env] = rewards[env, begin:].sum()
            self._lengths[env] = time - begin
        running = ~dones.any(1)
        self._returns[running] += rewards[running].sum(1)
        self._lengths[running] += time
        return finished


MESSAGE_BYTES = 8192


@dataclass(frozen=True, kw_only=True)
class WorkerLink:
    """All that the parent and its workers share."""

    pacer: Pacer
    stage: RowStage
    weights: SharedWeights | None
    messages: torch.Tensor  # [workers, MESSAGE_BYTES] uint8
    init_random_frames: int

    @property
    def workers(self) -> int:
        """Number of workers."""
        return len(self.messages)

    def report(self, worker: int, text: str) -> None:
        """Leaves the traceback of a dying worker for the parent, its end where it is too long."""
        tail = text.encode()[-MESSAGE_BYTES:]
        codes = torch.frombuffer(bytearray(tail), dtype=torch.uint8)
        self.messages[worker, 1 : len(tail)] = codes[1:]
        self.messages[worker, 0] = codes[0]  # last, because it is what the parent looks at

    def message(self, worker: int) -> str:
        """What the worker reported; empty when it did not."""
        if not self.messages[worker, 0]:
            return ""
        return bytes(self.messages[worker].tolist()).rstrip(b"\0").decode(errors="replace")


class WorkerCollector(SyncCollector):
    """A collector that asks for leave before each rollout and stages what it collected.

    One step of its iterator is not one rollout but all of them, until the parent wants to stop or
    to send a message: rows are staged before the mail is read, so that no message costs a batch,
    and the pipe is not polled between rollouts.
    """

    def __init__(self, *args, link: WorkerLink, worker_idx: int, **kwargs) -> None:
        super().__init__(*args, worker_idx=worker_idx, **kwargs)
        self._link = link
        self._gate = link.pacer.gate(worker_idx)
        self._writer = link.stage.writer(worker_idx)
        self._tally = EpisodeTally(envs=self.n_env)
        self._failed = False

    def iterator(self) -> Iterator[None]:
        """Collects until called; yields nothing but its turn."""
        while True:
            try:
                self._collect_until_called()
            except BaseException:
                self._failed = True
                self._link.report(self.worker_idx, traceback.format_exc())
                raise
            yield None

    def reset(self, index=None, **kwargs) -> None:
        """Resets the environments and forgets their episodes in progress."""
        super().reset(index, **kwargs)
        self._tally.clear()

    def shutdown(
        self,
        timeout: float | None = None,
        close_env: bool = True,
        raise_on_error: bool = True,
    ) -> None:
        """Closes the environment, and leaves the process if that is what the parent asked for."""
        super().shutdown(timeout, close_env, raise_on_error)
        if self._link.pacer.stopped and not self._failed:
            leave_now()

    def _collect_until_called(self) -> None:
        pacer = self._link.pacer
        while self._writer.reserve(lambda: pacer.interrupted):
            ticket = self._gate.acquire(self.requested_frames_per_batch)
            if ticket is None:
                return
            self._collect(ticket)

    def _collect(self, ticket: Ticket) -> None:
        if self._link.weights is not None:
            self._link.weights.pull(self.policy)
        self._gate.began()
        if self.reset_at_each_iter:
            self._tally.clear()
        # Numbered over all workers, so that the random phase ends at the same frame for all.
        self._frames = ticket.start
        batch = self._postproc(self.rollout())
        episodes = self._tally.add(batch, rows=ticket.frames)
        self._writer.commit(batch, rows=ticket.frames, episodes=episodes)

    def _should_use_random_frames(self) -> bool:
        return self._frames < self._link.init_random_frames


class WorkerSetup:
    """Builds the collector of a worker, in place of TorchRL's `collector_class`.

    Args:
        link: what the processes share.
        seeds: one seed per worker.
        threads: torch threads in each worker.
        static_kwargs: further arguments of the inner collector.
    """

    def __init__(self, *, link: WorkerLink, seeds: list[int], threads: int, **static_kwargs):
        self.link, self.seeds, self.threads = link, seeds, threads
        self.static_kwargs = static_kwargs

    def __call__(
        self,
        create_env_fn: EnvBase | Callable[[], EnvBase],
        *,
        worker_idx: int,
        **kwargs,
    ) -> WorkerCollector:
        """Called by TorchRL's worker loop with the arguments of a plain collector."""
        leave_with_parent()
        # Ctrl-C reaches the whole process group; the parent decides when its workers end.
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        seed = self.seeds[worker_idx]
        random.seed(seed)
        np.random.seed(seed)  # noqa: NPY002 - simulators still draw from it
        torch.manual_seed(seed)
        # The stage stands in for the buffer in TorchRL's loop; the collector itself has none.
        for name in ("replay_buffer", "extend_buffer", "init_random_frames"):
            kwargs.pop(name)
        collector = WorkerCollector(
            create_env_fn, link=self.link, worker_idx=worker_idx, **kwargs, **self.static_kwargs
        )
        collector.set_seed(seed)
        # TorchRL's batched environments set the thread count back when they start.
        torch.set_num_threads(self.threads)
        return collector
