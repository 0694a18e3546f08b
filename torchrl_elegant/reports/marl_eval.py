"""Runs in the JSON form that marl-eval reads (Gorsane et al. 2022, arXiv:2209.10485).

The form is environment, task, algorithm, run, and step: `{"vmas": {"navigation": {"qmix": {"run_0":
{"step_1": {"step_count": 6000, "return": [0.4]}, ..., "absolute_metrics": {"return": [0.8]}}}}}}`.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from torchrl_elegant.config.text import UsageError
from torchrl_elegant.reports.groups import Group, Section
from torchrl_elegant.reports.stored_runs import Array, StoredRun

# Environments whose names have no family in front.
_GYMNASIUM = "gymnasium"
_LONGEST_FILE = 1 << 24
_BIASED = (
    "absolute_metrics of the JSON file hold the best evaluation of each run, which is too good: "
    "for returns of new episodes, first evaluate every run with policy=best"
)


def marl_eval_data(sections: Sequence[Section]) -> tuple[dict[str, Any], list[str]]:
    """The nested mapping, and notes on it; UsageError for runs that marl-eval could not compare.

    It wants the same algorithms on each task of an environment, and as many runs and evaluations
    of each. Where runs were evaluated at different frames, returns are interpolated between them.
    """
    families: dict[str, dict[str, Section]] = {}
    for section in sections:
        family, task = _family_and_task(section.environment)
        families.setdefault(family, {})[task] = section
    runs = [run for section in sections for group in section.groups for run in group.runs]
    measured = {run.path: _best_return(run.path) for run in runs}
    notes = [_BIASED] if None in measured.values() else []
    if notes:
        measured = {}
    data = {family: _family(family, tasks, measured) for family, tasks in families.items()}
    return data, notes


def _family_and_task(environment: str) -> tuple[str, str]:
    """Names of an environment's family and of the task in it.

    >>> _family_and_task("vmas/balance (n_agents=4)"), _family_and_task("Pendulum-v1")
    (('vmas', 'balance (n_agents=4)'), ('gymnasium', 'Pendulum-v1'))
    """
    name, space, details = environment.partition(" ")
    family, slash, task = name.partition("/")
    return (family, f"{task}{space}{details}") if slash else (_GYMNASIUM, environment)


def _family(
    family: str, tasks: Mapping[str, Section], measured: Mapping[Path, float | None]
) -> dict[str, Any]:
    _require_the_same_algorithms(family, tasks)
    groups = [group for section in tasks.values() for group in section.groups]
    names, count = _run_names(groups), min(map(_evaluations, tasks.values()))
    return {
        task: {
            # marl-eval refuses commas.
            group.label.replace(",", ""): {
                name: _run(run, _grid(section, count), section.frame, measured)
                for name, run in zip(names, group.runs, strict=True)
            }
            for group in section.groups
        }
        for task, section in tasks.items()
    }


def _run(
    run: StoredRun, grid: Array, frame: float, measured: Mapping[Path, float | None]
) -> dict[str, Any]:
    returns = np.interp(grid, run.frames, run.returns)
    steps: dict[str, Any] = {
        f"step_{number}": {"step_count": round(at), "return": [float(value)]}
        for number, (at, value) in enumerate(zip(grid, returns, strict=True), 1)
    }
    best = measured.get(run.path)
    if best is None:
        best = float(run.returns[run.frames <= max(frame, run.frames[0])].max())
    return {**steps, "absolute_metrics": {"return": [best]}}


def _require_the_same_algorithms(family: str, tasks: Mapping[str, Section]) -> None:
    labels = {task: {group.label for group in section.groups} for task, section in tasks.items()}
    every = set().union(*labels.values())
    for task, own in labels.items():
        if own != every:
            raise UsageError(
                f"`marl_eval` must be none for runs of {', '.join(sorted(every - own))} on some "
                f"tasks of {family} and not on {task}: marl-eval compares the same algorithms on "
                "each; train what is missing, or leave the task out"
            )


def _run_names(groups: Sequence[Group]) -> list[str]:
    """Names by seeds where all groups have the same ones, else by numbers."""
    seeds = [tuple(run.seed for run in group.runs) for group in groups]
    fewest, most = min(seeds, key=len), max(seeds, key=len)
    if len(fewest) != len(most):
        few, many = groups[seeds.index(fewest)], groups[seeds.index(most)]
        raise UsageError(
            "`marl_eval` must be none for groups of different sizes, got "
            f"{len(few.runs)} of {few.label} ({few.runs[0].environment}) and {len(many.runs)} of "
            f"{many.label} ({many.runs[0].environment}): marl-eval wants as many runs of each"
        )
    alike = len(set(seeds)) == 1 and len({*fewest}) == len(fewest)
    return [f"run_{name}" for name in (fewest if alike else range(1, len(fewest) + 1))]


def _frames(run: StoredRun, section: Section) -> Array:
    """Frames of the evaluations that the comparison covers."""
    return run.frames[run.frames <= section.frame]


def _evaluations(section: Section) -> int:
    return min(_frames(run, section).size for group in section.groups for run in group.runs)


def _grid(section: Section, count: int) -> Array:
    """So many frames of a task: those of the evaluations where all runs have the same."""
    found = [_frames(run, section) for group in section.groups for run in group.runs]
    if found[0].size == count and all(np.array_equal(found[0], other) for other in found):
        return found[0]
    first = max(frames[0] for frames in found)
    return np.linspace(first, section.frame, count) if count > 1 else np.array([section.frame])


def _best_return(folder: Path) -> float | None:
    """Mean return of the best policy on episodes of its own, where `evaluate` has left it."""
    path = folder / "evaluation.json"
    try:
        if path.stat().st_size > _LONGEST_FILE:
            return None
        page = json.loads(path.read_text())
        value = float(page["return_mean"]) if page["policy"] == "best" else math.nan
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return value if math.isfinite(value) else None
