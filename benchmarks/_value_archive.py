"""Finished seeds of the study of a tournament's value: a line each in the committed table.

A line has the settings that it was trained with, so that a study which goes on, here or on another
machine, takes finished seeds of the same settings from there and of no others.
"""

from __future__ import annotations

import csv
import os
from collections.abc import Iterable
from pathlib import Path

from _value_tasks import Outcome

_NUMBERS = ("held_out", "frames", "seconds", "whole")
_COLUMNS = ("task", "arm", "seed", "settings", *_NUMBERS, "curve")


def read(path: Path) -> list[Outcome]:
    """Seeds of a table; none without a file, and none of a table that has no settings."""
    if not path.exists():
        return []
    with path.open(newline="") as file:
        return [_outcome(row) for row in csv.DictReader(file) if row.get("settings")]


def write(path: Path, outcomes: Iterable[Outcome]) -> None:
    """Write a table as a whole or not at all."""
    stage = path.with_suffix(".partial")
    with stage.open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(_COLUMNS)
        for one in outcomes:
            numbers = [f"{getattr(one, name):.2f}" for name in _NUMBERS]
            writer.writerow([one.task, one.arm, one.seed, one.settings, *numbers, _text(one)])
    os.replace(stage, path)


def _text(outcome: Outcome) -> str:
    """A curve where it rises, and its last row."""
    kept = list[tuple[float, float]]()
    for row in outcome.curve:
        if not kept or row[1] > kept[-1][1] or row is outcome.curve[-1]:
            kept.append(row)
    return " ".join(f"{frames:.0f}/{best:.2f}" for frames, best in kept)


def _outcome(row: dict[str, str]) -> Outcome:
    points = (point.split("/") for point in row["curve"].split())
    return Outcome(
        task=row["task"],
        arm=row["arm"],
        seed=int(row["seed"]),
        settings=row["settings"],
        **{name: float(row[name]) for name in _NUMBERS},
        curve=tuple((float(frames), float(best)) for frames, best in points),
    )
