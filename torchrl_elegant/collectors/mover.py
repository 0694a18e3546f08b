"""Moves finished rows from the workers' stage into the replay buffer, beside the learner."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable

import torch
from tensordict import TensorDictBase
from torchrl.data import ReplayBuffer

from torchrl_elegant.collectors.staging import RowStage

_NAP = 0.1  # seconds between two looks at whether to stop or whether the workers live
_NEWEST = 1024  # rows kept for whoever asks what is new

# Episodes kept for a caller who may never ask.
_EPISODES = 10_000


class RowMover:
    """The thread through which alone rows reach the buffer; it counts them.

    Args:
        stage: where workers leave their rows.
        buffer: where the rows go.
        workers: number of rings of the stage.
    """

    def __init__(self, stage: RowStage, buffer: ReplayBuffer, *, workers: int) -> None:
        if not hasattr(buffer, "extend"):
            raise TypeError(
                f"`replay_buffer` must be a ReplayBuffer, got {type(buffer).__name__}; to "
                "iterate over batches without one use MultiaSyncDataCollector"
            )
        self.frames = 0
        self.failure: BaseException | None = None
        self._stage, self._buffer, self._workers = stage, buffer, workers
        self._episodes: deque[tuple[float, int]] = deque(maxlen=_EPISODES)
        self._new: deque[TensorDictBase] = deque()
        self._moving = threading.Lock()
        self._arrival = threading.Condition()
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="row-mover", daemon=True)

    @property
    def started(self) -> bool:
        """Whether :meth:`start` was called."""
        return self._thread.ident is not None

    def start(self) -> None:
        """Begins to move rows."""
        self._thread.start()

    def stop(self) -> None:
        """Ends the thread and moves what is left; to be called once no worker writes."""
        self._stopped.set()
        if self.started and self.failure is None:
            self._thread.join()
            self._move()

    def wait_for(self, frames: int, *, alive: Callable[[], None], timeout: float | None) -> bool:
        """Waits until `frames` rows have moved; False when time ran out before."""
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
        """Return and length of the episodes that ended since the last call, the newest 10,000."""
        with self._moving:
            episodes = [*self._episodes]
            self._episodes.clear()
        return episodes

    def newest(self) -> TensorDictBase | None:
        """The rows moved since the last call, the last 1024 at most; None without any."""
        with self._moving:
            rows, self._new = list(self._new), deque()
        return torch.cat(rows)[-_NEWEST:] if rows else None

    def _run(self) -> None:
        try:
            while not self._stopped.is_set():
                if self._stage.bell.acquire(timeout=_NAP):
                    self._move()
        except BaseException as failure:
            self.failure = failure

    def _move(self) -> None:
        with self._moving:
            for worker in range(self._workers):
                rows, episodes = self._stage.take(worker)
                self._episodes.extend(episodes)
                if rows is None:
                    continue
                self._buffer.extend(rows)
                self._keep(rows)
                with self._arrival:
                    self.frames += len(rows)
                    self._arrival.notify_all()

    def _keep(self, rows: TensorDictBase) -> None:
        self._new.append(rows)
        kept = sum(map(len, self._new))
        while kept - len(self._new[0]) >= _NEWEST:
            kept -= len(self._new.popleft())
