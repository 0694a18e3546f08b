"""How fast a run goes, for its rows and its last line."""

from __future__ import annotations

from collections.abc import Mapping

from torchrl_elegant.trainers.clock import ACTIVITIES, Clock

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
