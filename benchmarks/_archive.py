"""Finished seeds of a study, kept beside its table: small enough to be committed.

A file holds the seeds of one training, a line each: how it was evaluated, its curve, its settings.
A study that goes on, here or on another machine, takes its finished seeds from there.
"""

from __future__ import annotations

import fcntl
import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

# What one seed's run differs from another's in, whatever is trained.
OWN = ("seed", "folder", "threads")
_COLUMNS = ("frames", "updates", "seconds", "return_mean")


def gather(folder: Path, evaluation: Mapping[str, float]) -> dict[str, Any]:
    """What is kept of a run that has ended."""
    from torchrl_elegant.runs.metrics import read_metrics

    rows = read_metrics(folder / "metrics.csv")
    stored = folder / "config.yaml"
    settings = yaml.safe_load(stored.read_text()) if stored.exists() else {}
    if "run" in settings:
        settings["run"] = {k: v for k, v in settings["run"].items() if k not in OWN}
    return {
        "evaluation": evaluation,
        "curve": [[row[name] for name in _COLUMNS] for row in rows],
        "settings": settings,
    }


def read(path: Path) -> dict[int, dict[str, Any]]:
    """Finished seeds, by seed."""
    return {seed: {"seed": seed, **_named(one)} for seed, one in _raw(path).items()}


def add(path: Path, seed: int, kept: Mapping[str, Any]) -> None:
    """Keep a seed; whole or not at all, and beside what another study keeps meanwhile."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.with_suffix(".lock").open("w") as claim:
        fcntl.flock(claim, fcntl.LOCK_EX)
        lines = {one: _line(one, rest) for one, rest in _raw(path).items()}
        lines[seed] = _line(seed, kept)
        whole = path.with_suffix(".partial")
        whole.write_text("".join(lines[one] for one in sorted(lines)))
        whole.replace(path)


def _raw(path: Path) -> dict[int, dict[str, Any]]:
    kept = path.read_text().splitlines() if path.exists() else ()
    return {one.pop("seed"): one for one in map(json.loads, kept)}


def _line(seed: int, kept: Mapping[str, Any]) -> str:
    short = {"curve": [[_short(value) for value in row] for row in kept["curve"]]}
    return json.dumps({"seed": seed, **kept, **short}) + "\n"


def _short(value: float | None) -> float | None:
    if value is None or math.isnan(value):
        return None
    return int(value) if float(value).is_integer() else round(value, 3)


def _named(one: dict[str, Any]) -> dict[str, Any]:
    """Rows of the curve by the names of their columns, as a run's own file has them."""
    rows = ([math.nan if value is None else float(value) for value in row] for row in one["curve"])
    return one | {"curve": [dict(zip(_COLUMNS, row, strict=True)) for row in rows]}
