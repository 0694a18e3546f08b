"""Pace of worker processes beside a learner."""

from __future__ import annotations

import math
from collections.abc import Callable
from multiprocessing.context import BaseContext
from typing import NamedTuple

from torchrl._utils import _get_mp_ctx

_NAP = 0.02  # seconds; bounds the delay should a bell ring between the last look and the wait

_TICKETED, _UPDATES, _STOP, _INTERRUPT, _HOLD, _HEADER = range(6)


class Ticket(NamedTuple):
    """Leave to collect `frames` frames, the first being number `start` of the whole run."""

    start: int
    frames: int


class Pacer:
    """Grants frames to workers and updates to the learner at a fixed ratio.

    The learner never waits for a lock that a worker might hold when it is killed: what it writes
    is read by the workers without one, and only workers compete for tickets.

    Args:
        workers: number of worker processes.
        updates_per_frame: ratio to hold; `None` leaves both sides free.
        warmup_frames: frames that ask for no update.
        total_frames: frames to grant in all, the last ticket being cut to fit; `None` for no end.
        slack_frames: how far the workers may be ahead of the learner.
        frames_done: frames already collected by the run that is resumed.
        updates_done: updates already made by the run that is resumed.
        context: multiprocessing context; TorchRL's by default.

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
        context: BaseContext | None = None,
    ) -> None:
        if workers < 1:
            raise ValueError(f"`workers` must be at least 1, got {workers}")
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
        self.updates_per_frame = updates_per_frame
        self.warmup_frames = warmup_frames
        self.total_frames = total_frames
        self.slack_frames = slack_frames
        self._workers = workers
        context = _get_mp_ctx() if context is None else context
        self._cells = context.RawArray("q", _HEADER + workers)
        self._lock = context.Lock()
        self._bells = [context.Semaphore(0) for _ in range(workers)]
        self.restore(frames=frames_done, updates=updates_done)

    # The learner's side

    def updates_due(self, frames: int) -> int:
        """How many updates the learner owes once `frames` frames have arrived."""
        if self.updates_per_frame is None:
            return 0
        # 0.1 * 30 and its like fall short of the whole number by one rounding error.
        owed = math.floor(self.updates_per_frame * (frames - self.warmup_frames) + 1e-6)
        return max(0, owed - self.updates_done)

    def note_updates(self, count: int = 1) -> None:
        """Enters `count` finished updates and wakes the workers that waited for them."""
        self._cells[_UPDATES] += count
        self._ring()

    @property
    def updates_done(self) -> int:
        """Updates entered so far, those of the resumed run included."""
        return self._cells[_UPDATES]

    @property
    def frames_ticketed(self) -> int:
        """Frames granted so far, in flight ones included."""
        return self._cells[_TICKETED]

    def restore(self, *, frames: int, updates: int) -> None:
        """Sets both counters, for a run that resumes; no worker may be collecting."""
        self._cells[_TICKETED] = frames
        self._cells[_UPDATES] = updates

    def hold(self, alive: Callable[[], None]) -> None:
        """Grants no ticket from here on; `alive` raises if the wait for a worker is in vain."""
        self._cells[_HOLD] = 1
        # A worker that looked before the flag rose holds the lock until its ticket is entered.
        while not self._lock.acquire(timeout=_NAP):
            alive()
        self._lock.release()

    def release(self) -> None:
        """Grants tickets again after :meth:`hold`."""
        self._cells[_HOLD] = 0
        self._ring()

    def interrupt(self, on: int) -> None:
        """Calls the workers out of the gate (1) so that they read their mail, or lets go (0)."""
        self._cells[_INTERRUPT] += 1 if on else -1
        self._ring()

    def stop(self) -> None:
        """Refuses every ticket for good and wakes all workers."""
        self._cells[_STOP] = 1
        self._ring()

    def _ring(self) -> None:
        for worker in range(self._workers):
            if self._cells[_HEADER + worker]:
                self._cells[_HEADER + worker] = 0
                self._bells[worker].release()

    # The workers' side

    @property
    def interrupted(self) -> bool:
        """Whether workers must leave the gate, to stop or to read their mail."""
        return bool(self._cells[_STOP] or self._cells[_INTERRUPT])

    @property
    def stopped(self) -> bool:
        """Whether :meth:`stop` was called."""
        return bool(self._cells[_STOP])

    def gate(self, worker: int) -> Gate:
        """The gate that worker number `worker` passes before each rollout."""
        return Gate(self, worker)

    def _grant(self, frames: int) -> Ticket | None:
        if not self._lock.acquire(timeout=_NAP):
            return None
        try:
            start = self._cells[_TICKETED]
            if self.total_frames is not None:
                frames = min(frames, self.total_frames - start)
            if frames <= 0 or self._cells[_HOLD] or not self._within_reach(start + frames):
                return None
            self._cells[_TICKETED] = start + frames
            return Ticket(start, frames)
        finally:
            self._lock.release()

    def _within_reach(self, frames: int) -> bool:
        rate = self.updates_per_frame
        if rate is None:
            return True
        # The extra update is the fraction of one that `updates_due` rounds away: without it a
        # learner that owes nothing and a worker that may not collect would wait for each other.
        allowed = self._cells[_UPDATES] + rate * self.slack_frames + 1
        return (frames - self.warmup_frames) * rate <= allowed


class Gate:
    """One worker's way to its tickets: `acquire` blocks until it may collect.

    >>> gate = Pacer(workers=1, total_frames=5).gate(0)
    >>> gate.acquire(4), gate.acquire(4)
    (Ticket(start=0, frames=4), Ticket(start=4, frames=1))
    """

    def __init__(self, pacer: Pacer, worker: int) -> None:
        if not 0 <= worker < pacer._workers:
            raise ValueError(f"`worker` must lie in [0, {pacer._workers}), got {worker}")
        self._pacer, self._worker = pacer, worker

    def acquire(self, frames: int) -> Ticket | None:
        """A ticket for up to `frames` frames, or None once the pacer interrupts."""
        pacer, flag = self._pacer, _HEADER + self._worker
        while not pacer.interrupted:
            ticket = pacer._grant(frames)
            if ticket is None:
                pacer._cells[flag] = 1
                # A second look: the learner may have moved on before the flag was up.
                ticket = pacer._grant(frames)
                if ticket is None and not pacer.interrupted:
                    pacer._bells[self._worker].acquire(timeout=_NAP)
                pacer._cells[flag] = 0
            if ticket is not None:
                return ticket
        return None

    def began(self) -> None:
        """Called once the weights for a rollout are taken; nobody asks here."""


class Turns(Pacer):
    """A pacer that gives each worker one ticket a round, whoever is the faster.

    Args:
        workers: number of worker processes.
        context: multiprocessing context; TorchRL's by default.

    >>> turns = Turns(workers=1)
    >>> turns.grant(start=40)
    >>> turns.gate(0).acquire(4)
    Ticket(start=40, frames=4)
    """

    def __init__(self, *, workers: int, context: BaseContext | None = None) -> None:
        context = _get_mp_ctx() if context is None else context
        super().__init__(workers=workers, context=context)
        self._rounds = context.RawValue("q", 0)
        self._start = context.RawValue("q", 0)
        self._begun = context.RawArray("q", workers)

    def grant(self, *, start: int) -> None:
        """Lets every worker collect once; the first frame of the round is number `start`."""
        # The count last: it is what workers look at.
        self._start.value = start
        self._rounds.value += 1
        self._ring()

    @property
    def begun(self) -> bool:
        """Whether every worker has taken up the weights for its turn of the last round."""
        return min(self._begun) == self._rounds.value

    def gate(self, worker: int) -> TurnGate:
        """The gate that worker number `worker` passes before each rollout."""
        return TurnGate(self, worker)


class TurnGate(Gate):
    """One worker's way to its tickets: `acquire` blocks until the round has begun."""

    def __init__(self, turns: Turns, worker: int) -> None:
        super().__init__(turns, worker)
        self._turns, self._taken = turns, 0

    def acquire(self, frames: int) -> Ticket | None:
        """A ticket for `frames` frames, or None once the pacer interrupts."""
        turns, flag = self._turns, _HEADER + self._worker
        while not turns.interrupted:
            if turns._rounds.value > self._taken:
                self._taken += 1
                return Ticket(turns._start.value, frames)
            turns._cells[flag] = 1
            # A second look: the round may have begun before the flag was up.
            if turns._rounds.value == self._taken and not turns.interrupted:
                turns._bells[self._worker].acquire(timeout=_NAP)
            turns._cells[flag] = 0
        return None

    def began(self) -> None:
        """Says that this turn's weights are taken: newer ones no longer change it."""
        self._turns._begun[self._worker] = self._taken
