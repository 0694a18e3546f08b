"""Pods that only pretend to train, tournaments of them, and machines that are simulated."""

from __future__ import annotations

import hashlib
import heapq
import math
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from torchrl_elegant.algorithms import A2CConfig
from torchrl_elegant.tournament import TournamentConfig
from torchrl_elegant.tournament.executors import Event, Executor, Hear
from torchrl_elegant.tournament.generator import Generator
from torchrl_elegant.tournament.leaderboard import FILE, Leaderboard
from torchrl_elegant.tournament.orchestrator import Orchestrator
from torchrl_elegant.tournament.pod import Link, Order, Result, Stop
from torchrl_elegant.tournament.space import spaces_of
from torchrl_elegant.tournament.store import Store
from torchrl_elegant.tournament.updater import Updater

BYTES = 1_000


def lengths(draws: np.ndarray, mean: float, variation: float) -> np.ndarray:
    """Lognormal lengths from normal draws; ``variation`` is their standard deviation / mean."""
    spread = math.log1p(variation**2)
    return mean * np.exp(math.sqrt(spread) * draws - spread / 2)


def length_of(order: Order, mean: float, variation: float) -> float:
    """Seconds that a pod takes."""
    draw = np.random.default_rng(order.seed).normal(size=1)
    return float(lengths(draw, mean, variation)[0])


def data_of(order: Order) -> bytes:
    """Checkpoint of a pod, of a kilobyte."""
    return f"{order.pod} {order.attempt} ".encode().ljust(BYTES, b"-")


def result_of(order: Order, checkpoint: str, seconds: float) -> Result:
    """Result of a pod, whose score is a draw."""
    return Result(
        pod=order.pod,
        attempt=order.attempt,
        kind="done",
        score=order.seed / 2**31,
        amount=order.budget,
        seconds=seconds,
        checkpoint=checkpoint,
        size=BYTES,
    )


@dataclass(frozen=True)
class Pretended:
    """Work of a pod that sleeps and publishes a checkpoint."""

    store: Store
    seconds: float
    variation: float = 0.0

    def __call__(self, order: Order, link: Link) -> Result:
        begun = time.perf_counter()
        time.sleep(length_of(order, self.seconds, self.variation))
        if order.parent is not None:
            self.store.get(order.parent)
        checkpoint = self.store.put(data_of(order))
        return result_of(order, checkpoint, time.perf_counter() - begun)


class WallClock:
    """Time as it passes."""

    def now(self) -> float:
        """Seconds since some moment."""
        return time.perf_counter()

    def sleep(self, seconds: float) -> None:
        """Let time pass."""
        time.sleep(seconds)


class ProcessorClock(WallClock):
    """Processor time of this process, and what it would have slept; other work does not count.

    It does not see waits for the real disk.
    """

    def __init__(self) -> None:
        self._slept = 0.0

    def now(self) -> float:
        return time.process_time() + self._slept

    def sleep(self, seconds: float) -> None:
        self._slept += seconds


class Simulated:
    """Executor of pods that only pass time, on a clock of its own.

    The clock goes by what the orchestrator takes in truth, and jumps to the next end of a pod while
    nothing is to be done. Files of checkpoints are written without a flush, and that takes no time:
    pods do it on their own machines.

    Args:
        store: checkpoints.
        most: slots.
        mean, variation: of the durations of pods.
        clock: the time that the orchestrator takes.
    """

    is_local = False

    def __init__(
        self, store: Store, most: int, *, mean: float, variation: float, clock: WallClock
    ) -> None:
        self.most: int | None = most
        self._clock = clock
        self._store, self._mean, self._variation = store, mean, variation
        self._ends: list[tuple[float, int, Order]] = []
        self._now, self._left = 0.0, clock.now()
        #: Begin and length of each pod, and seconds from the end of one to the begin of the next.
        self.pods: list[tuple[float, float]] = []
        self.latencies: list[float] = []
        #: The moment at which a slot stayed free first, because nobody waited any more.
        self.drained: float | None = None
        self._free: deque[float] = deque()

    def _come(self) -> None:
        """Let the clock go by the time that the orchestrator has taken."""
        self._now += self._clock.now() - self._left

    def start(self, text: str) -> None:
        self._come()
        order = Order.from_json(text)
        seconds = length_of(order, self._mean, self._variation)
        heapq.heappush(self._ends, (self._now + seconds, order.pod, order))
        self.pods.append((self._now, seconds))
        if self._free and self.drained is None:
            self.latencies.append(self._now - self._free.popleft())
        self._left = self._clock.now()

    def wait(self, seconds: float, hear: Hear) -> None:
        self._come()
        if self._free and self.drained is None:
            self.drained = self._now
        if self._ends and self._ends[0][0] > self._now:
            self._now = min(self._ends[0][0], self._now + seconds)
        while self._ends and self._ends[0][0] <= self._now:
            end, _, order = heapq.heappop(self._ends)
            digest = self._publish(data_of(order))
            self._free.append(end)
            self._left = self._clock.now()
            hear(Event(pod=order.pod, attempt=order.attempt, result=result_of(order, digest, 0.0)))
            self._come()
        self._left = self._clock.now()

    def idle(self) -> float:
        """Part of all slots' time in which they had nothing to do, until nobody waited any more."""
        end = self.drained or self._now
        busy = sum(max(0.0, min(begin + seconds, end) - begin) for begin, seconds in self.pods)
        return 1 - busy / (end * (self.most or 1))

    def _publish(self, data: bytes) -> str:
        digest = hashlib.sha256(data).hexdigest()
        (self._store.path / digest).write_bytes(data)
        return digest

    def stop(self, pod: int, reason: Stop) -> None:
        pass

    def kill(self, pod: int) -> None:
        pass

    def close(self) -> None:
        pass


class SlowDisk(Leaderboard):
    """Leaderboard each of whose commits takes ``seconds`` longer, as on a slow disk."""

    seconds = 0.0
    clock = WallClock()

    @contextmanager
    def transaction(self) -> Iterator[None]:
        with super().transaction():
            before = self._db.total_changes
            yield
            # What writes nothing flushes nothing.
            if self._db.total_changes != before:
                self.clock.sleep(self.seconds)


def tournament_of(
    folder: Path,
    executor: Callable[[Store, Path], Executor],
    *,
    pods: int,
    population: int,
    slots: int | None,
    commit: float = 0.0,
    clock: WallClock | None = None,
    kind: type[Orchestrator] = Orchestrator,
) -> Orchestrator:
    """A tournament of pretended pods in a new folder, whose commits take ``commit`` s longer."""
    for name in ("checkpoints", "results"):
        (folder / name).mkdir()
    config = TournamentConfig(
        budget=pods, quantum=1, population=population, recheck=False, finalists=1
    )
    store, space = Store(folder / "checkpoints"), {"lr": "log:1e-5..1e-2"}
    meta = {"config": {"budget": pods, "unit": "frames"}}
    Leaderboard.create(folder / FILE, meta, population=population).close()
    board = SlowDisk(folder / FILE)
    board.seconds = commit
    board.clock = clock or WallClock()
    return kind(
        folder,
        board=board,
        store=store,
        config=config,
        generator=Generator(board, config, spaces_of([A2CConfig()], space), seed=0),
        updater=Updater(board, store, config),
        executor=executor(store, folder / "results"),
        slots=None if slots is None else lambda: slots,
    )
