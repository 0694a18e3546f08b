"""`learning_curve.png`: one run at a glance, drawn from what its folder holds."""

from __future__ import annotations

import io
import math
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Any

import yaml
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import EngFormatter

from torchrl_elegant.runs.files import write_file
from torchrl_elegant.runs.metrics import COLUMNS, read_metrics

_RETURN, _TRAIN, _EMPTY = "#0b5394", "#e69138", "#9a9a9a"
_COLORS = ("#0b5394", "#cc4125", "#38761d", "#674ea7")
_SYMLOG = " (symlog)"

# Panels below the returns: name of the axis, and the columns that may stand in it. Scales differ
# much between them, and little within.
_PANELS = (
    ("episode length", ("length_mean",)),
    ("loss of the values", ("loss_qvalue", "loss_critic", "loss_value", "loss", "critic_error")),
    ("value", ("pred_value", "target_value", "state_action_value_actor", "next_state_value")),
    ("loss of the policy", ("loss_actor", "loss_objective", "loss_entropy")),
    ("H-term", ("loss_hamiltonian",)),
    ("entropy, temperature", ("entropy", "alpha")),
    ("change of the policy", ("clip_fraction", "kl_approx")),
    ("explained variance", ("explained_variance",)),
)
_PLACED = frozenset(name for _, names in _PANELS for name in names)
# For whoever looks for them in metrics.csv: they tell a glance nothing, or what others tell.
_LEFT_OUT = frozenset(
    (*COLUMNS, "loss_alpha", "ESS", "max_ratio", "mean_ratio", "pred_value_max", "target_value_max")
)


def draw_curve(folder: str | Path) -> Path:
    """Draw `metrics.csv` of a run folder into `learning_curve.png` and return its path.

    Above the evaluation return, with the spread over episodes, beside the return of training
    episodes. Below a panel for each kind of column, of four lines at most. Uses no pyplot state, so
    that it may run in any thread and beside a caller's own figures.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = (Path(folder) / "metrics.csv").write_text("frames,return_mean\\n100,1.5\\n")
    ...     draw_curve(folder).name
    'learning_curve.png'
    """
    folder = Path(folder)
    rows = read_metrics(folder / "metrics.csv")
    panels = _panels(rows)
    figure, axes = _figure(len(panels))
    _draw_returns(axes[0], rows)
    for below, (label, names) in zip(axes[1:], panels, strict=True):
        _draw_columns(below, rows, label, names)
    for each in axes:
        each.grid(alpha=0.25, linewidth=0.6)
        each.spines[["top", "right"]].set_visible(False)
        each.xaxis.set_major_formatter(EngFormatter(sep=""))
        each.set_xlim(0, max((row["frames"] for row in rows), default=1) * 1.01)
        if not each.lines:
            each.text(0.5, 0.5, "nothing yet", transform=each.transAxes, ha="center", color=_EMPTY)
            each.set_yticks([])
    for lowest in axes[-1:] if len(panels) % 2 else axes[-2:]:
        lowest.set_xlabel("environment frames")
    figure.suptitle(_title(folder), fontsize=13)
    picture = io.BytesIO()
    figure.savefig(picture, format="png", dpi=110)
    path = folder / "learning_curve.png"
    write_file(path, picture.getvalue())
    return path


def _panels(rows: Sequence[dict[str, float]]) -> list[tuple[str, Sequence[str]]]:
    """Axis and columns of each panel that has something to show."""
    filled = [
        name
        for name in (rows[0] if rows else ())
        if any(math.isfinite(row.get(name, math.nan)) for row in rows)
    ]
    known = [(label, [name for name in names if name in filled]) for label, names in _PANELS]
    panels: list[tuple[str, Sequence[str]]] = [(label, names) for label, names in known if names]
    others = [name for name in filled if name not in _PLACED | _LEFT_OUT]
    # What a callback has logged can be anything: each on a scale of its own.
    return panels + [(name, [name]) for name in others]


def _figure(count: int) -> tuple[Figure, list[Axes]]:
    """The returns over the whole width, and ``count`` panels in two columns below."""
    lines = -(-count // 2)
    height = 4.4 + 2.1 * max(lines, 1)
    figure = Figure(figsize=(11, height))
    FigureCanvasAgg(figure)
    # Margins by hand: to have them measured takes as long as all the rest.
    grid = figure.add_gridspec(
        1 + lines,
        2,
        height_ratios=[2.0] + [1.0] * lines,
        left=0.085,
        right=0.98,
        bottom=0.6 / height,
        top=1 - 0.85 / height,
        hspace=0.42,
        wspace=0.22,
    )
    axes = [figure.add_subplot(grid[0, :])]
    for number in range(count):
        alone = count % 2 and number == count - 1
        place = grid[1 + number // 2, :] if alone else grid[1 + number // 2, number % 2]
        axes.append(figure.add_subplot(place))
    return figure, axes


def _draw_returns(axes: Axes, rows: Sequence[dict[str, float]]) -> None:
    _line(axes, rows, "train_return", color=_TRAIN, linewidth=1.2, label="training episodes")
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
            frames,
            low,
            high,
            color=_RETURN,
            alpha=0.15,
            linewidth=0,
            label="± 1 std of evaluation episodes",
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
    axes.set_ylabel("return of an episode")
    _legend(axes)


def _draw_columns(
    axes: Axes, rows: Sequence[dict[str, float]], label: str, names: Sequence[str]
) -> None:
    for color, name in zip(_COLORS, names, strict=False):
        _line(axes, rows, name, color=color, linewidth=1.4, label=plain_label(name))
    values = [abs(row[name]) for row in rows for name in names if math.isfinite(row[name])]
    # A few large values would press all others flat onto the axis.
    if values and max(values) > 20 * max(1.0, median(values)):
        axes.set_yscale("symlog", linthresh=1.0)
        label += _SYMLOG
    if values and max(values) > 9_999:
        axes.yaxis.set_major_formatter(EngFormatter(sep=""))
    axes.set_ylabel(plain_label(label))
    _legend(axes)


def plain_label(label: str) -> str:
    r"""A label that matplotlib shows as it is.

    >>> plain_label("_cost in $")
    ' _cost in \\$'
    """
    # A dollar would begin a formula, and a leading underscore hides a line from the legend.
    return label.replace("$", r"\$").replace("_", " _", 1 if label.startswith("_") else 0)


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
    """Names in one line above the panel, where they cover nothing."""
    if axes.lines:
        axes.legend(
            loc="lower left",
            bbox_to_anchor=(0.0, 0.98),
            ncols=4,
            frameon=False,
            fontsize=9,
            borderaxespad=0.2,
            handlelength=1.4,
            columnspacing=1.2,
        )


def _title(folder: Path) -> str:
    try:
        page = yaml.safe_load((folder / "config.yaml").read_text(encoding="utf-8"))
        return f"{page['run']['env']}   {page['algorithm']}   seed {page['run']['seed']}"
    except (OSError, yaml.YAMLError, KeyError, TypeError):
        # A curve is worth having without the config that names it.
        return folder.resolve().name
