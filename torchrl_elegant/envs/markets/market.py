"""`Market`: close prices of several assets, day by day, and what is known of each day."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from torchrl_elegant.config.options import check
from torchrl_elegant.config.text import brief
from torchrl_elegant.envs.markets.indicators import INDICATORS, trailing_score, turbulence

Array = np.ndarray


@dataclass(frozen=True, kw_only=True, eq=False)
class Market:
    """Close prices `[T, N]` of N assets on T days.

    All that is derived from prices looks back alone: a value of day t depends on days 0 to t. So a
    split by date cannot leak, and no scale is fitted on any part.

    Args:
        dates: the days `[T]`, ascending.
        tickers: names of the assets.
        close: prices `[T, N]` at the end of each day, adjusted for splits and dividends.
        extra: other values `[T, N]` by name, known at the end of their day.
        index: level `[T]` of an index, for reports; it is not traded.
        index_note: a sentence that reports tell of the index.

    >>> days = np.array(["2024-01-02", "2024-01-03"], "datetime64[D]")
    >>> market = Market(dates=days, tickers=("A", "B"), close=np.ones((2, 2)))
    >>> market.features.shape, market.between("2024-01-03", None)
    ((2, 2, 7), slice(1, 2, None))
    """

    dates: Array
    tickers: tuple[str, ...]
    close: Array
    extra: Mapping[str, Array] = field(default_factory=dict)
    index: Array | None = None
    index_note: str = ""

    def __post_init__(self) -> None:
        object.__setattr__(self, "dates", np.asarray(self.dates, "datetime64[D]"))
        shape = (len(self.dates), len(self.tickers))
        check(min(shape) > 0, "market", "hold a day and an asset at least", shape)
        steps = np.diff(self.dates).astype(int)
        if (steps <= 0).any():
            day = self.dates[1:][steps <= 0][0]
            way_out = "sort by date, and keep one row for each day"
            check(False, "dates", "rise from day to day", day, way_out)
        above = ("be above 0", 0.0)
        close = self._checked("close", self.close, shape, *above)
        object.__setattr__(self, "close", close)
        extra = {
            name: self._checked(name, values, shape, "be finite", -np.inf)
            for name, values in self.extra.items()
        }
        object.__setattr__(self, "extra", extra)
        if self.index is not None:
            level = self._checked("index", self.index, shape[:1], *above)
            object.__setattr__(self, "index", level)

    def _checked(
        self, name: str, values: Array, shape: tuple[int, ...], must: str, above: float
    ) -> Array:
        values = np.asarray(values, np.float64)
        check(values.shape == shape, name, f"be of shape {shape}", values.shape)
        wrong = ~(np.isfinite(values) & (values > above))
        if wrong.any():
            day, *column = np.argwhere(wrong)[0]
            whose = f" of {self.tickers[column[0]]}" if column else ""
            told = f"`{name}` must {must}, got `{values[(day, *column)]}`{whose}"
            more = f" and {wrong.sum() - 1} more" if wrong.sum() > 1 else ""
            way_out = "mend these values, or leave the asset out by tickers=[...]"
            raise ValueError(f"{told} on {self.dates[day]}{more}; {way_out}")
        return values

    @property
    def feature_names(self) -> tuple[str, ...]:
        """Names of the features of an asset: indicators, and whatever else the data holds."""
        return (*INDICATORS, *self.extra)

    @cached_property
    def features(self) -> Array:
        """Features `[T, N, F]`, each of a size near 1."""
        own = [make(self.close) for make in INDICATORS.values()]
        return np.stack([*own, *map(trailing_score, self.extra.values())], -1)

    @cached_property
    def turbulence(self) -> Array:
        """Turbulence `[T]`: about 1 on average, see ``indicators.turbulence``."""
        return turbulence(self.close)

    def between(self, start: str | None, end: str | None) -> slice:
        """The days from `start` to the day before `end`; None for the first or the last day."""
        first = 0 if start is None else self._place("start", start)
        last = len(self.dates) if end is None else self._place("end", end)
        check(
            last > first,
            "end" if start is None else "start",
            f"leave days between `start` and `end`, of {self.span}",
            f"{start}` and `{end}",
        )
        return slice(first, last)

    @property
    def span(self) -> str:
        """First and last day, as a text."""
        return f"{self.dates[0]} to {self.dates[-1]}"

    def _place(self, name: str, text: str) -> int:
        return int(np.searchsorted(self.dates, day_of(name, text)))


def day_of(name: str, text: str) -> np.datetime64:
    """The day that a text such as 2016-01-31 names.

    >>> print(day_of("start", "2016-01"))
    2016-01-01
    """
    day: np.datetime64 | None = None
    with suppress(ValueError):
        day = np.datetime64(str(text), "D")
    if day is None or np.isnat(day):
        raise ValueError(f"`{name}` must be a date such as 2016-01-31, got `{brief(text)}`")
    return day
