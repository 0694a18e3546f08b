"""Finished seeds of ``teams.py``, in a CSV that is committed: a row for each point of a curve."""

from __future__ import annotations

import csv
import fcntl
import hashlib
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from contenders.teams.setting import Setting

COLUMNS = ("settings", "task", "algorithm", "library", "seed", "frames", "seconds", "cpu", "return")


@dataclass(frozen=True)
class Job:
    """One seed of an algorithm on a task, by a library."""

    setting: Setting
    library: str
    seed: int
    episodes: int

    @property
    def name(self) -> str:
        return f"{self.setting.task} {self.setting.algorithm} {self.library} seed {self.seed}"

    @property
    def key(self) -> tuple[str, ...]:
        """Other settings are another row of the table."""
        settings = json.dumps([asdict(self.setting), self.setting.scenario, self.episodes])
        digest = hashlib.sha256(settings.encode()).hexdigest()[:8]
        own = self.setting
        return digest, own.task, own.algorithm, self.library, str(self.seed)


@dataclass(frozen=True)
class Outcome:
    """A job, and its curve: frames, seconds, processor seconds, return."""

    job: Job
    curve: tuple[tuple[float, float, float, float], ...]

    @property
    def last(self) -> tuple[float, float, float, float]:
        return self.curve[-1]


class Store:
    """The CSV; several studies may write it side by side.

    Args:
        path: of the file.
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    def outcomes(self, jobs: Sequence[Job]) -> list[Outcome]:
        """Those of ``jobs`` that are finished, in the order of ``jobs``."""
        kept = self._read()
        return [Outcome(job, kept[job.key]) for job in jobs if job.key in kept]

    def add(self, outcome: Outcome) -> None:
        """Keep a seed; whole or not at all."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self.path.with_suffix(".lock").open("w") as claim:
            fcntl.flock(claim, fcntl.LOCK_EX)
            kept = self._read() | {outcome.job.key: outcome.curve}
            stage = self.path.with_suffix(".partial")
            with stage.open("w", newline="") as file:
                writer = csv.writer(file, lineterminator="\n")
                writer.writerow(COLUMNS)
                for key in sorted(kept, key=lambda key: (key[1:], key[0])):
                    writer.writerows([*key, *map(_short, row)] for row in kept[key])
            stage.replace(self.path)

    def _read(self) -> dict[tuple[str, ...], tuple[Any, ...]]:
        found: dict[tuple[str, ...], list[Any]] = {}
        if self.path.exists():
            with self.path.open(newline="") as file:
                for *key, frames, seconds, cpu, value in list(csv.reader(file))[1:]:
                    row = tuple(map(float, (frames, seconds, cpu, value)))
                    found.setdefault(tuple(key), []).append(row)
        return {key: tuple(rows) for key, rows in found.items()}


def _short(value: float) -> str:
    return f"{value:.0f}" if float(value).is_integer() else f"{value:.4g}"
