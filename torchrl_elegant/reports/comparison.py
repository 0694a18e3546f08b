"""`compare`: run folders and sweeps in, one page with curves, intervals and tables out."""

from __future__ import annotations

import html
import json
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from functools import cached_property, partial
from itertools import count
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

from torchrl_elegant.config.text import UsageError
from torchrl_elegant.reports import pictures
from torchrl_elegant.reports.groups import Group, Section, grouped, normalized, shared_labels
from torchrl_elegant.reports.marl_eval import marl_eval_data
from torchrl_elegant.reports.statistics import Bootstrap, interquartile_mean, std
from torchrl_elegant.reports.stored_runs import UnreadableRunError, find_runs, read_run
from torchrl_elegant.reports.tables import (
    NONE,
    Table,
    interval_text,
    markdown_text,
    minutes,
    number,
)
from torchrl_elegant.runs.files import write_file
from torchrl_elegant.runs.folder import refused_by_the_system
from torchrl_elegant.runs.pages import page
from torchrl_elegant.runs.policy import new_file

# Fewer runs leave intervals that hold the truth less often than they say.
_FEW = 5


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """Runs side by side: a section for each environment, and notes on whatever was left out."""

    sections: tuple[Section, ...]
    notes: tuple[str, ...]
    bootstrap: Bootstrap = field(default_factory=partial(Bootstrap, resamples=2_000))

    def html(self) -> str:
        """One page that needs no other file and no network."""
        parts = [f"<h1>{html.escape(self._title())}</h1>", f"<p>{html.escape(self._about())}</p>"]
        if self.notes:
            items = "".join(f"<li>{html.escape(note)}</li>" for note in self.notes)
            parts.append(f"<h2>To know first</h2><ul>{items}</ul>")
        for number_of, (title, figures, tables) in enumerate(self._chapters):
            parts.append(f"<h2>{html.escape(title)}</h2>")
            for place, (caption, figure) in enumerate(figures):
                picture = pictures.svg(figure, f"picture-{number_of}-{place}")
                parts.append(
                    f"<figure>{picture}<figcaption>{html.escape(caption)}</figcaption></figure>"
                )
            parts += [table.html() for table in tables]
        parts.append("<h2>Runs</h2>" + self._runs().html())
        parts.append(f"<h2>How to read it</h2>{_READING}")
        return page(self._title(), "\n".join(parts))

    def summary(self) -> str:
        """A line for each group: environment, label, interquartile mean, runs."""
        rows = [
            (section.environment, group.label, self._score(group))
            for section in self.sections
            for group in section.groups
        ]
        widths = [max(len(row[place]) for row in rows) for place in (0, 1)]
        return "\n".join(
            f"{row[0].ljust(widths[0])}  {row[1].ljust(widths[1])}  {row[2]}" for row in rows
        )

    def markdown(self) -> str:
        """The tables, under the same headings."""
        parts = [f"# {markdown_text(self._title())}", markdown_text(self._about())]
        parts += ["\n".join(f"- {markdown_text(note)}" for note in self.notes)] * bool(self.notes)
        for title, _, tables in self._chapters:
            parts += [f"## {markdown_text(title)}", *(table.markdown() for table in tables)]
        return "\n\n".join(parts) + "\n"

    def latex(self) -> str:
        """The tables, for a paper that loads the package booktabs."""
        tables = [table.latex() for _, _, every in self._chapters for table in every]
        return "\n\n".join(["% Needs \\usepackage{booktabs}.", *tables]) + "\n"

    def write(self, folder: str | Path | None = None) -> Path:
        """Write ``comparison.html``, ``.md``, ``.tex`` and the pictures; returns the page's path.

        ``folder`` must be new or empty; None for the first of ``comparison``, ``comparison-2``,
        ... that is.
        """
        place = _free() if folder is None else Path(folder)
        _check_free(place)
        texts = {"html": self.html(), "md": self.markdown(), "tex": self.latex()}
        images = {
            f"picture-{number_of}-{place_of}.png": pictures.png(figure)
            for number_of, (_, figures, _) in enumerate(self._chapters)
            for place_of, (_, figure) in enumerate(figures)
        }
        with _written(place):
            place.mkdir(parents=True, exist_ok=True)
            for name, image in images.items():
                write_file(place / name, image)
            for suffix, text in texts.items():
                write_file(place / f"comparison.{suffix}", text.encode())
        return place / "comparison.html"

    def _title(self) -> str:
        names = [section.environment for section in self.sections]
        more = [f"{len(names) - 3} more"] * (len(names) > 3)
        return "Comparison on " + ", ".join([*names[:3], *more])

    def _about(self) -> str:
        groups = [group for section in self.sections for group in section.groups]
        runs = sum(len(group.runs) for group in groups)
        return (
            f"{runs} runs in {len(groups)} groups; runs of a group differ in their seed alone. "
            f"Intervals hold {100 * self.bootstrap.confidence:g} % of "
            f"{self.bootstrap.resamples:,} resamples of the runs."
        )

    @cached_property
    def _chapters(self) -> list[tuple[str, list[tuple[str, Figure]], list[Table]]]:
        """Heading, pictures with captions, and tables of each part."""
        chapters, colors = [], pictures.places(self.sections)
        for section in self.sections:
            figures = [(_CURVES, pictures.curves(section, colors))]
            if len(section.groups) > 1 or section.groups[0].scores.size > 1:
                cut = _cut(min(pictures.PER_PANEL, len(section.groups)), len(section.groups))
                scores = pictures.scores(section, self.bootstrap, colors)
                figures.append((f"{_SCORES}{cut}.", scores))
            chapters.append((section.environment, figures, list(self._tables(section))))
        labels = shared_labels(self.sections)
        if len(self.sections) > 1 and labels:
            figure = pictures.overall(self.sections, labels, self.bootstrap, colors)
            strata = {label: normalized(self.sections, label) for label in labels}
            tables = [self._overall(strata), *self._improvement(strata)]
            chapters.append(("All environments", [(_OVERALL, figure)], tables))
        return chapters

    def _tables(self, section: Section) -> Iterator[Table]:
        rows = []
        for group in section.groups:
            rows.append(
                (
                    group.label,
                    str(len(group.runs)),
                    self._score(group),
                    number(float(group.scores.mean())),
                    number(float(std(group.scores))),
                    number(float(group.scores.min())),
                    number(float(group.scores.max())),
                    _minutes(group),
                )
            )
        yield Table(
            caption=f"{section.environment}: returns at frame {section.frame:,.0f}",
            columns=(
                *("group", "seeds", "interquartile mean (interval)", "mean", "std"),
                *("worst seed", "best seed", "minutes, median"),
            ),
            rows=tuple(rows),
        )
        yield from _options(section)
        yield from self._improvement({group.label: [group.scores] for group in section.groups})

    def _score(self, group: Group) -> str:
        found = self.bootstrap.of(group.scores, interquartile_mean)
        return interval_text(found, len(group.runs))

    def _overall(self, strata: dict[str, list[np.ndarray]]) -> Table:
        rows = []
        for label, scores in strata.items():
            interval = self.bootstrap.stratified(scores, interquartile_mean)
            runs = sum(map(len, scores))
            rows.append((label, str(runs), interval_text(interval, runs, "{:.3f}".format)))
        return Table(
            caption="All environments: scaled returns, 0 the worst run of each, 1 the best",
            columns=("group", "runs", "interquartile mean (interval)"),
            rows=tuple(rows),
        )

    def _improvement(self, strata: dict[str, list[np.ndarray]]) -> Iterator[Table]:
        """Probability that a run of the row beats one of the column, of a panel's groups."""
        labels = list(strata)[: pictures.PER_PANEL]
        if len(labels) < 2:
            return
        # Long names do not fit above many columns.
        numbered = len(labels) > 4
        rows = []
        for place, label in enumerate(labels, 1):
            cells = [f"{place}: {label}" if numbered else label]
            for other in labels:
                runs = min(sum(map(len, strata[name])) for name in (label, other))
                found = self.bootstrap.stratified_improvement(strata[label], strata[other])
                told = interval_text(found, runs, "{:.2f}".format)
                cells.append(NONE if label == other else told)
            rows.append(tuple(cells))
        heads = map(str, range(1, len(labels) + 1)) if numbered else labels
        caption = "Probability that a run of the row is better than a run of the column"
        yield Table(
            caption=caption + _cut(len(labels), len(strata)),
            columns=("group", *heads),
            rows=tuple(rows),
        )

    def _runs(self) -> Table:
        rows = [
            (
                str(run.path),
                section.environment,
                group.label,
                str(run.seed),
                number(float(run.frames[-1])),
                number(float(run.returns[-1])),
                minutes(run.seconds),
            )
            for section in self.sections
            for group in section.groups
            for run in (*group.runs, *group.short)
        ]
        names = ("run", "environment", "group", "seed", "last frame", "last return", "minutes")
        return Table(
            caption="All runs that could be read", columns=names, rows=tuple(rows), texts=3
        )


