"""Groups of runs that differ in their seed alone, and the frame at which they are compared."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby

import numpy as np

from torchrl_elegant.config.text import UsageError
from torchrl_elegant.reports.statistics import interquartile_mean
from torchrl_elegant.reports.stored_runs import Array, StoredRun

# Collectors hand over whole batches: runs of one budget end a few frames apart.
_NEARLY = 0.99
# Options that a label can name before it is longer than a legend is wide.
_NAMED, _LABEL = 3, 48


@dataclass(frozen=True, kw_only=True, eq=False)
class Group:
    """Runs of one algorithm with one set of options.

    ``runs`` reach the frame of the comparison; ``short`` do not. ``differing`` are the options
    in which it differs from other groups of its algorithm.
    """

    label: str
    algorithm: str
    runs: tuple[StoredRun, ...]
    short: tuple[StoredRun, ...] = ()
    differing: Mapping[str, str] = field(default_factory=dict)
    scores: Array = field(default_factory=lambda: np.empty(0))

    @property
    def reach(self) -> float:
        """Last frame of at least half of the runs."""
        ends = sorted((run.frames[-1] for run in self.runs), reverse=True)
        return ends[math.ceil(len(ends) / 2) - 1]

    def curve(self) -> tuple[Array, Array]:
        """Frames that all of ``runs`` cover, and their returns, [runs, frames]."""
        return aligned([np.stack((run.frames, run.returns), -1) for run in self.runs])


@dataclass(frozen=True, kw_only=True, eq=False)
class Section:
    """All groups of one environment, the best first, compared at one frame."""

    environment: str
    frame: float
    groups: tuple[Group, ...]


def aligned(curves: Sequence[Array]) -> tuple[Array, Array]:
    """Bring curves of (frame, return) to one grid: the frames of all, where all of them are.

    >>> grid, returns = aligned([np.array([(0, 0.0), (20, 2.0)]), np.array([(10, 5.0)])])
    >>> grid.tolist(), returns.tolist()
    ([10.0], [[1.0], [5.0]])
    """
    low = max(curve[0, 0] for curve in curves)
    high = max(low, min(curve[-1, 0] for curve in curves))
    grid = np.unique(np.concatenate([curve[:, 0] for curve in curves]))
    grid = grid[(grid >= low) & (grid <= high)]
    return grid, np.stack([np.interp(grid, curve[:, 0], curve[:, 1]) for curve in curves])


def grouped(runs: Iterable[StoredRun], *, at: int | None = None) -> tuple[list[Section], list[str]]:
    """Sections of runs, and notes on all that is left out or cannot be compared plainly.

    ``at`` is the frame to compare at; None for the last one that every group reaches.
    """
    notes: list[str] = []
    ordered = sorted(_without_copies(runs, notes), key=lambda run: run.environment)
    sections = []
    for environment, members in groupby(ordered, key=lambda run: run.environment):
        groups = _labeled(list(members))
        reach = min(group.reach for group in groups)
        frame = reach if at is None else float(at)
        _check_frame(frame, environment, groups)
        scored = [_scored(group, frame, notes) for group in groups]
        kept = [group for group in scored if group.runs]
        if not kept:
            raise UsageError(
                f"`at` must be a frame that runs on {environment} reach, got {at}; their "
                f"evaluations end at {max(group.reach for group in groups):,.0f}"
            )
        ends = sorted({f"{group.reach:,.0f}" for group in groups if _beyond(group.reach, frame)})
        if ends:
            notes.append(
                f"{environment}: some groups go on to {', '.join(ends)} frames; returns are "
                f"compared at {frame:,.0f}"
            )
        kept.sort(key=lambda group: -float(interquartile_mean(group.scores)))
        sections.append(Section(environment=environment, frame=frame, groups=tuple(kept)))
    return sections, notes


def _without_copies(runs: Iterable[StoredRun], notes: list[str]) -> list[StoredRun]:
    kept: dict[tuple, StoredRun] = {}
    for run in runs:
        key = (run.environment, run.algorithm, tuple(sorted(run.settings.items())), run.seed)
        other = kept.setdefault(key, run)
        if other is run:
            continue
        if np.array_equal(run.frames, other.frames) and np.array_equal(run.returns, other.returns):
            notes.append(f"{run.path} repeats {other.path}, seed {run.seed}: left out")
            continue
        notes.append(f"{run.path} and {other.path} have the same seed, {run.seed}: both count")
        kept[(*key, run.path)] = run
    return list(kept.values())


def _labeled(runs: Sequence[StoredRun]) -> list[Group]:
    """Groups of one environment, named by what sets them apart."""
    groups = []
    for algorithm in sorted({run.algorithm for run in runs}):
        found: dict[tuple, list[StoredRun]] = {}
        for run in (one for one in runs if one.algorithm == algorithm):
            found.setdefault(tuple(sorted(run.settings.items())), []).append(run)
        settings = [dict(key) for key in found]
        names = dict.fromkeys(name for one in settings for name in one)
        differing = [name for name in names if len({one.get(name) for one in settings}) > 1]
        for number, (own, members) in enumerate(zip(settings, found.values(), strict=True), 1):
            values = {name: own.get(name, "not set") for name in differing}
            told = ", ".join((algorithm, *(f"{name}={value}" for name, value in values.items())))
            fits = len(differing) <= _NAMED and len(told) <= _LABEL
            label = told if fits else f"{algorithm} ({number})"
            members.sort(key=lambda run: run.seed)
            groups.append(
                Group(label=label, algorithm=algorithm, runs=tuple(members), differing=values)
            )
    return groups


def _check_frame(frame: float, environment: str, groups: Sequence[Group]) -> None:
    first = min(run.frames[0] for group in groups for run in group.runs)
    if frame < first:
        raise UsageError(
            f"`at` must be no earlier than the first evaluation, got {frame:,.0f}; on "
            f"{environment} it is at frame {first:,.0f}"
        )


def _scored(group: Group, frame: float, notes: list[str]) -> Group:
    runs, short = [], []
    for run in group.runs:
        if run.frames[-1] < _NEARLY * frame:
            short.append(run)
            notes.append(
                f"{run.path} ends at frame {run.frames[-1]:,.0f}, before {frame:,.0f}: left out"
            )
        elif run.frames[0] > frame:
            short.append(run)
            notes.append(
                f"{run.path} has its first evaluation at frame {run.frames[0]:,.0f}, after "
                f"{frame:,.0f}: left out"
            )
        else:
            runs.append(run)
    scores = np.array([np.interp(frame, run.frames, run.returns) for run in runs])
    return replace(group, runs=tuple(runs), short=tuple(short), scores=scores)


def _beyond(end: float, frame: float) -> bool:
    return _NEARLY * end > frame


def shared_labels(sections: Sequence[Section]) -> list[str]:
    """Labels that every section has, in the order of the first."""
    return [
        group.label
        for group in sections[0].groups
        if all(group.label in {one.label for one in section.groups} for section in sections)
    ]


def normalized(sections: Sequence[Section], label: str) -> list[Array]:
    """Scores of one group in each section; 0 is the section's worst run, 1 its best."""
    rows = []
    for section in sections:
        every = np.concatenate([group.scores for group in section.groups])
        span = np.ptp(every) or 1.0
        (own,) = (group.scores for group in section.groups if group.label == label)
        rows.append((own - every.min()) / span)
    return rows
