"""Pace of worker processes: each asks for a ticket before every rollout."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

from torchrl._utils import _get_mp_ctx

_NAP = 0.02  # seconds; bounds the delay if a bell rings between the last look and the wait


class Ticket(NamedTuple):
    """Permission to collect `frames` frames; the first has number `start` in the whole run."""

    start: int
    frames: int


class Gates:
    """Gates at which worker processes wait for tickets; subclasses decide when they get one.

    The learner never waits for a lock that a worker may hold when it is killed: workers read
    what the learner writes without a lock.

    Args:
        workers: number of worker processes.
    """

    def __init__(self, *, workers: int) -> None:
        if workers < 1:
            raise ValueError(f"`workers` must be at least 1, got {workers}")
        context = _get_mp_ctx()
        self._workers = workers
        self._stop, self._interrupts = context.RawValue("q", 0), context.RawValue("q", 0)
        self._waiting = context.RawArray("q", workers)
        self._begun = context.RawArray("q", workers)
        self._bells = [context.Semaphore(0) for _ in range(workers)]

    def interrupt(self, on: int) -> None:
        """Calls the workers away from their gates to read messages (1), or lets them return (0)."""
        self._interrupts.value += 1 if on else -1
        self._ring()

    def stop(self) -> None:
        """Refuses all further tickets and wakes all workers."""
        self._stop.value = 1
        self._ring()

    @property
    def interrupted(self) -> bool:
        """True if workers must leave their gates, to stop or to read messages."""
        return bool(self._stop.value or self._interrupts.value)

    @property
    def stopped(self) -> bool:
        """True if :meth:`stop` was called."""
        return bool(self._stop.value)

    def gate(self, worker: int) -> Gate:
        """The gate of worker number `worker`; its process makes it once."""
        return Gate(self, worker)

    def _ticket(self, frames: int, taken: int) -> Ticket | None:
        """A ticket for a worker that has `taken` so many before, or None if it must wait."""
        raise NotImplementedError

    def _ring(self) -> None:
        for worker in range(self._workers):
            if self._waiting[worker]:
                self._waiting[worker] = 0
                self._bells[worker].release()


class Gate:
    """Gate of one worker: `acquire` blocks until the worker may collect.

    >>> gate = Pacer(workers=1, total_frames=5).gate(0)
    >>> gate.acquire(4), gate.acquire(4)
    (Ticket(start=0, frames=4), Ticket(start=4, frames=1))
    """

    def __init__(self, gates: Gates, worker: int) -> None:
        if not 0 <= worker < gates._workers:
            raise ValueError(f"`worker` must lie in [0, {gates._workers}), got {worker}")
        self._gates, self._worker, self._taken = gates, worker, 0

    def acquire(self, frames: int) -> Ticket | None:
        """A ticket for up to `frames` frames, or None if the workers are interrupted."""
        gates, worker = self._gates, self._worker
        while not gates.interrupted:
            ticket = gates._ticket(frames, self._taken)
            if ticket is None:
                gates._waiting[worker] = 1
                # A second look: the learner may have moved on before the flag was up.
                ticket = gates._ticket(frames, self._taken)
                if ticket is None and not gates.interrupted:
                    gates._bells[worker].acquire(timeout=_NAP)
                gates._waiting[worker] = 0
            if ticket is not None:
                self._taken += 1
                return ticket
        return None

    def begin(self) -> None:
        """Says that the weights for the last ticket are taken: newer ones do not change it."""
        self._gates._begun[self._worker] = self._taken


class Pacer(Gates):
    """Tickets for workers and updates for the learner, at a fixed ratio.

    Args:
        workers: number of worker processes.
        updates_per_frame: ratio to hold; `None` leaves both sides free.
        warmup_frames: frames that ask for no update.
        total_frames: frames to grant in all; the last ticket is cut to fit. `None` for no end.
        slack_frames: how far the workers may be ahead of the learner.
        frames_done: frames that a resumed run has collected before.
        updates_done: updates that a resumed run has made before.

    >>> pacer = Pacer(workers=1, updates_per_frame=0.5, warmup_frames=10, slack_frames=4)
    >>> pacer.gate(0).acquire(10)
    Ticket(start=0, frames=10)
    >>> pacer.updates_due(frames=18)
    4
    >>> pacer.note_updates(3)
    >>> pacer.updates_due(frames=18)
    1
    """

    def __init__(
        self,
        *,
        workers: int,
        updates_per_frame: float | None = None,
        warmup_frames: int = 0,
        total_frames: int | None = None,
        slack_frames: int = 0,
        frames_done: int = 0,
        updates_done: int = 0,
    ) -> None:
        super().__init__(workers=workers)
        if updates_per_frame is not None and not 0 < updates_per_frame < math.inf:
            raise ValueError(
                "`updates_per_frame` must be a positive number, or None to leave both sides "
                f"free, got {updates_per_frame}"
            )
        counts = {
            "warmup_frames": warmup_frames,
            "slack_frames": slack_frames,
            "frames_done": frames_done,
            "updates_done": updates_done,
        }
        for name, value in counts.items():
            if value < 0:
                raise ValueError(f"`{name}` must be zero or more, got {value}")
        if total_frames is not None and total_frames < frames_done:
            raise ValueError(
                f"`total_frames` must be at least `frames_done` ({frames_done}), got {total_frames}"
            )
        self._rate, self._warmup = updates_per_frame, warmup_frames
        self._total, self._slack = total_frames, slack_frames
        context = _get_mp_ctx()
        self._frames, self._updates = context.RawValue("q", 0), context.RawValue("q", 0)
        self._held = context.RawValue("q", 0)
        self._lock = context.Lock()  # only workers compete for it
        self.restore(frames=frames_done, updates=updates_done)

    def updates_due(self, frames: int) -> int:
        """Number of updates that the learner owes once `frames` frames have arrived."""
        if self._rate is None:
            return 0
        # 0.1 * 30 and its like fall short of the whole number by one rounding error.
        owed = math.floor(self._rate * (frames - self._warmup) + 1e-6)
        return max(0, owed - self.updates_done)

    def note_updates(self, count: int = 1) -> None:
        """Counts `count` finished updates and wakes the workers that waited for them."""
        self._updates.value += count
        self._ring()

    @property
    def updates_done(self) -> int:
        """Updates counted so far, those of the resumed run included."""
        return self._updates.value

    @property
    def frames_ticketed(self) -> int:
        """Frames granted so far, whether they have arrived or not."""
        return self._frames.value

    def restore(self, *, frames: int, updates: int) -> None:
        """Sets both counters for a resumed run; no worker may be collecting."""
        self._frames.value, self._updates.value = frames, updates

    def hold(self, alive: Callable[[], None]) -> None:
        """Grants no ticket from here on; `alive` raises if a worker that is waited for is dead."""
        self._held.value = 1
        # A worker that looked before the flag rose holds the lock until its ticket is counted.
        while not self._lock.acquire(timeout=_NAP):
            alive()
        self._lock.release()

    def release(self) -> None:
        """Grants tickets again after :meth:`hold`."""
        self._held.value = 0
        self._ring()

    def _ticket(self, frames: int, taken: int) -> Ticket | None:
        return self._grant(frames)

    def _grant(self, frames: int) -> Ticket | None:
        if not self._lock.acquire(timeout=_NAP):
            return None
        try:
            start = self._frames.value
            if self._total is not None:
                frames = min(frames, self._total - start)
            if frames <= 0 or self._held.value or not self._within_reach(start + frames):
                return None
            self._frames.value = start + frames
            return Ticket(start, frames)
        finally:
            self._lock.release()

    def _within_reach(self, frames: int) -> bool:
        if self._rate is None:
            return True
        # The extra update is the fraction of one that `updates_due` rounds away: without it a
        # learner that owes nothing and a worker that may not collect would wait for each other.
        allowed = self._updates.value + self._rate * self._slack + 1
        return (frames - self._warmup) * self._rate <= allowed


class Rounds(Gates):
    """One ticket for each worker in a round, however fast it is.

    >>> rounds = Rounds(workers=1)
    >>> rounds.grant(start=40)
    >>> rounds.gate(0).acquire(4)
    Ticket(start=40, frames=4)
    """

    def __init__(self, *, workers: int) -> None:
        super().__init__(workers=workers)
        context = _get_mp_ctx()
        self._start, self._round = context.RawValue("q", 0), context.RawValue("q", 0)

    def grant(self, *, start: int) -> None:
        """Lets every worker collect once; the first frame of the round has number `start`."""
        # The round last: workers look at it first.
        self._start.value = start
        self._round.value += 1
        self._ring()

    @property
    def begun(self) -> bool:
        """True if every worker has taken its weights for the last round."""
        return min(self._begun) == self._round.value

    def _ticket(self, frames: int, taken: int) -> Ticket | None:
        return Ticket(self._start.value, frames) if self._round.value > taken else None
