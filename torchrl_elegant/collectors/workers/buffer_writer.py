"""Thread that moves finished rows from the workers' rings into the replay buffer."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import TypeAlias

from tensordict import TensorDictBase
from torchrl.data import ReplayBuffer

from torchrl_elegant.collectors.workers.rings import RowRings
from torchrl_elegant.data import without_junk

#: Newest rows that are kept for `arrivals`, unless the caller asks for another number.
ROWS_KEPT = 1024

_NAP = 0.1  # seconds between two looks at whether to stop or whether the workers live
_EPISODES = 10_000  # newest episodes that are kept for a caller who may never ask

#: Takes a batch ``[envs, time]``, returns the rows to store for it and for those before.
Fold: TypeAlias = Callable[[TensorDictBase], TensorDictBase]


class BufferWriter:
    """Only thread that writes to the buffer; it keeps the count of the run's frames.

    Args:
        rings: where workers leave their rows.
        buffer: where the rows go.
        workers: number of rings.
        folds: one per worker, from its batches ``[envs, time]`` to the rows that are stored; by
            default the rows of the batches.
        envs: environments of a worker.
        keep: newest rows kept for `arrivals`, in whole pieces; None for all.
    """

    def __init__(
        self,
        rings: RowRings,
        buffer: ReplayBuffer,
        *,
        workers: int,
        folds: Sequence[Fold] = (),
        envs: int = 1,
        keep: int | None = ROWS_KEPT,
    ) -> None:
        if not isinstance(buffer, ReplayBuffer):
            raise TypeError(
                f"`replay_buffer` must be a ReplayBuffer, got {type(buffer).__name__}; to "
                "iterate over batches without one use MultiaSyncDataCollector"
            )
        self.frames = 0
        self.failure: BaseException | None = None
        self._rings, self._buffer, self._workers = rings, buffer, workers
        self._episodes: deque[tuple[float, int]] = deque(maxlen=_EPISODES)
        self._folds, self._envs, self._most = folds, envs, keep
        self._new: deque[tuple[int, TensorDictBase]] = deque()
        self._moving = threading.Lock()
        self._arrival = threading.Condition()
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="buffer-writer", daemon=True)

    @property
    def started(self) -> bool:
        """True if :meth:`start` was called."""
        return self._thread.ident is not None

    def start(self) -> None:
        """Begins to move rows."""
        self._thread.start()

    def stop(self) -> None:
        """Ends the thread and moves the rows that are left; call it once no worker writes."""
        self._stopped.set()
        if self.started and self.failure is None:
            self._thread.join()
            self._move()

    def wait_for(self, frames: int, *, alive: Callable[[], None], timeout: float | None) -> bool:
        """Waits until the count of frames is `frames`; False if the time ran out before."""
        deadline = None if timeout is None else time.monotonic() + timeout
        with self._arrival:
            while self.frames < frames:
                alive()
                left = _NAP if deadline is None else min(_NAP, deadline - time.monotonic())
                if left <= 0:
                    return False
                self._arrival.wait(left)
        return True

    def episodes(self) -> list[tuple[float, int]]:
        """Return and length of the newest episodes that ended since the last call."""
        with self._moving:
            episodes = [*self._episodes]
            self._episodes.clear()
        return episodes

    def arrivals(self) -> list[tuple[int, TensorDictBase]]:
        """Pairs of a worker's number and its steps ``[envs, time]`` since the last call."""
        with self._moving:
            new, self._new = list(self._new), deque()
        size = self._rings.rows_per_slot
        return [(worker, self._in_time(rows)) for worker, rows in new if len(rows) >= size]

    def _run(self) -> None:
        try:
            while not self._stopped.is_set():
                if self._rings.bell.acquire(timeout=_NAP):
                    self._move()
        except BaseException as failure:
            self.failure = failure

    def _move(self) -> None:
        with self._moving:
            for worker in range(self._workers):
                rows, episodes = self._rings.take(worker)
                self._episodes.extend(episodes)
                if rows is None:
                    continue
                self._store(worker, rows)
                self._keep(worker, rows)
                with self._arrival:
                    self.frames += len(rows)
                    self._arrival.notify_all()

    def _store(self, worker: int, rows: TensorDictBase) -> None:
        if self._folds:
            if len(rows) < self._rings.rows_per_slot:
                return
            rows = self._folds[worker](self._in_time(rows))
        rows = without_junk(rows)
        if len(rows):
            self._buffer.extend(rows)

    def _in_time(self, rows: TensorDictBase) -> TensorDictBase:
        """``[envs, time]`` of whole batches; the rest of a last batch that was cut is left out."""
        size, envs = self._rings.rows_per_slot, self._envs
        batches = len(rows) // size
        whole = rows[: batches * size].reshape(batches, envs, size // envs)
        return whole.transpose(0, 1).reshape(envs, batches * size // envs)

    def _keep(self, worker: int, rows: TensorDictBase) -> None:
        self._new.append((worker, rows))
        if self._most is None:
            return
        kept = sum(len(rows) for _, rows in self._new)
        while kept - len(self._new[0][1]) >= self._most:
            kept -= len(self._new.popleft()[1])
