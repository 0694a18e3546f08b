"""Live table of a tournament in a terminal, and a line now and then where there is none."""

from __future__ import annotations

import logging
import os
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, TextIO

from tqdm import tqdm

from torchrl_elegant.tournament.views.standings import Row, Standings, score_text
from torchrl_elegant.tournament.views.watcher import Pace

logger = logging.getLogger(__name__)

# Seconds between two tables, and between two lines.
_TABLE, _LINE = 0.4, 30.0
# Seconds over which the present rate is taken.
_WINDOW = 300.0
_HEAD = ("member", "algorithm", "depth", "score", "best", "state", "pod")


class Rate:
    """Time that is left at the present rate, which is that of the last minutes.

    >>> rate = Rate(budget=100.0)
    >>> rate.left(0.0, now=0.0) is None, rate.left(20.0, now=4.0)
    (True, 16.0)
    """

    def __init__(self, budget: float) -> None:
        self._budget = budget
        self._seen: deque[tuple[float, float]] = deque()

    def left(self, used: float, *, now: float) -> float | None:
        """Seconds that the rest will take; None while nothing is known of the rate."""
        if not self._seen or used > self._seen[-1][1]:
            self._seen.append((now, used))
        while len(self._seen) > 2 and self._seen[1][0] < now - _WINDOW:
            self._seen.popleft()
        start, before = self._seen[0]
        if used <= before or now <= start:
            return None
        return max(0.0, self._budget - used) * (now - start) / (used - before)


class TerminalTable:
    """Table at the foot of a terminal that is drawn anew while a tournament runs.

    Args:
        standings: what it shows.
        file: the terminal.
    """

    def __init__(self, standings: Standings, file: TextIO) -> None:
        self._standings, self._rate = standings, Rate(standings.budget)
        self._pace = Pace(_TABLE, share=0.005)
        self._screen: _Screen | None = _Screen(file)

    def look(self, slots: int) -> None:
        """Draw the table anew, twice a second."""
        if self._screen is None or not self._pace.is_due():
            return
        with self._pace.look(), self._gone_terminal():
            self._standings.look()
            left = self._rate.left(self._standings.used, now=time.monotonic())
            self._screen.show(lines(self._standings, slots, left, self._screen.height))

    def close(self) -> None:
        """Remove the table: what ends is told elsewhere."""
        with self._gone_terminal():
            if self._screen is not None:
                self._screen.close()

    @contextmanager
    def _gone_terminal(self) -> Iterator[None]:
        """Draw no more where the terminal was closed: the tournament goes on."""
        try:
            yield
        except OSError:
            self._screen = None


class TerminalLines:
    """A line in the log now and then, for output that goes to a file.

    Args:
        standings: what it tells.
    """

    def __init__(self, standings: Standings) -> None:
        self._standings, self._rate = standings, Rate(standings.budget)
        self._pace, self._told = Pace(_LINE, share=0.005), -1
        with self._pace.look():
            pass

    def look(self, slots: int) -> None:
        """Log a line, twice a minute, if any pod has finished since the last."""
        if not self._pace.is_due():
            return
        with self._pace.look():
            self._standings.look()
            over = sum(self._standings.counts[state] for state in ("done", "failed", "ended"))
            left = self._rate.left(self._standings.used, now=time.monotonic())
            if over != self._told:
                self._told = over
                logger.info("%s", " | ".join(summary(self._standings, slots, left)))

    def close(self) -> None:
        """Do nothing: the end is logged by others."""


def summary(standings: Standings, slots: int, left: float | None) -> list[str]:
    """Parts of a line: budget, pods, slots, the best, and the time that is left."""
    unit, counts = standings.config["unit"], standings.counts
    share = 100 * standings.used / standings.budget
    pods = [f"{counts[state]} {state}" for state in ("done", "running", "ended", "failed")]
    told = [
        f"{unit} {standings.used:,.0f} of {standings.budget:,.0f} ({share:.0f} %)",
        "pods " + ", ".join(text for text in pods if not text.startswith("0 ")),
        f"slots {slots}",
    ]
    leader = standings.leader()
    if leader is not None:
        told.append(f"best {score_text(leader)} by pod {leader.id} ({leader.algorithm})")
    if standings.used >= standings.budget:
        told.append("final evaluation")
    elif left is not None:
        told.append(f"about {_clock(left)} left")
    return told


