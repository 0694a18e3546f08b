"""Leaderboard: everything that a tournament knows, in one SQLite database."""

from __future__ import annotations

import json
import os
import sqlite3
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, NamedTuple

from torchrl_elegant.runs.files import sync_directory
from torchrl_elegant.tournament.database import VERSION, open_database, told
from torchrl_elegant.tournament.rivals import Rivals
from torchrl_elegant.tournament.selection import Rival

FILE = "leaderboard.sqlite"
#: Operations that train; the others evaluate what another pod has trained.
TRAINING = ("initial", "continue", "exploit", "twin", "switch")
#: Operations that leave a checkpoint.
PUBLISHING = (*TRAINING, "fuse")

_UNITS = "CASE WHEN {0}.state IN ('queued', 'running') THEN {0}.budget ELSE {0}.amount END"
_SCHEMA = (
    "CREATE TABLE meta (name TEXT PRIMARY KEY, value TEXT NOT NULL)",
    """CREATE TABLE pod (
        id INTEGER PRIMARY KEY, attempt INTEGER NOT NULL DEFAULT 1,
        crashes INTEGER NOT NULL DEFAULT 0, state TEXT NOT NULL, operation TEXT NOT NULL,
        member INTEGER, depth INTEGER NOT NULL, parents TEXT NOT NULL, lineage INTEGER NOT NULL,
        entry INTEGER NOT NULL, algorithm TEXT NOT NULL, architecture TEXT NOT NULL,
        options TEXT NOT NULL, seed INTEGER NOT NULL, budget REAL NOT NULL, start TEXT,
        amount REAL NOT NULL DEFAULT 0, score REAL, score_error REAL, episodes INTEGER,
        frames INTEGER, updates INTEGER, seconds REAL, memory INTEGER, checkpoint TEXT, error TEXT,
        created TEXT NOT NULL, ended TEXT)""",
    "CREATE INDEX pod_state ON pod (state)",
    "CREATE INDEX pod_operation ON pod (operation)",
    "CREATE INDEX pod_depth ON pod (depth)",
    "CREATE INDEX pod_score ON pod (score DESC, id) WHERE state = 'done'",
    """CREATE TABLE member (id INTEGER PRIMARY KEY, state TEXT NOT NULL, depth INTEGER NOT NULL,
        pod INTEGER)""",
    "CREATE INDEX member_state ON member (state, depth, id)",
    """CREATE TABLE report (pod INTEGER NOT NULL, attempt INTEGER NOT NULL, rung INTEGER NOT NULL,
        depth INTEGER NOT NULL, score REAL NOT NULL, frames INTEGER NOT NULL,
        PRIMARY KEY (pod, attempt, rung)) WITHOUT ROWID""",
    "CREATE INDEX report_rung ON report (depth, rung)",
    """CREATE TABLE checkpoint (digest TEXT PRIMARY KEY, pod INTEGER NOT NULL,
        bytes INTEGER NOT NULL, state TEXT NOT NULL)""",
    "CREATE INDEX checkpoint_state ON checkpoint (state)",
    """CREATE TABLE decision (sequence INTEGER PRIMARY KEY, pod INTEGER NOT NULL,
        inputs TEXT NOT NULL, choice TEXT NOT NULL, random TEXT NOT NULL, made TEXT NOT NULL)""",
    # A running sum: adding up all pods at each turn would slow a tournament down as it goes on.
    "CREATE TABLE spent (units REAL NOT NULL)",
    "INSERT INTO spent VALUES (0)",
    f"""CREATE TRIGGER promised AFTER INSERT ON pod WHEN NEW.operation IN {TRAINING}
        BEGIN UPDATE spent SET units = units + {_UNITS.format("NEW")}; END""",
    f"""CREATE TRIGGER used AFTER UPDATE OF state, amount, budget ON pod
        WHEN NEW.operation IN {TRAINING} AND {_UNITS.format("NEW")} != {_UNITS.format("OLD")} BEGIN
        UPDATE spent SET units = units + {_UNITS.format("NEW")} - {_UNITS.format("OLD")}; END""",
)