def compare(
    runs: str | Path | Iterable[str | Path],
    *,
    out: str | Path | None = None,
    at: int | None = None,
    marl_eval: str | Path | None = None,
) -> Comparison:
    """Compare runs by environment and algorithm; runs that differ in their seed alone are a group.

    Stored configurations are read as text: nothing in them is imported or built.

    Args:
        runs: run folders, sweeps, and folders that hold some; or one of them.
        out: new or empty folder to write the page to; None writes nothing.
        at: frame to compare returns at; None for the last one that every group reaches.
        marl_eval: new JSON file for the package marl-eval; None writes none.
    """
    if isinstance(runs, str | Path):
        # The letters of a text would be taken for folders.
        runs = [runs]
    found, notes = [], []
    for path in find_runs(runs):
        try:
            found.append(read_run(path))
        except UnreadableRunError as error:
            notes.append(f"{path} is left out: {error}")
    if not found:
        raise UsageError(f"`runs` must hold a run that can be compared, got none: {notes[0]}")
    if out is not None:
        # Before the work: a mistake should not cost a minute to find out.
        _check_free(Path(out))
    file = None if marl_eval is None else new_file(marl_eval, option="marl_eval")
    sections, more = grouped(found, at=at)
    few = sum(len(group.runs) < _FEW for section in sections for group in section.groups)
    if few:
        told = "1 group has" if few == 1 else f"{few} groups have"
        more.append(f"{told} fewer than {_FEW} seeds: their intervals are too narrow")
    if file is not None:
        data, told_more = marl_eval_data(sections)
        more += told_more
        with refused_by_the_system(file, "marl_eval", "choose another marl_eval=..."):
            write_file(file, json.dumps(data, indent=1).encode())
    comparison = Comparison(sections=tuple(sections), notes=(*notes, *more))
    if out is not None:
        comparison.write(out)
    return comparison


