"""Pictures of a comparison: learning curves, scores with intervals, performance profiles."""

from __future__ import annotations

import io
import re
import textwrap
from collections.abc import Mapping, Sequence
from typing import Any

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import EngFormatter, MaxNLocator

from torchrl_elegant.reports.groups import Group, Section, normalized
from torchrl_elegant.reports.statistics import Bootstrap, interquartile_mean
from torchrl_elegant.reports.stored_runs import Array
from torchrl_elegant.runs.curve import plain_label
from torchrl_elegant.runs.pages import COLORS

#: Groups that one panel can hold and stay readable.
PER_PANEL = len(COLORS)
# Lines, ticks and letters; a page that is shown on black puts its own color in its place.
_INK = "#2b2f36"
_WIDTH = 9.6


def places(sections: Sequence[Section]) -> dict[str, int]:
    """A color for each label on the whole page, where there are enough; else none is promised."""
    labels = dict.fromkeys(group.label for section in sections for group in section.groups)
    return {label: place for place, label in enumerate(labels)} if len(labels) <= PER_PANEL else {}


def curves(section: Section, colors: Mapping[str, int]) -> Figure:
    """Returns over frames: the interquartile mean of each group, within its worst and best run.

    ``colors`` is what ``places`` gives; a label without one takes that of its place in the panel.
    """
    rounds = _panels(section.groups)
    figure, panels = _figure(rows=len(rounds), height=3.9)
    for axes, groups in zip(panels, rounds, strict=True):
        for place, group in enumerate(groups):
            index = colors.get(group.label, place)
            grid, returns = group.curve()
            center = interquartile_mean(returns.T)
            marker = "o" if grid.size == 1 else None
            axes.plot(grid, center, marker=marker, **_style(index), label=_legend_text(group))
            axes.fill_between(
                grid, returns.min(0), returns.max(0), color=COLORS[index], alpha=0.14, linewidth=0
            )
        if any(group.reach > 1.02 * section.frame for group in section.groups):
            axes.axvline(section.frame, color=_INK, linewidth=0.8, linestyle=":")
            across = axes.get_xaxis_transform()
            told = axes.text(section.frame, 0.02, " compared here", transform=across)
            told.set(color=_INK, fontsize=8)
        axes.set_ylabel("return of an evaluation")
        axes.set_xlabel("environment frames")
        axes.xaxis.set_major_formatter(EngFormatter(sep=""))
        axes.tick_params(labelbottom=True)
        axes.set_xlim(left=0)
        _dress(axes)
        _legend(axes)
    _limit(panels[0], section.groups)
    return figure


def scores(section: Section, bootstrap: Bootstrap, colors: Mapping[str, int]) -> Figure:
    """Interquartile means with their intervals beside the performance profile."""
    groups = section.groups[:PER_PANEL]
    strata = [[group.scores] for group in groups]
    return _two_panels([group.label for group in groups], strata, bootstrap, colors, "return")


def overall(
    sections: Sequence[Section],
    labels: Sequence[str],
    bootstrap: Bootstrap,
    colors: Mapping[str, int],
) -> Figure:
    """The same over all environments, of returns that are scaled in each of them."""
    labels = labels[:PER_PANEL]
    strata = [normalized(sections, label) for label in labels]
    return _two_panels(labels, strata, bootstrap, colors, "scaled return")


def _two_panels(
    labels: Sequence[str],
    strata: Sequence[Sequence[Array]],
    bootstrap: Bootstrap,
    colors: Mapping[str, int],
    unit: str,
) -> Figure:
    figure = _new_figure(max(2.6, 1.4 + 0.42 * len(labels)))
    left, right = figure.subplots(1, 2, gridspec_kw={"width_ratios": (1.15, 1), "wspace": 0.06})
    every = np.concatenate([row for rows in strata for row in rows])
    space = 0.03 * (np.ptp(every) or 1.0)
    thresholds = np.linspace(every.min() - space, every.max() + space, 200)
    for place, rows in enumerate(strata):
        index = colors.get(labels[place], place)
        interval = bootstrap.stratified(rows, interquartile_mean)
        if sum(row.size for row in rows) > 1:
            bar = [interval.low, interval.high]
            left.plot(bar, [place, place], color=COLORS[index], linewidth=6, alpha=0.4)
        left.plot(interval.value, place, "o", color=COLORS[index], markersize=7)
        share, low, high = bootstrap.profile(rows, thresholds)
        right.step(thresholds, share, where="post", **_style(index))
        if len(labels) <= 4:
            band = {"color": COLORS[index], "alpha": 0.12, "linewidth": 0}
            right.fill_between(thresholds, low, high, step="post", **band)
    names = [textwrap.fill(plain_label(label), 26) for label in labels]
    left.set_yticks(range(len(labels)), names)
    left.set_ylim(len(labels) - 0.4, -0.6)
    percent = f"{100 * bootstrap.confidence:g} % interval"
    left.set_xlabel(f"interquartile mean of the {unit}, {percent}")
    left.margins(x=0.08)
    left.xaxis.set_major_locator(MaxNLocator(6))
    right.set_xlabel(f"{unit} τ")
    right.set_ylabel("share of runs above τ")
    right.set_ylim(-0.03, 1.03)
    for axes in (left, right):
        _dress(axes)
    return figure