@dataclass(frozen=True, kw_only=True)
class Pod:
    """A row of the leaderboard: one quantum of training, or one evaluation.

    ``start`` is the checkpoint of an earlier attempt that was ended half way, after ``amount``
    units. ``lineage`` is the pod at the root of its ancestry.
    """

    id: int
    attempt: int
    crashes: int
    state: str
    operation: str
    member: int | None
    depth: int
    parents: tuple[int, ...]
    lineage: int
    entry: int
    algorithm: str
    architecture: str
    options: dict[str, Any]
    seed: int
    budget: float
    start: str | None
    amount: float
    score: float | None
    score_error: float | None
    episodes: int | None
    frames: int | None
    updates: int | None
    seconds: float | None
    memory: int | None
    checkpoint: str | None
    error: str | None
    created: str
    ended: str | None


_NAMES = tuple(field.name for field in fields(Pod))
_COLUMNS = ", ".join(_NAMES)
# A pod as it is inserted, but for what is told of it then.
_NEW: Mapping[str, Any] = {**dict.fromkeys(_NAMES), "attempt": 1, "crashes": 0, "amount": 0.0}
_INSERT = f"INSERT INTO pod ({_COLUMNS}) VALUES ({', '.join('?' * len(_NAMES))})"


class Kept(NamedTuple):
    """A checkpoint that is there, and the pod that it belongs to."""

    digest: str
    bytes: int
    pod: int
    depth: int
    score: float | None
    #: False for what an attempt has left that was ended half way.
    published: bool


