"""`learning_curve.png`: one run at a glance, drawn from what its folder holds."""

from __future__ import annotations

import io
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import EngFormatter

from torchrl_elegant.runs.files import write_file
from torchrl_elegant.runs.metrics import read_metrics
from torchrl_elegant.trainers.clock import PACE_COLUMNS

_RETURN, _TRAIN, _LENGTH = "#0b5394", "#9a9a9a", "#38761d"
_LOSSES = ("#cc4125", "#674ea7", "#b45f06", "#0b5394", "#38761d", "#741b47")
_SHOWN_ABOVE = ("return_mean", "return_std", "return_ci95", "length_mean", "train_return")
# Room for the legends; to have it measured takes as long as all the rest.
_MARGINS = {"left": 0.09, "right": 0.79, "bottom": 0.06, "top": 0.94, "hspace": 0.08}
_NOT_LOSSES = frozenset(("frames", "updates", "seconds", *PACE_COLUMNS, *_SHOWN_ABOVE))


def draw_curve(folder: str | Path) -> Path:
    """Draw `metrics.csv` of a run folder into `learning_curve.png` and return its path.

    Three panels: evaluation return with the spread over episodes and the training return;
    episode length; every other column, each on the scale that keeps it readable. Uses no pyplot
    state, so that it may run in any thread and beside a caller's own figures.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = (Path(folder) / "metrics.csv").write_text("frames,return_mean\\n100,1.5\\n")
    ...     draw_curve(folder).name
    'learning_curve.png'
    """
    folder = Path(folder)
    rows = read_metrics(folder / "metrics.csv")
    figure = Figure(figsize=(10, 8.5))
    FigureCanvasAgg(figure)
    panels = figure.subplots(3, 1, sharex=True, height_ratios=(3, 1.4, 2), gridspec_kw=_MARGINS)
    _draw_returns(panels[0], rows)
    _draw_lengths(panels[1], rows)
    _draw_losses(panels[2], rows)
    for axes in panels:
        axes.grid(alpha=0.25, linewidth=0.6)
        axes.spines[["top", "right"]].set_visible(False)
        if not axes.lines:
            axes.text(0.5, 0.5, "nothing yet", transform=axes.transAxes, ha="center", color=_TRAIN)
            axes.set_yticks([])
    panels[-1].set_xlabel("environment frames")
    panels[-1].xaxis.set_major_formatter(EngFormatter(sep=""))
    panels[-1].set_xlim(left=0)
    if not rows:
        panels[-1].set_xticks([])
    figure.suptitle(_title(folder), fontsize=13)
    picture = io.BytesIO()
    figure.savefig(picture, format="png", dpi=110)
    path = folder / "learning_curve.png"
    write_file(path, picture.getvalue())
    return path


def _draw_returns(axes: Axes, rows: Sequence[dict[str, float]]) -> None:
    _line(axes, rows, "train_return", color=_TRAIN, linewidth=1.0, label="training episodes")
    mean = _line(axes, rows, "return_mean", color=_RETURN, linewidth=1.8, label="evaluation")
    band = [row for row in mean if math.isfinite(row.get("return_std", math.nan))]
    if band:
        frames = [row["frames"] for row in band]
        center = [row["return_mean"] for row in band]
        spread = [row["return_std"] for row in band]
        low = [mean - std for mean, std in zip(center, spread, strict=True)]
        high = [mean + std for mean, std in zip(center, spread, strict=True)]
        # A band over a single point has no width: bars carry it there.
        axes.fill_between(
            frames, low, high, color=_RETURN, alpha=0.15, linewidth=0, label="± 1 std of episodes"
        )
        if len(band) == 1:
            axes.errorbar(frames, center, spread, color=_RETURN, alpha=0.5, capsize=4)
    if mean:
        best = max(mean, key=lambda row: row["return_mean"])
        axes.plot(
            best["frames"],
            best["return_mean"],
            "o",
            color=_RETURN,
            markersize=6,
            label=f"best {best['return_mean']:.4g}",
        )
    axes.set_ylabel("return")
    _legend(axes)


def _draw_lengths(axes: Axes, rows: Sequence[dict[str, float]]) -> None:
    _line(axes, rows, "length_mean", color=_LENGTH, linewidth=1.5)
    axes.set_ylabel("episode length")


def _draw_losses(axes: Axes, rows: Sequence[dict[str, float]]) -> None:
    names = [name for name in (rows[0] if rows else ()) if name not in _NOT_LOSSES]
    for index, name in enumerate(names):
        _line(
            axes,
            rows,
            name,
            color=_LOSSES[index % len(_LOSSES)],
            linestyle=("-", "--", ":")[index // len(_LOSSES) % 3],
            linewidth=1.3,
            label=name,
        )
    values = [abs(row[name]) for row in rows for name in names if math.isfinite(row[name])]
    # A Q loss of hundreds would press a temperature of 0.1 flat onto the axis.
    if values and max(values) > 20:
        axes.set_yscale("symlog", linthresh=1.0)
        axes.yaxis.set_major_formatter(EngFormatter(sep=""))
    axes.set_ylabel("losses, entropy, alpha")
    _legend(axes)


def _line(
    axes: Axes, rows: Sequence[dict[str, float]], name: str, **style: Any
) -> list[dict[str, float]]:
    """Plot a column and return the rows that have it; a single point is shown as a dot."""
    present = [row for row in rows if math.isfinite(row.get(name, math.nan))]
    if present:
        marker = "o" if len(present) == 1 else None
        axes.plot(
            [row["frames"] for row in present],
            [row[name] for row in present],
            marker=marker,
            **style,
        )
    return present


def _legend(axes: Axes) -> None:
    if axes.lines:
        axes.legend(loc="center left", bbox_to_anchor=(1.01, 0.5), frameon=False, fontsize=9)


def _title(folder: Path) -> str:
    try:
        page = yaml.safe_load((folder / "config.yaml").read_text(encoding="utf-8"))
        return f"{page['run']['env']}   {page['algorithm']}   seed {page['run']['seed']}"
    except (OSError, yaml.YAMLError, KeyError, TypeError):
        # A curve is worth having without the config that names it.
        return folder.resolve().name