def lines(standings: Standings, slots: int, left: float | None, most: int) -> list[str]:
    """The table as at most ``most`` lines: a summary, members, the last failures."""
    parts = summary(standings, slots, left)
    head = [" | ".join([standings.env, *parts[:3]]).lstrip(" |"), " | ".join(parts[3:])]
    foot = [_failure(row) for row in standings.failed[-2:]]
    room = max(1, most - len(head) - len(foot) - 2)
    best = standings.best
    members = sorted(
        standings.newest, key=lambda one: (one not in best, -_score(best.get(one)), one)
    )
    rows = [_HEAD, *(_cells(standings, member) for member in members[:room])]
    hidden = len(members) - room
    more = [f"... and {hidden} more"] if hidden > 0 else []
    shown = [*head, *columns(rows), *more, *foot]
    return [line for line in shown if line]


def columns(rows: list[tuple[str, ...]]) -> list[str]:
    """Rows of cells as lines whose columns stand below one another.

    >>> columns([("a", "long"), ("bbb", "c")])
    ['a    long', 'bbb  c']
    """
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    ]


def _cells(standings: Standings, member: int) -> tuple[str, ...]:
    newest, best = standings.newest[member], standings.best.get(member)
    scored = standings.done.get(member)
    return (
        *map(str, (member, newest.algorithm, newest.depth)),
        "" if scored is None else score_text(scored),
        "" if best is None else f"{best.score:.2f}",
        newest.state,
        f"{newest.id}: {newest.origin}",
    )


def _score(row: Row | None) -> float:
    return 0.0 if row is None else float(row.score or 0.0)


def _failure(row: Row) -> str:
    return " ".join(f"failed: pod {row.id} ({row.algorithm}): {row.error}".split())


def _clock(seconds: float) -> str:
    """Seconds as hours, minutes and seconds.

    >>> _clock(75.0), _clock(3_600.0)
    ('1:15', '1:00:00')
    """
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


class _Screen(tqdm):
    """Lines at the foot of the terminal, above which all stands that ``tqdm.write`` writes.

    It hides no cursor and keeps no mode of the terminal, so that none is left behind. Every line
    is cut to the terminal's width; one that is made narrower breaks older lines, which are counted
    as they stand then.
    """

    # No thread that watches over steps, of which there are none.
    monitor_interval = 0

    def __init__(self, file: TextIO) -> None:
        self._drawn: list[str] = []
        self._lines: list[str] = []
        super().__init__(file=file, leave=False)

    @property
    def height(self) -> int:
        """Lines that fit."""
        return self._size().lines - 1

    def _size(self) -> os.terminal_size:
        # Not that of stdout, which may be a file. Some terminals do not tell theirs.
        size = os.get_terminal_size(self.fp.fileno())
        return os.terminal_size((size.columns or 80, size.lines or 24))

    def show(self, lines: list[str]) -> None:
        """Put other lines in the place of those before."""
        self._lines = lines
        self.refresh()

    def display(self, msg: str | None = None, pos: int | None = None) -> bool:
        """Draw the lines; none at the end."""
        lines = self._lines if msg is None else []
        width = self._size().columns
        shown = ["".join(c for c in line if c.isprintable())[: width - 1] for line in lines]
        self.fp.write(self._erasing(width) + "".join(f"{line}\n" for line in shown))
        self.fp.flush()
        self._drawn = shown
        return True

    def clear(self, *_: Any, **__: Any) -> None:
        """Remove the lines, so that others can be written there."""
        self.fp.write(self._erasing(self._size().columns))
        self._drawn = []

    def _erasing(self, width: int) -> str:
        rows = sum(max(1, -(-len(line) // width)) for line in self._drawn)
        return f"\r\x1b[{rows}A\x1b[J" if rows else ""
