"""Standings: what watchers know of a tournament, read from its leaderboard bit by bit."""

from __future__ import annotations

import json
import sqlite3
from collections import Counter
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import yaml

from torchrl_elegant.config.text import as_text
from torchrl_elegant.tournament.leaderboard import FILE

_OPEN = ("queued", "running")


class Row(NamedTuple):
    """A pod, as watchers see it."""

    id: int
    state: str
    operation: str
    member: int | None
    depth: int
    parents: str
    lineage: int
    algorithm: str
    options: str
    score: float | None
    score_error: float | None
    episodes: int | None
    amount: float
    frames: int | None
    error: str | None
    created: str
    ended: str | None

    @property
    def ancestors(self) -> list[int]:
        """Pods that it went on from."""
        # Faster than JSON, and asked for often.
        return [int(pod) for pod in self.parents[1:-1].split(",") if pod]

    @property
    def values(self) -> dict[str, Any]:
        """Values of the searched options."""
        found: dict[str, Any] = json.loads(self.options)
        return found

    @property
    def origin(self) -> str:
        """Operation and parents in words.

        >>> Row(*[3, "done", "exploit", 0, 2, "[1]"], *[None] * 11).origin
        'exploit of 1'
        """
        others = " and ".join(map(str, self.ancestors))
        return f"{self.operation} of {others}" if others else self.operation


_COLUMNS = ", ".join(Row._fields)
_GIVEN = f"SELECT {_COLUMNS} FROM pod WHERE id IN (SELECT value FROM json_each(?)) ORDER BY id"
_LATER = f"SELECT {_COLUMNS} FROM pod WHERE id > ? ORDER BY id"


class Standings:
    """Pods and members of a tournament, by a connection that only reads.

    A look reads pods that are new or were not over at the last one. So it costs as much as what has
    happened since, however long the tournament has been running.

    Args:
        folder: that of the tournament.
    """

    def __init__(self, folder: Path) -> None:
        place = f"{(folder / FILE).absolute().as_uri()}?mode=ro"
        # Made in one thread and used in another, never in two at a time.
        self._db = sqlite3.connect(place, uri=True, check_same_thread=False)
        self.folder = folder
        #: Pods by their numbers.
        self.pods: dict[int, Row] = {}
        #: Newest pod of each member that has one, its newest that is done, and its best.
        self.newest: dict[int, Row] = {}
        self.done: dict[int, Row] = {}
        self.best: dict[int, Row] = {}
        #: Pods of training in each state.
        self.counts: Counter[str] = Counter()
        #: Units that pods have used which are over.
        self.used = 0.0
        self.failed: list[Row] = []
        self._open: set[int] = set()
        self._members: dict[int, list[int]] = {}
        self.config: dict[str, Any] = {}
        self._read_meta()

    def close(self) -> None:
        """Close the connection."""
        self._db.close()

    def look(self) -> None:
        """Read what has changed."""
        self._take(_GIVEN, json.dumps(sorted(self._open)))
        self._take(_LATER, max(self.pods, default=0))

    @property
    def budget(self) -> float:
        """Units that all pods together may use."""
        return float(self.config["budget"])

    @property
    def is_over(self) -> bool:
        """True once the finalists are evaluated."""
        return bool(self.finals()) and not self._open

    def ranked(self) -> list[Row]:
        """The best pod of each member that has one, the best first."""
        return sorted(self.best.values(), key=lambda row: (-float(row.score or 0.0), row.id))

    def finals(self) -> list[Row]:
        """Final evaluations that are done, the best first."""
        # They come last.
        found = []
        for row in reversed(self.pods.values()):
            if row.operation != "final":
                break
            found.append(row)
        done = [row for row in found if row.state == "done"]
        return sorted(done, key=lambda row: (-float(row.score or 0.0), row.id))

    def leader(self) -> Row | None:
        """The winner once there is one, and whoever leads until then."""
        finals = self.finals()
        if finals and self.is_over:
            return self.pods[finals[0].ancestors[0]]
        return min(
            self.best.values(), key=lambda row: (-float(row.score or 0), row.id), default=None
        )

    def ancestry(self, row: Row | None) -> list[Row]:
        """A pod and those that it comes from, the first parent of each, the oldest last."""
        found = []
        while row is not None:
            found.append(row)
            row = self.pods[row.ancestors[0]] if row.ancestors else None
        return found

    def medians(self) -> dict[str, float]:
        """Median of each searched number over the newest pods of the members."""
        found: dict[str, list[float]] = {}
        for row in self.newest.values():
            for word, value in row.values.items():
                if isinstance(value, (int, float)) and not isinstance(value, bool):
                    found.setdefault(word, []).append(value)
        return {word: median(values) for word, values in sorted(found.items())}

    def _take(self, query: str, value: Any) -> None:
        rechecked = []
        for values in self._db.execute(query, (value,)):
            row = Row(*values)
            before = self.pods.get(row.id)
            self.pods[row.id] = row
            if row.state in _OPEN:
                self._open.add(row.id)
            else:
                self._open.discard(row.id)
            if row.state == "failed" and (before is None or before.state != "failed"):
                self.failed.append(row)
            if row.member is not None:
                self._count(before, row)
            elif row.operation == "recheck" and row.state == "done":
                rechecked += row.ancestors
        if rechecked:
            # Its episodes were put to those of the pod that it was about.
            self._take(_GIVEN, json.dumps(rechecked))

    def _count(self, before: Row | None, row: Row) -> None:
        assert row.member is not None
        if before is None:
            self._members.setdefault(row.member, []).append(row.id)
        else:
            self.counts[before.state] -= 1
        self.counts[row.state] += 1
        if row.id >= self._members[row.member][-1]:
            self.newest[row.member] = row
        if row.state in _OPEN:
            return
        if before is None or before.state in _OPEN:
            self.used += row.amount
        if row.state == "done":
            if row.id >= self.done.get(row.member, row).id:
                self.done[row.member] = row
            best = self.best.get(row.member, row)
            own = [best, row]
            if best.id == row.id:
                # Its score may have fallen.
                own = [self.pods[pod] for pod in self._members[row.member]]
            done = (one for one in own if one.state == "done")
            self.best[row.member] = max(done, key=lambda one: (float(one.score or 0.0), -one.id))

    def _read_meta(self) -> None:
        meta = {name: json.loads(text) for name, text in self._db.execute("SELECT * FROM meta")}
        self.config = meta["config"]
        runs = [yaml.safe_load(text) for text in meta.get("runs") or ()]
        self.env = str(runs[0]["run"]["env"]) if runs else ""
        self.algorithms = [str(page["algorithm"]) for page in runs]

    def is_log(self, word: str) -> bool:
        """True for an option that is searched by its logarithm.

        Without a search space these are the learning rates, which all are.
        """
        space: dict[str, Any] = self.config.get("space") or {}
        texts = [text for name, text in space.items() if f".{name}".endswith(f".{word}")]
        return all(str(text).startswith("log:") for text in texts)


def short(value: Any) -> str:
    """A value of an option in few letters.

    >>> short(0.00123456), short([64, 64])
    ('0.00123', '64,64')
    """
    return f"{value:.3g}" if isinstance(value, float) else as_text(value)


def score_text(row: Row) -> str:
    """A score and its standard error.

    >>> score_text(Row(*[1, "done", "initial", 0, 1, "[]", 1, "ppo", "{}", 2.5, 0.25], *[None] * 6))
    '2.50 ± 0.25'
    """
    if row.score is None:
        return ""
    error = "" if row.score_error is None else f" ± {row.score_error:.2f}"
    return f"{row.score:.2f}{error}"
