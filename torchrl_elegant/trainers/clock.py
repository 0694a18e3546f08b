"""Time of a run, divided among its activities."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping
from types import TracebackType
from typing import TypeVar

Item = TypeVar("Item")

ACTIVITIES = ("collect", "wait", "sample", "learn", "evaluate", "save", "other")


class Clock:
    """Divides the time of one thread among ``ACTIVITIES``; every moment counts for exactly one.

    At every moment one activity is under way, ``other`` where nothing else is named. Inside
    ``during("evaluate")`` a ``during("save")`` counts as saving alone. To enter and leave one costs
    less than a microsecond.

    Not ``torchrl.timeit``, which keeps one table of names for the whole process: two runs in
    threads, or one inside another, would be added up, any ``timeit.erase()`` would empty both,
    nested blocks count twice, and its ``time.time`` jumps when the system's clock is set.

    No GPU is waited for. There a kernel runs on after the call that queued it, and its time is
    found where the host next waits for a result: mostly in collection, which needs the actions,
    and in ``other``, which reads the means of a row. The shares then say where the host was.

    Belongs to one thread; stored nowhere.

    >>> clock = Clock()
    >>> for batch in clock.over(["first", "second"], "collect"):
    ...     with clock.during("learn"):
    ...         loss = len(batch)
    >>> seconds = clock.seconds()
    >>> seconds["collect"] > 0, seconds["learn"] > 0, seconds["save"]
    (True, True, 0.0)
    """

    __slots__ = ("_activity", "_seconds", "_since")

    def __init__(self) -> None:
        self._seconds = dict.fromkeys(ACTIVITIES, 0.0)
        self._activity = "other"
        self._since = time.perf_counter()

    def switch(self, activity: str) -> str:
        """Begin ``activity`` and end the one under way, whose name is returned."""
        if activity not in self._seconds:
            raise ValueError(
                f"`activity` must be one of {', '.join(ACTIVITIES)}, got `{activity}`; the columns "
                "of metrics.csv are made of these"
            )
        now = time.perf_counter()
        before = self._activity
        self._seconds[before] += now - self._since
        self._activity, self._since = activity, now
        return before

    def during(self, activity: str) -> _During:
        """A context whose time is that of ``activity``."""
        return _During(self, activity)

    def over(self, items: Iterable[Item], activity: str) -> Iterator[Item]:
        """The items; the time it takes to come by each of them is that of ``activity``."""
        iterator = iter(items)
        while True:
            before = self.switch(activity)
            try:
                item = next(iterator)
            except StopIteration:
                return
            finally:
                self.switch(before)
            yield item

    def seconds(self) -> dict[str, float]:
        """Seconds of each activity since the clock was made; together, all of the time."""
        self.switch(self._activity)
        return dict(self._seconds)


class _During:
    """A class, because a context made by ``contextmanager`` costs three times as much."""

    __slots__ = ("_activity", "_before", "_clock")

    def __init__(self, clock: Clock, activity: str) -> None:
        self._clock, self._activity = clock, activity

    def __enter__(self) -> None:
        self._before = self._clock.switch(self._activity)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._clock.switch(self._before)


PACE_COLUMNS = (
    "frames_per_second",
    "updates_per_second",
    *(f"share_{activity}" for activity in ACTIVITIES),
)


class Pace:
    """Rates, and the share of each activity in the time, which add up to one.

    Args:
        clock: the run's.
        frames: frames that the run had when the clock was made.
        updates: updates likewise.

    >>> clock = Clock()
    >>> pace = Pace(clock, frames=0, updates=0)
    >>> row = pace.row(frames=100, updates=50)
    >>> row["share_other"], row["frames_per_second"] / row["updates_per_second"]
    (1.0, 2.0)
    """

    def __init__(self, clock: Clock, *, frames: int, updates: int) -> None:
        self._clock = clock
        self._start = self._last = (frames, updates, dict.fromkeys(ACTIVITIES, 0.0))

    @property
    def seconds(self) -> float:
        """Seconds since the clock was made."""
        return sum(self._clock.seconds().values())

    def row(self, *, frames: int, updates: int) -> dict[str, float]:
        """``PACE_COLUMNS`` of the time since the last call."""
        now = (frames, updates, self._clock.seconds())
        before, self._last = self._last, now
        return _between(before, now)

    def summary(self, *, frames: int, updates: int) -> str:
        """One line about the time since the clock was made."""
        return _line(_between(self._start, (frames, updates, self._clock.seconds())))


_Moment = tuple[int, int, dict[str, float]]


def _between(before: _Moment, after: _Moment) -> dict[str, float]:
    seconds = {name: value - before[2][name] for name, value in after[2].items()}
    total = sum(seconds.values())
    values = (after[0] - before[0], after[1] - before[1], *seconds.values())
    return {name: value / total for name, value in zip(PACE_COLUMNS, values, strict=True)}


def _line(columns: Mapping[str, float]) -> str:
    shares = ((name, columns[f"share_{name}"]) for name in ACTIVITIES)
    # What a run never does, such as waiting for workers it has not, is left out.
    parts = ", ".join(f"{name} {100 * share:.0f} %" for name, share in shares if share > 0)
    frames, updates = columns["frames_per_second"], columns["updates_per_second"]
    return f"time: {parts} | {frames:.0f} frames/s, {updates:.0f} updates/s"
