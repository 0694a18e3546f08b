"""Draws a study of the H-term: learning curves, and where each seed ended."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from _learning_report import aligned
from _seeds import Result

from torchrl_elegant.reports import Bootstrap, interquartile_mean


def draw(groups: Mapping[str, Sequence[Result]], path: Path, *, title: str) -> None:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, (left, right) = pyplot.subplots(
        ncols=2, figsize=(12, 5), width_ratios=(1.7, 1), layout="constrained"
    )
    for place, (name, group) in enumerate(groups.items()):
        color = f"C{place}"
        draw_curves(left, name, group, color)
        draw_strip(right, place, group, color)
    left.set_xlabel("frames")
    left.set_ylabel("return of the deterministic policy")
    left.set_title("mean over seeds, and their quartiles", fontsize=10)
    # Outside, where no curve can end beneath it.
    figure.legend(*left.get_legend_handles_labels(), loc="outside lower left", ncols=6, fontsize=9)
    names = [f"{name}\n{len(group)} seeds" for name, group in groups.items()]
    right.set_xticks(range(len(names)), names, fontsize=9)
    right.set_xlim(-0.6, len(names) - 0.4)
    right.set_ylabel("return at the end")
    right.set_title("each seed; bar and whisker: IQM and its 95 % interval", fontsize=10)
    for axis in (left, right):
        axis.spines[["top", "right"]].set_visible(False)
    figure.suptitle(title, fontsize=11)
    figure.savefig(path, dpi=120)
    pyplot.close(figure)


def draw_curves(axis, name: str, group: Sequence[Result], color: str) -> None:
    frames, returns = aligned([result["curve"] for result in group])
    low, high = np.quantile(returns, [0.25, 0.75], axis=0)
    axis.plot(frames, returns.mean(0), color=color, label=name)
    axis.fill_between(frames, low, high, color=color, alpha=0.2, linewidth=0)


def draw_strip(axis, place: int, group: Sequence[Result], color: str) -> None:
    returns = [result["evaluation"]["return_mean"] for result in group]
    # Side by side in the order of seeds, and so the same in every picture.
    beside = np.linspace(-0.25, 0.05, len(returns)) if len(returns) > 1 else [-0.1]
    axis.scatter(place + np.asarray(beside), returns, color=color, alpha=0.6, s=22, linewidth=0)
    found = Bootstrap().of(returns, interquartile_mean)
    axis.plot([place + 0.25] * 2, [found.low, found.high], color=color, linewidth=2)
    axis.plot([place + 0.15, place + 0.35], [found.value] * 2, color="black", linewidth=2)
