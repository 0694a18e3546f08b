"""Writes what was timed: a table in Markdown, every round in CSV, and a picture."""

from __future__ import annotations

import csv
import os
import platform
from collections.abc import Iterable, Sequence
from itertools import groupby
from pathlib import Path
from textwrap import wrap

from _interleave import Result


def by_case(results: Sequence[Result]) -> Iterable[tuple[str, list[Result]]]:
    for title, group in groupby(results, key=lambda result: result.case.title):
        yield title, list(group)


def table(results: Sequence[Result]) -> str:
    """One Markdown table of one case, fastest first."""
    unit = results[0].case.unit
    best = max(result.median for result in results)
    lines = [
        f"| | {unit}, median | lowest | highest | of the fastest |",
        "|---|---:|---:|---:|---:|",
    ]
    for result in sorted(results, key=lambda result: -result.median):
        numbers = (result.median, min(result.rates), max(result.rates))
        cells = " | ".join(f"{number:.0f}" for number in numbers)
        lines.append(f"| {result.contender} | {cells} | {result.median / best:.2f} |")
    return "\n".join(lines)


def processor() -> str:
    info = Path("/proc/cpuinfo")
    if info.exists():
        for line in info.read_text().splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    return platform.processor() or platform.machine()


def write(
    results: Sequence[Result], folder: Path, *, name: str, title: str, command: str, load: float
) -> None:
    """``<name>.md``, ``<name>.csv`` and ``<name>.png`` in ``folder``."""
    folder.mkdir(parents=True, exist_ok=True)
    versions = {key: value for result in results for key, value in result.versions.items()}
    rounds = len(results[0].rates)
    parts = [
        f"# {title}",
        f"`{command}`",
        f"{processor()}, {os.cpu_count()} cores, Python {platform.python_version()}; "
        + ", ".join(f"{key} {value}" for key, value in sorted(versions.items()))
        + f". {rounds} rounds a contender, interleaved, one process each, one running at a time; "
        "warm-up and compilation excluded; the same networks, batch, threads and processors for "
        f"all; load of the machine before the run {load:.2f}. Other machines give other numbers: "
        "compare within a table.",
        f"![rates]({name}.png)",
    ]
    for case_title, group in by_case(results):
        parts += [f"## {case_title}", table(group)]
    (folder / f"{name}.md").write_text("\n\n".join(parts) + "\n")
    with (folder / f"{name}.csv").open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["case", "contender", "round", "rate", "unit"])
        for result in results:
            for number, rate in enumerate(result.rates):
                row = (result.case.slug, result.contender, number, f"{rate:.2f}", result.case.unit)
                writer.writerow(row)
    draw(results, folder / f"{name}.png")


def draw(results: Sequence[Result], path: Path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    groups = list(by_case(results))
    rows = (len(groups) + 1) // 2
    figure, axes = pyplot.subplots(
        rows, min(2, len(groups)), figsize=(12, 0.8 + 2.9 * rows), squeeze=False
    )
    names = list(dict.fromkeys(result.contender for result in results))
    colours = dict(zip(names, pyplot.get_cmap("tab10").colors, strict=False))
    for axis, (title, group) in zip(axes.flat, groups, strict=False):
        ordered = sorted(group, key=lambda result: result.median)
        medians = [result.median for result in ordered]
        spread = [
            [result.median - min(result.rates) for result in ordered],
            [max(result.rates) - result.median for result in ordered],
        ]
        labels = [result.contender for result in ordered]
        bars = axis.barh(
            labels, medians, xerr=spread, color=[colours[label] for label in labels], capsize=3
        )
        axis.bar_label(bars, fmt="%.0f", padding=8)
        axis.set_xlim(0, 1.2 * max(max(result.rates) for result in group))
        axis.set_title("\n".join(wrap(title, 48)), fontsize=9, loc="left")
        axis.set_xlabel(f"{group[0].case.unit} (median; whiskers: lowest, highest)")
        axis.spines[["top", "right"]].set_visible(False)
    for axis in list(axes.flat)[len(groups) :]:
        axis.set_visible(False)
    figure.tight_layout()
    figure.savefig(path, dpi=120)
    pyplot.close(figure)
