"""Writes a learning study: a table per seed, the statistics over seeds, and the curves."""

from __future__ import annotations

import os
import statistics
from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np
from _report import processor

from torchrl_elegant.reports.groups import aligned as on_one_grid

Result = Mapping[str, Any]

# Budgets further apart are shown on a logarithmic axis.
_FAR = 3


def by_algorithm(results: Sequence[Result]) -> Iterable[tuple[str, list[Result]]]:
    for name, group in groupby(results, key=lambda result: result["algorithm"]):
        yield name, list(group)


def shown(name: str) -> str:
    """The name of an algorithm as readers know it."""
    module, _, own = name.rpartition(":")
    paths = {"": "", "_sb3": ", Stable-Baselines3", "_plain": ", TorchRL's own path"}
    return own.removesuffix("_plain") + paths[module]


def per_seed(results: Sequence[Result]) -> str:
    lines = [
        "| algorithm | seed | return, mean | std over episodes | frames | updates | minutes |",
        "|---|---:|---:|---:|---:|---:|---:|",
    ]
    for result in results:
        final, last = result["evaluation"], result["curve"][-1]
        lines.append(
            f"| {shown(result['algorithm'])} | {result['seed']} | {final['return_mean']:.1f} | "
            f"{final['return_std']:.1f} | {last['frames']:.0f} | {last['updates']:.0f} | "
            f"{last['seconds'] / 60:.2f} |"
        )
    return "\n".join(lines)


def over_seeds(results: Sequence[Result]) -> str:
    lines = [
        "| algorithm | seeds | return, mean | std over seeds | worst seed | best seed | frames |",
        "|---|---:|---:|---:|---:|---:|---:|",
    ]
    for name, group in by_algorithm(results):
        returns = [result["evaluation"]["return_mean"] for result in group]
        spread = f"{statistics.stdev(returns):.1f}" if len(returns) > 1 else "-"
        frames = statistics.mean(result["curve"][-1]["frames"] for result in group)
        lines.append(
            f"| {shown(name)} | {len(returns)} | {statistics.mean(returns):.1f} | {spread} | "
            f"{min(returns):.1f} | {max(returns):.1f} | {frames:.0f} |"
        )
    return "\n".join(lines)


def write(
    results: Sequence[Result],
    folder: Path,
    *,
    name: str,
    title: str,
    command: str,
    settings: str,
    episodes: int,
) -> Path:
    """``<name>.md`` and ``<name>.png`` in ``folder``; returns the table's path."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}.md"
    parts = [
        f"# {title}",
        f"`{command}`",
        f"Trained with `{settings}`, everything else at its default; evaluated at the end over "
        f"{episodes} episodes of the deterministic policy, the same for all of ours. Curves are "
        f"means and standard deviations over seeds. {processor()}, "
        f"{os.cpu_count()} cores.",
        f"![curves]({name}.png)",
        "## Over seeds",
        over_seeds(results),
        "## Each seed",
        per_seed(results),
    ]
    path.write_text("\n\n".join(parts) + "\n")
    draw(results, folder / f"{name}.png", title=settings.split()[0].removeprefix("env="))
    return path


def draw(results: Sequence[Result], path: Path, *, title: str) -> None:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axis = pyplot.subplots(figsize=(10, 5))
    curves = {name: aligned([r["curve"] for r in group]) for name, group in by_algorithm(results)}
    budgets = [grid[-1] for grid, _ in curves.values()]
    if max(budgets) > _FAR * min(budgets):
        axis.set_xscale("log")
    colors = colors_of(list(curves))
    for name, (grid, returns) in curves.items():
        mean, spread = returns.mean(0), returns.std(0)
        color = colors[name]
        style = {"color": color, "linestyle": "--" if ":" in name else "-"}
        axis.plot(grid, mean, label=f"{shown(name)}; {len(returns)} seeds", **style)
        axis.fill_between(grid, mean - spread, mean + spread, color=color, alpha=0.15)
        for row in returns if len(curves) <= _FAR else ():
            axis.plot(grid, row, linewidth=0.5, alpha=0.5, **style)
    axis.set_xlabel("frames")
    axis.set_ylabel("return of the deterministic policy")
    axis.set_title(title, fontsize=10)
    axis.legend(fontsize=8)
    axis.spines[["top", "right"]].set_visible(False)
    figure.tight_layout()
    figure.savefig(path, dpi=120)
    pyplot.close(figure)


def colors_of(names: Sequence[str]) -> dict[str, str]:
    """Each algorithm has one color, whoever runs it; another library's curve is dashed."""
    algorithms = [name.rpartition(":")[2].removesuffix("_plain") for name in names]
    kinds = list(dict.fromkeys(algorithms))
    if len(kinds) == 1:
        return {name: f"C{index}" for index, name in enumerate(names)}
    return {name: f"C{kinds.index(kind)}" for name, kind in zip(names, algorithms, strict=True)}


def aligned(curves: Sequence[Sequence[Mapping[str, float]]]) -> tuple[np.ndarray, np.ndarray]:
    """Returns of every curve, [seeds, points], on the frames that all of them cover."""
    evaluated = [
        np.array([(row["frames"], row["return_mean"]) for row in rows]).reshape(-1, 2)
        for rows in curves
    ]
    return on_one_grid([rows[np.isfinite(rows[:, 1])] for rows in evaluated])
