"""Worker process: it waits for a ticket, collects one rollout, leaves the rows, and so on."""

from __future__ import annotations

import logging
import random
import signal
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any, Literal

import numpy as np
import torch
from tensordict import NestedKey, TensorDictBase
from torchrl.envs import EnvBase

from torchrl_elegant.collectors.sync import SyncCollector
from torchrl_elegant.collectors.workers.liveness import leave_now, leave_with_parent
from torchrl_elegant.collectors.workers.pacing import Gates, Ticket
from torchrl_elegant.collectors.workers.rings import RowRings
from torchrl_elegant.collectors.workers.weights import SharedWeights
from torchrl_elegant.functional import junk_of


class EpisodeLog:
    """Returns and lengths of episodes, which may run on from one rollout into the next.

    Counted from rewards and done flags, because an environment's own counters may be absent, or
    left out of the keys that are stored. The return is the mean over agents and reward keys; an
    episode ends where any of the `done_keys` is set.

    Args:
        envs: environments of a batch.
        reward_keys: rewards, such as `env.reward_keys`.
        done_keys: flags that end an episode, such as `ending_keys(env)`.

    >>> import torch
    >>> from tensordict import TensorDict
    >>> log = EpisodeLog(envs=1, reward_keys=["reward"], done_keys=["done"])
    >>> batch = TensorDict(
    ...     {"next": {"reward": torch.ones(3, 1), "done": torch.tensor([[0], [1], [0]]).bool()}},
    ...     [3],
    ... )
    >>> log.add(batch, rows=3), log.add(batch, rows=3)
    ([(2, 2.0, 2)], [(2, 3.0, 3)])
    """

    def __init__(
        self, *, envs: int, reward_keys: Sequence[NestedKey], done_keys: Sequence[NestedKey]
    ) -> None:
        self._reward_keys, self._done_keys = reward_keys, done_keys
        self._returns = np.zeros(envs)
        self._lengths = np.zeros(envs, dtype=np.int64)

    def clear(self) -> None:
        """Forgets the episodes in progress, as when all environments are reset."""
        self._returns[:], self._lengths[:] = 0.0, 0

    def add(self, batch: TensorDictBase, *, rows: int) -> list[tuple[int, float, int]]:
        """Episodes that ended within the first `rows` rows of a rollout [*envs, time].

        Of each: the steps of the rollout until its end, its return, its length.
        """
        after, time = batch.get("next"), batch.shape[-1]
        found = [
            [after.get(key, None) for key in keys] for keys in (self._reward_keys, self._done_keys)
        ]
        # A `postproc` may have left them out.
        if any(value is None for values in found for value in values):
            return []
        columns = [
            [value.reshape(len(self._returns), time, -1) for value in values] for values in found
        ]
        means = [value.double().mean(-1).cpu().numpy() for value in columns[0]]
        rewards = sum(means) / len(means)
        dones = reduce(np.logical_or, (value.any(-1).cpu().numpy() for value in columns[1]))
        flags = junk_of(batch)
        junk = None if flags is None else flags.reshape(dones.shape).cpu().numpy()
        finished: list[tuple[int, float, int]] = []
        for env in np.flatnonzero(dones.any(1)):
            begin = 0
            for end in (np.flatnonzero(dones[env]) + 1).tolist():
                total = float(self._returns[env] + rewards[env, begin:end].sum())
                length = int(self._lengths[env] + end - begin)
                # Junk is an episode of one step that nobody has played.
                if env * time + end <= rows and (junk is None or not junk[env, end - 1]):
                    finished.append((end, total, length))
                self._returns[env], self._lengths[env], begin = 0.0, 0, end
            self._returns[env] = rewards[env, begin:].sum()
            self._lengths[env] = time - begin
        running = ~dones.any(1)
        self._returns[running] += rewards[running].sum(1)
        self._lengths[running] += time
        return finished


def ending_keys(env: EnvBase) -> list[NestedKey]:
    """Done flags whose rows are reset: those at the root, or nested ones where it has none.

    >>> from torchrl.envs import PendulumEnv
    >>> ending_keys(PendulumEnv())
    ['done']
    """
    # TorchRL's rule: flags below others that reset the whole row reset nothing themselves.
    keys = env._filtered_reset_keys
    return ["done" if isinstance(key, str) else (*key[:-1], "done") for key in keys]


MESSAGE_BYTES = 8192


@dataclass(frozen=True, kw_only=True)
class WorkerLink:
    """Memory and locks that the parent shares with its workers."""

    gates: Gates
    rings: RowRings
    weights: SharedWeights | None
    messages: torch.Tensor  # [workers, MESSAGE_BYTES] uint8
    init_random_frames: int

    def report(self, worker: int, text: str) -> None:
        """Leaves the traceback of a dying worker for the parent; keeps its end if it is long."""
        tail = text.encode()[-MESSAGE_BYTES:]
        codes = torch.frombuffer(bytearray(tail), dtype=torch.uint8)
        self.messages[worker, 1 : len(tail)] = codes[1:]
        self.messages[worker, 0] = codes[0]  # last, because it is what the parent looks at

    def message(self, worker: int) -> str:
        """Traceback that the worker has left; empty if there is none."""
        if not self.messages[worker, 0]:
            return ""
        return bytes(self.messages[worker].tolist()).rstrip(b"\0").decode(errors="replace")


