"""Writes the study of a tournament's value: tables, every seed, and a picture."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
from _report import markdown, processor, write_page
from _value_tasks import ARMS, HELD_OUT, POPULATION, QUANTA, TASKS, TITLES, Outcome

from torchrl_elegant.reports.statistics import Bootstrap


def interval(values: Sequence[float], show: Callable[[float], str], never: float) -> str:
    """Median and its bootstrap interval; what is beyond ``never`` was not reached."""
    # An infinite number has no place in a resample: any number beyond all others will do.
    finite = [value if math.isfinite(value) else 2 * never for value in values]
    found = Bootstrap().of(finite, lambda rows: np.median(rows, -1))
    texts = [
        show(value) if value <= never else "-" for value in (found.value, found.low, found.high)
    ]
    return f"{texts[0]} ({texts[1]} to {texts[2]})"


def table(task: str, outcomes: Sequence[Outcome]) -> str:
    timed = is_timed(outcomes)
    head = ["", "seeds", "held-out return", "reached", "frames to it"]
    head += ["seconds to it", "seconds"] if timed else []
    head.append("P(better than tournament)")
    arms = {arm: [one for one in outcomes if one.arm == arm] for arm in ARMS}
    base = [one.held_out for one in arms["tournament"]]
    rows = []
    for arm, found in arms.items():
        if not found:
            continue
        returns = [one.held_out for one in found]
        frames = [one.frames for one in found]
        chance = "-"
        if base and arm != "tournament":
            better = Bootstrap().probability_of_improvement(returns, base)
            chance = f"{better.value:.2f} ({better.low:.2f} to {better.high:.2f})"
        row = [TITLES[arm], str(len(found)), interval(returns, "{:.1f}".format, math.inf)]
        row.append(f"{sum(map(math.isfinite, frames))} of {len(found)}")
        most = 2.0 * TASKS[task].budget
        row.append(interval(frames, lambda value: f"{value / 1_000:,.0f}k", most))
        if timed:
            whole, seconds = [one.whole for one in found], [one.seconds for one in found]
            row.append(interval(seconds, "{:.0f}".format, 10 * max(whole)))
            row.append(interval(whole, "{:.0f}".format, math.inf))
        rows.append([*row, chance])
    return markdown(head, rows)


def write(outcomes: Sequence[Outcome], folder: Path, processes: int, slots: int) -> None:
    parts = [
        "# Tournament: value",
        f"`{command_of(outcomes, processes, slots)}`",
        f"Populations of {POPULATION} PPO members, whose learning rates are drawn log-uniformly "
        f"from 1e-5 to 1e-2; {QUANTA} pods a member. All arms have the same total frames and the "
        "same evaluations of each pod; ours evaluate the leaders of a depth once more. "
        f"Slots: {slots}, of one thread each. {seconds_of(outcomes)} "
        f"{processor()}, {os.cpu_count()} cores.",
        "Medians over seeds; in brackets the bootstrap interval of 95 % (percentiles); - where the "
        "threshold was not reached. A held-out return is that of the winner over "
        f"{HELD_OUT} episodes which decided nothing. The threshold is reached once a pod's score "
        "of 10 episodes, or 20 where it led its depth, is not below it.",
        f"![returns](tournament_value.png)\n\nThe picture has {curves_of(outcomes)} seeds.",
    ]
    for task, about in TASKS.items():
        of = [one for one in outcomes if one.task == task]
        if of:
            settings = " ".join(about.words)
            parts += [
                f"## {about.env}",
                f"{about.budget:,} frames in all, {about.quantum:,} a pod; threshold "
                f"{about.threshold:g}; `{settings}`.",
                table(task, of),
            ]
    write_page(folder, "tournament_value", *parts)
    draw(outcomes, folder / "tournament_value.png")


def command_of(outcomes: Sequence[Outcome], processes: int, slots: int) -> str:
    """The command that trains all that is told, however many it took."""
    tasks = [task for task in TASKS if any(one.task == task for one in outcomes)]
    arms = [arm for arm in ARMS if any(one.arm == arm for one in outcomes)]
    seeds = max(one.seed for one in outcomes) + 1
    named = f"--tasks {' '.join(tasks)} --arms {' '.join(arms)} --seeds {seeds}"
    named += f" --processes {processes} --slots {slots}"
    named += " --seconds" if is_timed(outcomes) else ""
    return f"python benchmarks/tournament_value.py {named}"


def curves_of(outcomes: Sequence[Outcome]) -> str:
    """Number of seeds with a curve: those trained before curves were kept have none."""
    return f"{sum(bool(one.curve) for one in outcomes)} of {len(outcomes)}"


def is_timed(outcomes: Sequence[Outcome]) -> bool:
    """True where seconds are known of all seeds."""
    return all(math.isfinite(one.whole) for one in outcomes)


def seconds_of(outcomes: Sequence[Outcome]) -> str:
    """A sentence about seconds."""
    if is_timed(outcomes):
        return "Seconds begin before the worker processes start."
    return "No seconds are told: the machine had other work beside, which returns do not depend on."


def draw(outcomes: Sequence[Outcome], path: Path) -> None:
    matplotlib.use("Agg")
    from matplotlib import pyplot
    from matplotlib.ticker import EngFormatter

    tasks = [task for task in TASKS if any(one.task == task for one in outcomes)]
    figure, axes = pyplot.subplots(
        1, len(tasks), figsize=(5 * len(tasks), 4), squeeze=False, layout="constrained"
    )
    for axis, task in zip(axes.flat, tasks, strict=True):
        grid = np.linspace(TASKS[task].quantum, TASKS[task].budget, POPULATION * QUANTA)
        for place, arm in enumerate(ARMS):
            found = [one for one in outcomes if (one.task, one.arm) == (task, arm)]
            curves = [np.array(one.curve) for one in found if one.curve]
            if curves:
                rows = np.stack([stepped(curve, grid) for curve in curves])
                low, middle, high = np.nanquantile(rows, [0.25, 0.5, 0.75], axis=0)
                axis.plot(grid, middle, color=f"C{place}", label=TITLES[arm])
                axis.fill_between(grid, low, high, color=f"C{place}", alpha=0.15, linewidth=0)
        axis.axhline(TASKS[task].threshold, color="gray", linewidth=0.8, linestyle=":")
        axis.set_title(TASKS[task].env, fontsize=10)
        axis.set_xlabel("total frames")
        axis.xaxis.set_major_formatter(EngFormatter(sep=""))
        axis.spines[["top", "right"]].set_visible(False)
    axes[0, 0].set_ylabel("best return so far: median, quartiles")
    axes[0, 0].legend(fontsize=8)
    figure.savefig(path, dpi=120)
    pyplot.close(figure)


def stepped(curve: Any, grid: Any) -> Any:
    """The last return at or before each number of frames; the first one before there is any."""
    return curve[np.maximum(np.searchsorted(curve[:, 0], grid, side="right") - 1, 0), 1]
