"""Tables as HTML, Markdown and LaTeX; whatever a cell holds is shown as text."""

from __future__ import annotations

import html
import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from torchrl_elegant.reports.statistics import Interval

#: Stands where there is nothing to tell.
NONE = "–"  # noqa: RUF001 (a dash, not a minus)
_MARKDOWN = re.compile(r"([\\`*\[\]<>|])")
_LATEX = {
    **{char: rf"\{char}" for char in "&%$#_{}"},
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "±": r"$\pm$",
    NONE: "--",
    "τ": r"$\tau$",
    "…": r"\ldots{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
}


@dataclass(frozen=True, kw_only=True)
class Table:
    """A caption, names of columns, and rows of texts; all columns but ``texts`` are numbers.

    >>> table = Table(caption="Returns", columns=("group", "return"), rows=(("a|b", "1.5"),))
    >>> table.markdown().splitlines()[-1]
    '| a\\\\|b | 1.5 |'
    """

    caption: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    texts: int = 1

    def html(self) -> str:
        """The table as an element of a page."""
        head = "".join(
            f"<th{self._side(place)}>{html.escape(name)}</th>"
            for place, name in enumerate(self.columns)
        )
        body = "\n".join(
            "<tr>"
            + "".join(
                f"<td{self._side(place)}>{html.escape(cell)}</td>" for place, cell in enumerate(row)
            )
            + "</tr>"
            for row in self.rows
        )
        return (
            f'<div class="wide"><table><caption>{html.escape(self.caption)}</caption>\n'
            f"<thead><tr>{head}</tr></thead>\n<tbody>\n{body}\n</tbody></table></div>"
        )

    def markdown(self) -> str:
        """The caption, and the table below it."""
        sides = ["---" if place < self.texts else "---:" for place in range(len(self.columns))]
        lines = [
            f"**{markdown_text(self.caption)}**",
            "",
            _row(map(markdown_text, self.columns)),
            f"|{'|'.join(sides)}|",
            *(_row(map(markdown_text, row)) for row in self.rows),
        ]
        return "\n".join(lines)

    def latex(self) -> str:
        """A ``table`` that uses the package booktabs."""
        sides = "l" * self.texts + "r" * (len(self.columns) - self.texts)
        lines = [
            r"\begin{table}",
            r"  \centering",
            rf"  \caption{{{latex_text(self.caption)}}}",
            rf"  \begin{{tabular}}{{{sides}}}",
            r"    \toprule",
            f"    {' & '.join(map(latex_text, self.columns))} \\\\",
            r"    \midrule",
            *(f"    {' & '.join(map(latex_text, row))} \\\\" for row in self.rows),
            r"    \bottomrule",
            r"  \end{tabular}",
            r"\end{table}",
        ]
        return "\n".join(lines)

    def _side(self, place: int) -> str:
        return "" if place < self.texts else ' class="number"'


def _row(cells: Sequence[str] | map[str]) -> str:
    return f"| {' | '.join(cells)} |"


def markdown_text(text: str) -> str:
    """``text`` with nothing left that Markdown would take for markup.

    >>> markdown_text("<b>[x]")
    '\\\\<b\\\\>\\\\[x\\\\]'
    """
    return _MARKDOWN.sub(r"\\\1", text)


def latex_text(text: str) -> str:
    """``text`` with nothing left that LaTeX would take for a command.

    >>> latex_text("a_b 5%")
    'a\\\\_b 5\\\\%'
    """
    return "".join(_LATEX.get(char, char) for char in text)


def number(value: float) -> str:
    """A number as readers want it: four digits, and a dash for none.

    >>> number(-145.25), number(0.01234), number(1234567.0), number(float("nan"))
    ('-145.2', '0.01234', '1,234,567', '–')
    """
    if not math.isfinite(value):
        return NONE
    if abs(value) >= 1_000:
        return f"{value:,.0f}"
    return f"{value:.1f}" if abs(value) >= 10 else f"{value:.4g}"


def minutes(seconds: float) -> str:
    """Seconds as minutes, and a dash for none.

    >>> minutes(90.0)
    '1.5'
    """
    return f"{seconds / 60:.1f}" if math.isfinite(seconds) else NONE


def interval_text(interval: Interval, runs: int, write: Callable[[float], str] = number) -> str:
    """Value and bounds, each as ``write`` has it; of one run there are no bounds.

    >>> interval_text(Interval(10.0, 8.5, 12.0), runs=3), interval_text(Interval(1.0, 1.0, 1.0), 1)
    ('10.0 (8.5 to 12.0)', '1')
    """
    if runs < 2:
        return write(interval.value)
    return f"{write(interval.value)} ({write(interval.low)} to {write(interval.high)})"