class WorkerCollector(SyncCollector):
    """Collector inside a worker: it gets a ticket before each rollout and leaves rows in its ring.

    One step of its iterator is not one rollout but many, until the parent wants to stop or to
    send a message. Rows reach the ring before the message is read, so that no message costs a
    batch, and the pipe is not polled between rollouts.
    """

    def __init__(self, *args: Any, link: WorkerLink, worker_idx: int, **kwargs: Any) -> None:
        super().__init__(*args, worker_idx=worker_idx, **kwargs)
        self._link = link
        self._gate = link.gates.gate(worker_idx)
        self._writer = link.rings.writer(worker_idx)
        self._episodes = EpisodeLog(
            envs=self.n_env, reward_keys=self.env.reward_keys, done_keys=ending_keys(self.env)
        )
        self._failed = False

    def iterator(self) -> Iterator[None]:
        """Collects until the parent interrupts; then yields None."""
        while True:
            try:
                self._collect_until_interrupted()
            except BaseException as error:
                self._failed = True
                self._link.report(self.worker_idx, traceback.format_exc())
                if isinstance(error, FloatingPointError):
                    # Its message says all; a traceback of this house would hide it in a log.
                    raise SystemExit(1) from None
                raise
            yield None

    def reset(self, index: Any = None, **kwargs: Any) -> None:
        """Resets the environments and forgets their episodes in progress."""
        super().reset(index, **kwargs)
        self._episodes.clear()

    def shutdown(
        self,
        timeout: float | None = None,
        close_env: bool = True,
        raise_on_error: bool = True,
    ) -> None:
        """Closes the environment, and ends the process if the parent asked for it."""
        super().shutdown(timeout, close_env, raise_on_error)
        if self._link.gates.stopped and not self._failed:
            leave_now()

    def _collect_until_interrupted(self) -> None:
        gates = self._link.gates
        while self._writer.reserve(lambda: gates.interrupted):
            ticket = self._gate.acquire(self.requested_frames_per_batch)
            if ticket is None:
                return
            self._collect(ticket)

    def _collect(self, ticket: Ticket) -> None:
        if self._link.weights is not None:
            self._link.weights.pull(self.policy)
        self._gate.begin()
        if self.reset_at_each_iter:
            self._episodes.clear()
        # Numbered over all workers, so that the random phase ends at the same frame for all.
        self._frames = ticket.start
        batch = self._postproc(self.rollout())
        episodes = self._episodes.add(batch, rows=ticket.frames)
        ended = [(total, length) for _, total, length in episodes]
        self._writer.commit(batch, rows=ticket.frames, episodes=ended)

    def _should_use_random_frames(self) -> bool:
        return self._frames < self._link.init_random_frames


class WorkerFactory:
    """Builds the collector of a worker; TorchRL calls it in place of a `collector_class`.

    Args:
        link: memory and locks of all processes.
        seeds: one seed per worker.
        threads: torch threads in each worker.
        trajectory_ids: numbered over all workers, by each worker for itself, or not at all.
        options: of `SyncCollector`, those that TorchRL's worker loop does not hand on.
    """

    def __init__(
        self,
        *,
        link: WorkerLink,
        seeds: list[int],
        threads: int,
        trajectory_ids: Literal["shared", "own", "none"],
        options: Mapping[str, Any],
    ) -> None:
        self.link, self.seeds, self.threads = link, seeds, threads
        self.trajectory_ids, self.options = trajectory_ids, options

    def __call__(
        self,
        create_env_fn: EnvBase | Callable[[], EnvBase],
        *,
        worker_idx: int,
        traj_pool: Any = None,
        **kwargs: Any,
    ) -> WorkerCollector:
        """Called by TorchRL's worker loop with the arguments of a plain collector."""
        leave_with_parent()
        # Ctrl-C reaches the whole process group; the parent decides when its workers end.
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        # TorchRL's messages would stand in colors between the plain lines of a log file.
        for handler in logging.getLogger("torchrl").handlers:
            handler.setFormatter(logging.Formatter("%(message)s"))
        seed = self.seeds[worker_idx]
        random.seed(seed)
        np.random.seed(seed)  # noqa: NPY002 - simulators still draw from it
        torch.manual_seed(seed)
        # The rings stand in for the buffer in TorchRL's loop; the collector itself has none.
        for name in ("replay_buffer", "extend_buffer", "init_random_frames"):
            kwargs.pop(name)
        collector = WorkerCollector(
            create_env_fn,
            link=self.link,
            worker_idx=worker_idx,
            traj_pool=traj_pool if self.trajectory_ids == "shared" else None,
            track_traj_ids=self.trajectory_ids != "none",
            **self.options,
            **kwargs,
        )
        collector.set_seed(seed)
        # TorchRL's batched environments set the thread count back when they start.
        torch.set_num_threads(self.threads)
        return collector
