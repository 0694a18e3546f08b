"""The report of a backtest: measures beside simple rules, a table of days, a picture."""

from __future__ import annotations

import io
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from torchrl_elegant.reports.backtest import Track
from torchrl_elegant.reports.performance import Performance, performance
from torchrl_elegant.reports.tables import NONE, Table
from torchrl_elegant.runs.files import write_file
from torchrl_elegant.runs.pages import COLORS

#: Stands on every report.
WARNING = (
    "This is research software. Its results are no advice to buy or sell anything; prices moved "
    "differently after the days of this backtest, and trading would have moved them."
)
_SHARES = {
    "cumulative_return": "cumulative return",
    "annual_return": "annual return",
    "volatility": "volatility, a year",
    "max_drawdown": "maximum drawdown",
}
_NUMBERS = {
    "sharpe": "Sharpe",
    "deflated_sharpe": "Sharpe, deflated",
    "sortino": "Sortino",
    "calmar": "Calmar",
    "turnover": "turnover, a year",
}


@dataclass(frozen=True, kw_only=True)
class TradingReport:
    """Tracks over the same days by name, the policy's first, and what is to be told of them.

    The deflated Sharpe ratio of the policy counts `trials`; a simple rule is one trial.
    """

    title: str
    notes: Sequence[str]
    tracks: Mapping[str, Track]
    trials: int = 1

    def measures(self) -> dict[str, Performance]:
        """Measures of each track."""
        first = next(iter(self.tracks))
        return {
            name: performance(
                track.totals, track.traded, trials=self.trials if name == first else 1
            )
            for name, track in self.tracks.items()
        }

    def table(self) -> Table:
        """A row for each measure, a column for each track."""
        found = {name: asdict(value) for name, value in self.measures().items()}
        rows = [
            (title, *(_text(each[key], form) for each in found.values()))
            for titles, form in ((_SHARES, "{:.1%}"), (_NUMBERS, "{:.2f}"))
            for key, title in titles.items()
        ]
        dates = self._dates
        caption = f"{dates[0]} to {dates[-1]}, {len(dates)} days"
        return Table(caption=caption, columns=("measure", *found), rows=tuple(rows))

    @property
    def _dates(self) -> np.ndarray:
        return next(iter(self.tracks.values())).dates

    def markdown(self) -> str:
        """The page `report.md`."""
        about = (
            "The riskless return is 0, a year has 252 days. Turnover is the value bought and sold, "
            "in accounts a year. The deflated Sharpe ratio is the probability that the true one is "
            f"above what luck gives the best of {self.trials} trial{'s' * (self.trials > 1)}."
        )
        notes = "\n".join(f"- {note}" for note in self.notes)
        parts = [f"# {self.title}", WARNING, self.table().markdown(), about, notes]
        return "\n\n".join([*parts, "![value of the accounts](equity.png)"]) + "\n"

    def write(self, folder: Path) -> Path:
        """Writes report.md, report.json, equity.csv and equity.png; gives the first."""
        folder.mkdir(parents=True, exist_ok=True)
        numbers = {
            name: {key: value if math.isfinite(value) else None for key, value in pairs.items()}
            for name, pairs in ((each, asdict(of)) for each, of in self.measures().items())
        }
        write_file(folder / "report.json", json.dumps(numbers, indent=1).encode())
        write_file(folder / "equity.csv", self._rows().encode())
        write_file(folder / "equity.png", self.picture())
        write_file(folder / "report.md", self.markdown().encode())
        return folder / "report.md"

    def _rows(self) -> str:
        totals = zip(*(track.totals for track in self.tracks.values()), strict=True)
        lines = [",".join(["date", *self.tracks])]
        for day, values in zip(self._dates, totals, strict=True):
            lines.append(",".join([str(day), *(f"{value:.2f}" for value in values)]))
        return "\n".join(lines) + "\n"

    def picture(self) -> bytes:
        """A PNG: value of the accounts, and how far each is below its best."""
        figure = Figure(figsize=(9.6, 6.0), layout="constrained")
        FigureCanvasAgg(figure)
        value, below = figure.subplots(2, 1, sharex=True, height_ratios=(3, 1))
        for (name, track), color in zip(self.tracks.items(), COLORS, strict=False):
            style = {"color": color, "linewidth": 1.8 if name == "policy" else 1.1}
            days, totals = track.dates.astype("datetime64[ms]"), track.totals
            value.plot(days, totals / totals[0], label=name, **style)
            below.plot(days, totals / np.maximum.accumulate(totals) - 1.0, **style)
        value.set_ylabel("value, first day = 1")
        below.set_ylabel("below its best")
        below.yaxis.set_major_formatter(lambda share, _: f"{share:.0%}")
        value.legend(frameon=False)
        value.set_title(self.title, fontsize=10)
        for axes in (value, below):
            axes.grid(alpha=0.22, linewidth=0.6)
            axes.spines[["top", "right"]].set_visible(False)
        page = io.BytesIO()
        figure.savefig(page, format="png", dpi=110)
        return page.getvalue()


def _text(value: float, form: str) -> str:
    return form.format(value) if math.isfinite(value) else NONE