class Leaderboard:
    """Pods, reports, checkpoints, decisions and settings; one process writes.

    Every change is made inside ``transaction``, which is on the disk when it is left. Many changes
    share one transaction, and so one wait for the disk.

    Args:
        path: the database, which exists.
        read_only: for readers beside the one that writes.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     with Leaderboard.create(Path(folder) / FILE, {"seed": 3}, population=8) as board:
    ...         board.meta("seed"), board.spent()
    (3, 0.0)
    """

    def __init__(self, path: Path, *, read_only: bool = False) -> None:
        self.path = path
        self._db = open_database(path, read_only=read_only)
        self._rivals = Rivals(self._db, is_alone=not read_only)

    @classmethod
    def create(cls, path: Path, meta: Mapping[str, Any], *, population: int) -> Leaderboard:
        """Make a new database, which is there as a whole or not at all."""
        stage = path.with_name(f".{path.name}.{uuid.uuid4().hex}")
        made = sqlite3.connect(stage, isolation_level=None)
        try:
            made.execute("PRAGMA synchronous = FULL")
            made.execute("BEGIN")
            for statement in _SCHEMA:
                made.execute(statement)
            rows = [
                (name, json.dumps(value)) for name, value in {**meta, "version": VERSION}.items()
            ]
            made.executemany("INSERT INTO meta VALUES (?, ?)", rows)
            made.executemany(
                "INSERT INTO member VALUES (?, 'waiting', 0, NULL)",
                [(member,) for member in range(population)],
            )
            made.execute("COMMIT")
        finally:
            made.close()
        os.replace(stage, path)
        sync_directory(path.parent)
        return cls(path)

    def close(self) -> None:
        """Close the database; what is committed stays."""
        self._db.close()

    def __enter__(self) -> Leaderboard:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Make all changes inside durable together, or none of them."""
        with told(self.path):
            self._db.execute("BEGIN IMMEDIATE")
            try:
                yield
                self._db.execute("COMMIT")
            except BaseException:
                self._rivals = Rivals(self._db)
                if self._db.in_transaction:
                    self._db.execute("ROLLBACK")
                raise

    # Settings.

    def meta(self, name: str) -> Any:
        """A setting that was stored with the tournament; None for none."""
        row = self._db.execute("SELECT value FROM meta WHERE name = ?", (name,)).fetchone()
        return None if row is None else json.loads(row["value"])

    def set_meta(self, name: str, value: Any) -> None:
        """Store a setting."""
        self._db.execute("INSERT OR REPLACE INTO meta VALUES (?, ?)", (name, json.dumps(value)))

    # Pods.

    def next_pod(self) -> int:
        """Number of the next pod."""
        return int(self._db.execute("SELECT COALESCE(MAX(id), 0) + 1 FROM pod").fetchone()[0])

    def add_pod(self, values: Mapping[str, Any]) -> Pod:
        """Insert a pod, and return it."""
        row = {**_NEW, **values, "created": now()}
        texts = {name: json.dumps(row[name]) for name in ("parents", "options")}
        self._db.execute(_INSERT, list((row | texts).values()))
        return Pod(**row | {"parents": tuple(row["parents"])})

    def set_pod(self, pod: int, **values: Any) -> None:
        """Change a pod."""
        names = ", ".join(f"{name} = ?" for name in values)
        self._db.execute(f"UPDATE pod SET {names} WHERE id = ?", [*values.values(), pod])
        self._rivals.changed.add(pod)

    def start(self, pods: Sequence[Pod]) -> None:
        """Set the state of pods that are in the queue to ``running``."""
        query = "UPDATE pod SET state = 'running' WHERE id = ?"
        self._db.executemany(query, [(pod.id,) for pod in pods])

    def checkpoint_of(self, pod: int) -> str | None:
        """Digest of the checkpoint that a pod has published."""
        found = self._db.execute("SELECT checkpoint FROM pod WHERE id = ?", (pod,))
        digest: str | None = found.fetchone()[0]
        return digest

    def pod(self, pod: int) -> Pod:
        """The row of a pod."""
        return self.pods("id = ?", pod)[0]

    def pods(self, where: str = "1", *values: Any) -> list[Pod]:
        """Rows of pods in the order of their numbers."""
        query = f"SELECT {_COLUMNS} FROM pod WHERE {where} ORDER BY id"
        return [_pod(row) for row in self._db.execute(query, values)]

    def waiting(self, count: int) -> list[tuple[int, int | None]]:
        """Members that wait, those that are behind first, and the newest pod of each."""
        found = self._db.execute(
            "SELECT id, pod FROM member WHERE state = 'waiting' ORDER BY depth, id LIMIT ?",
            (count,),
        )
        return [(row[0], row[1]) for row in found]

    def set_member(self, member: int, **values: Any) -> None:
        """Change a member: ``state`` (``waiting``, ``busy``, ``finished``), ``depth``, ``pod``."""
        names = ", ".join(f"{name} = ?" for name in values)
        self._db.execute(f"UPDATE member SET {names} WHERE id = ?", [*values.values(), member])

    def lowest_depth(self) -> int | None:
        """Depth of the member that is furthest behind; None if all have finished."""
        query = "SELECT MIN(depth) FROM member WHERE state != 'finished'"
        depth: int | None = self._db.execute(query).fetchone()[0]
        return depth

    def rivals(self, depth: int) -> Sequence[Rival]:
        """Pods that finished at a depth, the best first; not to be changed."""
        return self._rivals.of(depth)

    def rival(self, pod: int, depth: int) -> Rival | None:
        """A pod among those that finished at its depth; None if it has not."""
        self._rivals.of(depth)
        return self._rivals.known.get(pod)

    def best_of_members(self, count: int | None = None) -> list[Pod]:
        """The best pod of each member whose checkpoint is there, the best members first."""
        found = self._db.execute(
            # In this order: the index of scores gives the best first, and the rest is not read.
            "SELECT pod.id, member FROM pod INDEXED BY pod_score "
            "CROSS JOIN checkpoint ON digest = checkpoint "
            "WHERE checkpoint.state = 'live' AND pod.state = 'done' ORDER BY score DESC, pod.id"
        )
        best: dict[int, int] = {}
        for row in found:
            best.setdefault(row["member"], row["id"])
            if len(best) == count:
                break
        return [self.pod(pod) for pod in list(best.values())[:count]]

    def states(self) -> dict[str, int]:
        """Number of pods in each state."""
        found = self._db.execute("SELECT state, COUNT(*) FROM pod GROUP BY state")
        return {row[0]: row[1] for row in found}

    def spent(self) -> float:
        """Units that are used, or promised to pods that are not over."""
        return float(self._db.execute("SELECT units FROM spent").fetchone()[0])

    def peaks(self) -> tuple[int, int]:
        """Most memory that a pod has taken, and bytes of the largest checkpoint."""
        memory = self._db.execute("SELECT COALESCE(MAX(memory), 0) FROM pod").fetchone()[0]
        size = self._db.execute("SELECT COALESCE(MAX(bytes), 0) FROM checkpoint").fetchone()[0]
        return memory, size

    # Reports, checkpoints, decisions.

    def add_report(self, pod: Pod, rung: int, score: float, frames: int) -> None:
        """Store a score that a running pod has reached at a rung."""
        values = (pod.id, pod.attempt, rung, pod.depth, score, frames)
        self._db.execute("INSERT OR REPLACE INTO report VALUES (?, ?, ?, ?, ?, ?)", values)

    def rung_scores(self, depth: int, rung: int, *, besides: int) -> list[float]:
        """Scores of all other pods that have come to a rung of a depth, the newest of each."""
        found = self._db.execute(
            "SELECT score, MAX(attempt) FROM report WHERE depth = ? AND rung = ? AND pod != ? "
            "GROUP BY pod",
            (depth, rung, besides),
        )
        return [row["score"] for row in found]

    def add_checkpoint(self, digest: str, pod: int, size: int) -> None:
        """Store that a checkpoint is published; one that is known stays as it is."""
        self._db.execute(
            "INSERT OR IGNORE INTO checkpoint VALUES (?, ?, ?, 'live')", (digest, pod, size)
        )
        self._rivals.changed.add(pod)

    def set_checkpoint(self, digest: str, state: str) -> None:
        """Change a checkpoint's state: ``live``, ``damaged``, ``trash`` or ``gone``."""
        self._db.execute("UPDATE checkpoint SET state = ? WHERE digest = ?", (state, digest))
        found = self._db.execute("SELECT pod FROM checkpoint WHERE digest = ?", (digest,))
        self._rivals.changed.update(row[0] for row in found)

    def discard(self, kept: Sequence[Kept]) -> None:
        """Mark checkpoints as trash, whose files are then removed; earlier trash is gone."""
        self._db.execute("UPDATE checkpoint SET state = 'gone' WHERE state = 'trash'")
        query = "UPDATE checkpoint SET state = 'trash' WHERE digest = ?"
        self._db.executemany(query, [(one.digest,) for one in kept])
        for one in kept:
            if one.published:
                self._rivals.lose(one.pod)

    def digests(self, state: str) -> list[str]:
        """Digests of all checkpoints in a state."""
        found = self._db.execute("SELECT digest FROM checkpoint WHERE state = ?", (state,))
        return [row["digest"] for row in found]

    def kept(self, *, below: int | None = None) -> list[Kept]:
        """Checkpoints that are there, with their pods.

        With ``below`` only those that no pod has published, or a pod below that depth.
        """
        found = self._db.execute(
            "SELECT digest, bytes, pod.id, depth, score, digest IS checkpoint "
            "FROM checkpoint JOIN pod ON pod.id = checkpoint.pod WHERE checkpoint.state = 'live' "
            "AND (?1 IS NULL OR depth < ?1 OR digest IS NOT checkpoint)",
            (below,),
        )
        return [Kept(*row) for row in found]

    def kept_bytes(self) -> int:
        """Bytes of all checkpoints that are there."""
        query = "SELECT COALESCE(SUM(bytes), 0) FROM checkpoint WHERE state = 'live'"
        return int(self._db.execute(query).fetchone()[0])

    def needed(self) -> tuple[set[int], set[str]]:
        """Pods whose checkpoint may be begun with, and checkpoints of attempts to be gone on with.

        They are parents of pods at work or in the queue, and the newest pod of each member.
        """
        live = "FROM pod WHERE state IN ('queued', 'running')"
        starts = self._db.execute(f"SELECT start {live} AND start IS NOT NULL")
        parents = self._db.execute(f"SELECT DISTINCT parents {live}").fetchall()
        newest = self._db.execute("SELECT pod FROM member WHERE pod IS NOT NULL")
        pods = {row[0] for row in newest}
        pods.update(parent for row in parents for parent in json.loads(row[0]))
        return pods, {row[0] for row in starts}

    def decisions(self) -> int:
        """Number of decisions so far."""
        # As many as the last one's number, which is there without counting.
        query = "SELECT COALESCE(MAX(sequence), 0) FROM decision"
        return int(self._db.execute(query).fetchone()[0])

    def add_decision(self, pod: int, inputs: Any, choice: Any, random: Sequence[int]) -> None:
        """Store a decision with all that it was made from."""
        values = (pod, *map(json.dumps, (inputs, choice, random)), now())
        query = "INSERT INTO decision (pod, inputs, choice, random, made) VALUES (?, ?, ?, ?, ?)"
        self._db.execute(query, values)


def now() -> str:
    """The present moment, as the leaderboard stores it."""
    return datetime.now(timezone.utc).isoformat(timespec="milliseconds")


def _pod(row: sqlite3.Row) -> Pod:
    # Faster than to ask the row for each name.
    values = dict(zip(_NAMES, row, strict=True))
    values["parents"] = tuple(json.loads(values["parents"]))
    values["options"] = json.loads(values["options"])
    return Pod(**values)