def _panels(groups: Sequence[Group]) -> list[Sequence[Group]]:
    return [groups[start : start + PER_PANEL] for start in range(0, len(groups), PER_PANEL)]


def _limit(axes: Axes, groups: Sequence[Group]) -> None:
    """Keep one run that fell far below all others from pressing the curves flat."""
    drawn = [group.curve()[1] for group in groups]
    centers = np.concatenate([interquartile_mean(returns.T) for returns in drawn])
    every = np.concatenate([returns.ravel() for returns in drawn])
    span = np.ptp(centers) or np.ptp(every) or 1.0
    low = max(every.min(), centers.min() - span)
    high = min(every.max(), centers.max() + span)
    axes.set_ylim(low - 0.05 * (high - low or 1.0), high + 0.05 * (high - low or 1.0))


def _figure(*, rows: int, height: float) -> tuple[Figure, list[Axes]]:
    figure = _new_figure(height * rows)
    return figure, list(figure.subplots(rows, 1, squeeze=False, sharex=True, sharey=True)[:, 0])


def _new_figure(height: float) -> Figure:
    # No pyplot, whose figures belong to the caller.
    figure = Figure(figsize=(_WIDTH, height), layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def _style(index: int) -> dict[str, Any]:
    dashes = "-" if index < PER_PANEL // 2 else "--"
    return {"color": COLORS[index], "linestyle": dashes, "linewidth": 1.8}


def _legend_text(group: Group) -> str:
    seeds = "1 seed" if len(group.runs) == 1 else f"{len(group.runs)} seeds"
    return textwrap.fill(f"{plain_label(group.label)}; {seeds}", 30)


def _legend(axes: Axes) -> None:
    legend = axes.legend(
        loc="center left", bbox_to_anchor=(1.01, 0.5), frameon=False, fontsize=9, labelspacing=0.8
    )
    for text in legend.get_texts():
        text.set_color(_INK)


def _dress(axes: Axes) -> None:
    axes.grid(alpha=0.22, linewidth=0.6, color=_INK)
    axes.spines[["top", "right"]].set_visible(False)
    axes.spines[["left", "bottom"]].set_color(_INK)
    axes.tick_params(colors=_INK, labelsize=9)
    axes.patch.set_visible(False)
    for label in (axes.xaxis.label, axes.yaxis.label):
        label.set_color(_INK)
        label.set_fontsize(9.5)


def png(figure: Figure) -> bytes:
    """The picture on white."""
    data = io.BytesIO()
    figure.savefig(data, format="png", dpi=120, facecolor="white")
    return data.getvalue()


def svg(figure: Figure, name: str) -> str:
    """The picture as an element of a page, in the page's own color and without ground.

    ``name`` sets its identifiers apart from those of other pictures on the page.
    """
    data = io.StringIO()
    with matplotlib.rc_context({"svg.fonttype": "none", "svg.hashsalt": name}):
        nothing = {"Date": None, "Creator": None, "Format": None, "Type": None}
        figure.savefig(data, format="svg", transparent=True, metadata=nothing)
    text = data.getvalue()
    used = set(re.findall(r"#([\w.-]+)", text))
    # The names of all other elements are the same in every picture.
    text = re.sub(r' id="([^"]*)"', lambda found: found[0] if found[1] in used else "", text)
    return text[text.index("<svg") :].replace(_INK, "currentColor")
