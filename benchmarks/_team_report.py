"""Writes the study of teams: a table for each task, every seed, and the curves."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
from _report import markdown, processor, write_page
from _team_store import Outcome
from contenders.teams.setting import ALGORITHMS, TASKS

from torchrl_elegant.reports.statistics import Bootstrap, Interval, interquartile_mean

TITLES = {
    "ours": "ours",
    "ours_compiled": "ours, compile=true",
    "benchmarl": "BenchMARL",
}
NAMES = {
    **{name: name.upper() for name in ALGORITHMS},
}
STYLES = {"ours": ":", "ours_compiled": "-", "benchmarl": "--"}


def written(found: Interval, runs: int) -> str:
    """Value and bounds; of one run there are no bounds."""
    bounds = f" ({found.low:.2f} to {found.high:.2f})" if runs > 1 else ""
    return f"{found.value:.2f}{bounds}"


def chosen(outcomes: Sequence[Outcome], **wanted: str) -> list[Outcome]:
    """Outcomes of a task, an algorithm or a library."""
    found = []
    for one in outcomes:
        about = {"task": one.job.setting.task, "algorithm": one.job.setting.algorithm}
        about["library"] = one.job.library
        if all(about[name] == value for name, value in wanted.items()):
            found.append(one)
    return found


def returns_of(outcomes: Sequence[Outcome]) -> list[float]:
    return [one.last[3] for one in outcomes]


def row(name: str, arms: dict[str, list[Outcome]]) -> list[str]:
    """One algorithm on one task: returns of each library, and how long a run took."""
    cells = [NAMES[name]]
    for found in arms.values():
        if found:
            scores = Bootstrap().of(returns_of(found), interquartile_mean)
            count = f"{len(found)} seed{'s' * (len(found) > 1)}"
            cells.append(f"{written(scores, len(found))}, {count}")
        else:
            cells.append("-")
    theirs, ours = arms["benchmarl"], arms["ours_compiled"] or arms["ours"]
    if min(len(theirs), len(ours)) > 1:
        better = Bootstrap().probability_of_improvement(returns_of(ours), returns_of(theirs))
        cells.append(written(better, min(len(ours), len(theirs))))
    else:
        cells.append("-")
    seconds = {
        arm: np.median([one.last[2] for one in found]) for arm, found in arms.items() if found
    }
    cells += [f"{seconds[arm]:.0f}" if arm in seconds else "-" for arm in arms]
    least = min((seconds[arm] for arm in ("ours", "ours_compiled") if arm in seconds), default=None)
    whole = seconds.get("benchmarl")
    cells.append("-" if least is None or whole is None else f"{least / whole:.2f}")
    return cells


def table(task: str, outcomes: Sequence[Outcome]) -> str:
    head = ["", *TITLES.values(), "P(ours above BenchMARL)"]
    head += [f"{title}: seconds" for title in TITLES.values()]
    head.append("ours / BenchMARL")
    rows = []
    for name in ALGORITHMS:
        of = chosen(outcomes, task=task, algorithm=name)
        if of:
            rows.append(row(name, {arm: chosen(of, library=arm) for arm in TITLES}))
    return markdown(head, rows)


def write(outcomes: Sequence[Outcome], folder: Path) -> None:
    """``teams.md`` and ``teams.png`` in ``folder``, of all that is finished."""
    episodes = outcomes[0].job.episodes
    parts = [
        "# Teams on VMAS",
        "`python benchmarks/teams.py --benchmarl-python PYTHON`",
        "Both libraries have the same settings: gamma 0.9, tanh 128x128, parameters shared by the "
        "agents, Adam 5e-4, gradient norm 5, time limits that end an episode, as BenchMARL has "
        "them. QMIX, VDN, MADDPG and MASAC: 60,000 frames of 60 environments, 100 updates of "
        "batches of 128 after every 600, polyak 0.005, exploration from 0.8 to 0.05 (over 20,000 "
        "frames where the algorithm has an option for it, else over the run). MAPPO and IPPO: "
        "240,000 frames of 120 environments, 100 steps a batch, 15 epochs of minibatches of 1000, "
        "lambda 0.9, clip 0.2. Scenarios have the arguments of BenchMARL's task files. The rest is "
        "each library's own: critics with a value for each agent in ours, one for all in "
        "BenchMARL; hypernetworks with a hidden layer in our QMIX, and none in BenchMARL's.",
        f"Returns are means over agents and {episodes} episodes of 100 steps, the same for all, "
        "with the policy's best actions, after the last frame. Interquartile means over seeds; in "
        "brackets the bootstrap interval of 95 % (percentiles), which is narrow for few seeds. "
        "Seconds are those of the processor for a whole run without evaluations, median over "
        "seeds, one thread: the wall time on a machine that does nothing else. Compilers are "
        "counted; what an earlier run has compiled is not compiled again. "
        f"{processor()}, {os.cpu_count()} cores.",
        "![returns](teams.png)",
    ]
    for task in TASKS:
        if chosen(outcomes, task=task):
            words = ", ".join(f"{name}={value}" for name, value in TASKS[task].items())
            parts += [f"## {task}", words, table(task, outcomes)]
    write_page(folder, "teams", *parts)
    draw(outcomes, folder / "teams.png")


def draw(outcomes: Sequence[Outcome], path: Path) -> None:
    matplotlib.use("Agg")
    from matplotlib import pyplot
    from matplotlib.ticker import EngFormatter

    tasks = [task for task in TASKS if chosen(outcomes, task=task)]
    names = [name for name in ALGORITHMS if chosen(outcomes, algorithm=name)]
    figure, axes = pyplot.subplots(
        len(tasks),
        len(names),
        figsize=(3.2 * len(names) + 1, 2.6 * len(tasks)),
        squeeze=False,
        layout="constrained",
    )
    for row_axes, task in zip(axes, tasks, strict=True):
        for axis, name in zip(row_axes, names, strict=True):
            of = chosen(outcomes, task=task, algorithm=name)
            for place, library in enumerate(TITLES):
                curve(axis, chosen(of, library=library), f"C{place}", library)
            axis.set_title(f"{task}, {NAMES[name]}", fontsize=9)
            axis.xaxis.set_major_formatter(EngFormatter(sep=""))
            axis.spines[["top", "right"]].set_visible(False)
            if of:
                axis.legend(fontsize=7)
    figure.savefig(path, dpi=120)
    pyplot.close(figure)


def curve(axis: Any, outcomes: Sequence[Outcome], color: str, library: str) -> None:
    """Interquartile mean of a library's returns, and the range of its seeds."""
    if outcomes:
        frames = [point[0] for point in outcomes[0].curve]
        rows = np.array([[point[3] for point in one.curve] for one in outcomes])
        axis.plot(
            frames,
            interquartile_mean(rows.T),
            color=color,
            linestyle=STYLES[library],
            label=TITLES[library],
        )
        axis.fill_between(frames, rows.min(0), rows.max(0), color=color, alpha=0.15, linewidth=0)