def _free() -> Path:
    names = (f"comparison-{number_of}" if number_of > 1 else "comparison" for number_of in count(1))
    return next(path for path in map(Path, names) if not path.exists())


def _written(place: Path) -> AbstractContextManager[None]:
    return refused_by_the_system(place, "out", "choose another out=...")


def _check_free(place: Path) -> None:
    with _written(place):
        free = not place.exists() or (place.is_dir() and not any(place.iterdir()))
    if not free:
        raise UsageError(
            f"`out` must be a new or empty folder, got {str(place)!r}; choose another out=..., or "
            "leave it out for the next free name"
        )


def _cut(shown: int, every: int) -> str:
    return f"; the best {shown} of {every} groups" if shown < every else ""


def _options(section: Section) -> Iterator[Table]:
    """Options in which groups of one algorithm differ."""
    for algorithm in sorted({group.algorithm for group in section.groups if group.differing}):
        own = [group for group in section.groups if group.algorithm == algorithm]
        yield Table(
            caption=f"Options in which groups of {algorithm} differ",
            columns=("group", *own[0].differing),
            rows=tuple((group.label, *group.differing.values()) for group in own),
        )


def _minutes(group: Group) -> str:
    return minutes(float(np.median([run.seconds for run in group.runs])))


_CURVES = (
    "Interquartile mean over the seeds of each group; the band reaches from the worst seed to the "
    "best. Bands that leave the others too little room are cut."
)
_SCORES = (
    "Left: interquartile mean of the returns and its bootstrap interval. Right: performance "
    "profile, the share of runs whose return is above τ; higher is better everywhere"
)
_OVERALL = (
    "Returns are scaled in each environment: 0 is its worst run of this comparison, 1 its best. "
    "Runs are resampled environment by environment."
)
_READING = """<dl>
<dt>Interquartile mean</dt><dd>Mean of the middle half of the runs: one lucky or one broken seed
does not decide it.</dd>
<dt>Interval</dt><dd>Percentile bootstrap: runs are drawn again with replacement, within each
environment, and the statistic is worked out anew each time.</dd>
<dt>Performance profile</dt><dd>Share of runs above a return, for every return. Where one curve lies
above another throughout, its group is better whatever is asked for.</dd>
<dt>Probability of improvement</dt><dd>How often a run of one group beats a run of another;
0.5 means no difference. Ties count half.</dd>
<dt>Source</dt><dd>Agarwal et al. 2021, Deep Reinforcement Learning at the Edge of the Statistical
Precipice, arXiv:2108.13264.</dd>
</dl>"""
