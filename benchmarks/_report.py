"""Writes what was timed: a table in Markdown, every round in CSV, and a picture."""

from __future__ import annotations

import argparse
import csv
import os
import platform
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from statistics import median
from textwrap import wrap

from _interleave import Result

RATIO_NOTE = (
    "Of medians; after the comma, the lowest and the highest of the rounds paired in their order."
)


@dataclass(frozen=True, kw_only=True)
class Ratio:
    """One contender's median over the best of some others', and what it is to be at least.

    Only in cases of ``kinds``, where they are given.
    """

    of: str
    to: tuple[str, ...]
    at_least: float | None = None
    kinds: tuple[str, ...] | None = None

    @property
    def title(self) -> str:
        best = " at its best" if len(self.to) > 1 else ""
        wanted = "" if self.at_least is None else f" (at least {self.at_least:g})"
        return f"{self.of} / {self.to[0]}{best}{wanted}"

    def cell(self, results: Sequence[Result]) -> str:
        """The ratio of medians, and the lowest and the highest of the rounds' ratios."""
        rates = {result.contender: result.rates for result in results}
        others = [rates[name] for name in self.to if name in rates]
        taken = self.kinds is None or results[0].case.kind in self.kinds
        if self.of not in rates or not others or not taken:
            return "-"
        other = max(others, key=median)
        rounds = [a / b for a, b in zip(rates[self.of], other, strict=True)]
        ratio = median(rates[self.of]) / median(other)
        mark = "" if self.at_least is None or ratio >= self.at_least else " (short)"
        return f"{ratio:.2f}{mark}, {min(rounds):.2f} to {max(rounds):.2f}"


def by_case(results: Sequence[Result]) -> Iterable[tuple[str, list[Result]]]:
    for title, group in groupby(results, key=lambda result: result.case.title):
        yield title, list(group)


def number(rate: float) -> str:
    return f"{rate:.0f}" if rate >= 100 else f"{rate:.3g}"


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
        cells = " | ".join(map(number, numbers))
        lines.append(f"| {result.contender} | {cells} | {result.median / best:.2f} |")
    return "\n".join(lines)


def ratio_table(results: Sequence[Result], ratios: Sequence[Ratio]) -> str:
    """A row per case, a column per ratio that some case has."""
    cases = list(by_case(results))
    cells = {ratio: [ratio.cell(group) for _, group in cases] for ratio in ratios}
    shown = [ratio for ratio in ratios if set(cells[ratio]) != {"-"}]
    if not shown:
        return ""
    lines = [
        "| | " + " | ".join(ratio.title for ratio in shown) + " |",
        "|---|" + "---:|" * len(shown),
    ]
    for row, (title, _) in enumerate(cases):
        texts = [cells[ratio][row] for ratio in shown]
        if set(texts) != {"-"}:
            lines.append(f"| {title} | " + " | ".join(texts) + " |")
    return "\n".join(lines)


def versions_of(results: Sequence[Result]) -> str:
    """Every package with its version; with both, where two interpreters differ."""
    found: dict[str, set[str]] = {}
    for result in results:
        for name, version in result.versions.items():
            found.setdefault(name, set()).add(version)
    return ", ".join(f"{name} {' and '.join(sorted(found[name]))}" for name in sorted(found))


def processor() -> str:
    info = Path("/proc/cpuinfo")
    if info.exists():
        for line in info.read_text().splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    return platform.processor() or platform.machine()


def markdown(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Table whose first column is text and whose others are numbers."""
    lines = [head, ["---", *["---:"] * (len(head) - 1)], *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def results_parser(doc: str | None) -> argparse.ArgumentParser:
    """Parser of a script that writes results."""
    parser = argparse.ArgumentParser(
        description=doc, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    folder = Path(__file__).resolve().parent / "results"
    about = "folder for what is written (default: benchmarks/results)"
    parser.add_argument("--results", type=Path, default=folder, help=about)
    return parser


def write_page(folder: Path, name: str, *parts: str) -> None:
    """``<name>.md`` in ``folder``; a blank line goes between ``parts``."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{name}.md").write_text("\n\n".join(parts) + "\n")


def setting(results: Sequence[Result], load: tuple[float, float]) -> str:
    return (
        f"{processor()}, {os.cpu_count()} cores, Python {platform.python_version()}; "
        f"{versions_of(results)}. {len(results[0].rates)} rounds a contender, interleaved, one "
        "process each, one running at a time; warm-up and compilation excluded; the same networks, "
        "batch and processors for all, and the same threads where no name says otherwise; load of "
        f"the machine {load[0]:.2f} before the run, {load[1]:.2f} after. Other machines give other "
        "numbers: compare within a table."
    )


def write(
    results: Sequence[Result],
    folder: Path,
    *,
    name: str,
    title: str,
    command: str,
    load: tuple[float, float],
    ratios: Sequence[Ratio] = (),
    notes: str = "",
) -> None:
    """``<name>.md``, ``<name>.csv`` and ``<name>.png`` in ``folder``."""
    parts = [f"# {title}", f"`{command}`", setting(results, load)]
    parts += [notes] * bool(notes) + [f"![rates]({name}.png)"]
    if compared := ratio_table(results, ratios):
        parts += ["## Ratios", RATIO_NOTE, compared]
    for case_title, group in by_case(results):
        parts += [f"## {case_title}", table(group)]
    write_page(folder, name, *parts)
    with (folder / f"{name}.csv").open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["case", "contender", "round", "rate", "unit"])
        for result in results:
            for turn, rate in enumerate(result.rates):
                row = (result.case.slug, result.contender, turn, f"{rate:.2f}", result.case.unit)
                writer.writerow(row)
    draw(results, folder / f"{name}.png")


def draw(results: Sequence[Result], path: Path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    groups = list(by_case(results))
    rows = (len(groups) + 1) // 2
    figure, axes = pyplot.subplots(
        rows,
        min(2, len(groups)),
        figsize=(15, 0.8 + 2.9 * rows),
        squeeze=False,
        # Names are as long as they have to be.
        layout="constrained",
    )
    names = list(dict.fromkeys(result.contender for result in results))
    colors = dict(zip(names, pyplot.get_cmap("tab20").colors, strict=False))
    for axis, (title, group) in zip(axes.flat, groups, strict=False):
        ordered = sorted(group, key=lambda result: result.median)
        medians = [result.median for result in ordered]
        spread = [
            [result.median - min(result.rates) for result in ordered],
            [max(result.rates) - result.median for result in ordered],
        ]
        labels = [result.contender for result in ordered]
        bars = axis.barh(
            labels, medians, xerr=spread, color=[colors[label] for label in labels], capsize=3
        )
        axis.bar_label(bars, labels=[number(rate) for rate in medians], padding=8)
        axis.locator_params(axis="x", nbins=5)
        axis.set_xlim(0, 1.2 * max(max(result.rates) for result in group))
        axis.set_title("\n".join(wrap(title, 48)), fontsize=9, loc="left")
        axis.set_xlabel(f"{group[0].case.unit} (median; whiskers: lowest, highest)")
        axis.spines[["top", "right"]].set_visible(False)
    for axis in list(axes.flat)[len(groups) :]:
        axis.set_visible(False)
    figure.savefig(path, dpi=120)
    pyplot.close(figure)
