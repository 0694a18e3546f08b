"""Statistics over seeds: what few runs say of an algorithm, each with its bootstrap interval."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

Array = NDArray[np.float64]
#: Reduces the last dimension, and that alone, so that all resamples are worked out at once.
Statistic = Callable[[Array], Array]


def mean(values: ArrayLike) -> Array:
    """The mean over the last dimension.

    >>> float(mean([1.0, 2.0, 6.0]))
    3.0
    """
    return _numbers(values).mean(-1)


def interquartile_mean(values: ArrayLike) -> Array:
    """The mean of the middle half over the last dimension (Agarwal et al. 2021, arXiv:2108.13264).

    A quarter of the weight goes at either end: of six values, one and a half.

    >>> float(interquartile_mean([0.0, 1.0, 2.0, 3.0, 4.0, 100.0]))
    2.5
    """
    ordered = np.sort(_numbers(values), -1)
    size = ordered.shape[-1]
    left = np.arange(size)
    # How much of value i, which covers [i, i + 1], lies within the middle half.
    weight = np.minimum(left + 1, 0.75 * size) - np.maximum(left, 0.25 * size)
    weight = weight.clip(0.0)
    return (ordered * weight).sum(-1) / weight.sum()


def std(values: ArrayLike) -> Array:
    """The standard deviation over the last dimension, with n - 1 below; NaN for one value.

    >>> float(std([1.0, 3.0, 5.0]))
    2.0
    """
    numbers = _numbers(values)
    if numbers.shape[-1] == 1:
        return np.full(numbers.shape[:-1], np.nan)
    # Rounding leaves something of equal values, and ratios would be made of it.
    return np.where(np.ptp(numbers, -1) == 0.0, 0.0, numbers.std(-1, ddof=1))


@dataclass(frozen=True)
class Interval:
    """A value, and the bounds between which it lies with the confidence that was asked for.

    All three are NaN where the value is not defined, as is the std of one run.
    """

    value: float
    low: float
    high: float


@dataclass(frozen=True, kw_only=True)
class Bootstrap:
    """Percentile intervals over resamples of the runs, drawn with replacement.

    They are narrow for few runs, those of a std most of all: of ten runs they hold the truth less
    often than they say. The same seed gives the same interval.

    >>> Bootstrap().of([1.0, 2.0, 3.0, 4.0], mean)
    Interval(value=2.5, low=1.5, high=3.5)
    """

    confidence: float = 0.95
    resamples: int = 10_000
    seed: int = 0

    def __post_init__(self) -> None:
        if not 0.0 < self.confidence < 1.0:
            raise ValueError(f"`confidence` must lie between 0 and 1, got {self.confidence}")
        if self.resamples < 1:
            raise ValueError(f"`resamples` must be at least 1, got {self.resamples}")

    def of(self, runs: ArrayLike, statistic: Statistic) -> Interval:
        """A statistic of one group of runs."""
        return self.stratified([runs], statistic)

    def stratified(self, strata: Sequence[ArrayLike], statistic: Statistic) -> Interval:
        """A statistic of all runs of several strata, such as environments.

        Each stratum is resampled by itself, so that every resample holds as many runs of it.

        >>> Bootstrap().stratified([[1.0, 1.0], [3.0, 3.0]], mean)
        Interval(value=2.0, low=2.0, high=2.0)
        """
        found, drawn = self._pooled(strata, self._generator())
        return self._interval(_reduced(statistic, found[None])[0], _reduced(statistic, drawn))

    def profile(
        self, strata: Sequence[ArrayLike], thresholds: ArrayLike
    ) -> tuple[Array, Array, Array]:
        """The share of runs above each threshold, and its bounds (Agarwal et al. 2021).

        >>> share, low, high = Bootstrap().profile([[1.0, 1.0, 1.0]], [0.0, 1.0])
        >>> share.tolist(), low.tolist(), high.tolist()
        ([1.0, 0.0], [1.0, 0.0], [1.0, 0.0])
        """
        found, drawn = self._pooled(strata, self._generator())
        bounds = np.asarray(thresholds, dtype=float)
        shares = np.stack([(drawn > bound).mean(-1) for bound in bounds], -1)
        tail = (1.0 - self.confidence) / 2.0
        low, high = np.quantile(shares, [tail, 1.0 - tail], axis=0)
        return (found > bounds[:, None]).mean(-1), low, high

    def difference(self, runs: ArrayLike, base: ArrayLike, statistic: Statistic) -> Interval:
        """s(runs) - s(base). Either group is resampled by itself.

        >>> Bootstrap().difference([3.0, 4.0, 5.0], [1.0, 1.0, 1.0], mean).value
        3.0
        """
        (own, own_drawn), (other, other_drawn) = self._both(runs, base, statistic)
        return self._interval(own - other, own_drawn - other_drawn)

    def relative_change(self, runs: ArrayLike, base: ArrayLike, statistic: Statistic) -> Interval:
        """(s(runs) - s(base)) / abs(s(base)): -0.5 where the statistic falls by half.

        Not defined where s(base) is zero; resamples in which it is are left out.

        >>> Bootstrap().relative_change([1.0, 2.0, 3.0], [0.0, 2.0, 4.0], std).value
        -0.5
        """
        (own, own_drawn), (other, other_drawn) = self._both(runs, base, statistic)
        found = (own - other) / _no_zero(other)
        return self._interval(found, (own_drawn - other_drawn) / _no_zero(other_drawn))

    def probability_of_improvement(self, runs: ArrayLike, base: ArrayLike) -> Interval:
        """P(X > Y) + P(X = Y) / 2, of a run X and a base run Y (Agarwal et al. 2021).

        >>> Bootstrap().probability_of_improvement([2.0, 3.0], [1.0, 2.0]).value
        0.875
        """
        return self.stratified_improvement([runs], [base])

    def stratified_improvement(
        self, strata: Sequence[ArrayLike], bases: Sequence[ArrayLike]
    ) -> Interval:
        """The probability of improvement, averaged over strata; each has its own base runs.

        >>> Bootstrap().stratified_improvement([[2.0], [1.0]], [[1.0], [2.0]]).value
        0.5
        """
        generator, found, drawn = self._generator(), [], []
        for runs, base in zip(strata, bases, strict=True):
            own, other = _runs("runs", runs), _runs("base", base)
            wins = (own[:, None] > other) + 0.5 * (own[:, None] == other)
            # A resample is how often it holds each run: pairs are compared once for all of them.
            own_counts = self._counts(own.size, generator)
            other_counts = self._counts(other.size, generator)
            found.append(wins.mean())
            drawn.append(((own_counts @ wins) * other_counts).sum(-1) / wins.size)
        return self._interval(np.mean(found), np.mean(drawn, 0))

    def _generator(self) -> np.random.Generator:
        return np.random.default_rng(self.seed)

    def _counts(self, size: int, generator: np.random.Generator) -> Array:
        shares = np.full(size, 1.0 / size)
        return generator.multinomial(size, shares, size=self.resamples).astype(float)

    def _both(
        self, runs: ArrayLike, base: ArrayLike, statistic: Statistic
    ) -> tuple[tuple[Array, Array], tuple[Array, Array]]:
        # One generator for both, or equal groups would be resampled alike.
        generator = self._generator()
        own = self._drawn(_runs("runs", runs), statistic, generator)
        return own, self._drawn(_runs("base", base), statistic, generator)

    def _drawn(
        self, numbers: Array, statistic: Statistic, generator: np.random.Generator
    ) -> tuple[Array, Array]:
        """The statistic of the runs, and of every resample, [resamples]."""
        chosen = generator.integers(numbers.size, size=(self.resamples, numbers.size))
        return _reduced(statistic, numbers[None])[0], _reduced(statistic, numbers[chosen])

    def _pooled(
        self, strata: Sequence[ArrayLike], generator: np.random.Generator
    ) -> tuple[Array, Array]:
        """All runs, and their resamples stratum by stratum, [resamples, runs]."""
        if not strata:
            raise ValueError("`strata` must hold at least one row of runs, got none")
        rows = [_runs("runs", runs) for runs in strata]
        shapes = [(self.resamples, row.size) for row in rows]
        chosen = [generator.integers(shape[1], size=shape) for shape in shapes]
        drawn = [row[index] for row, index in zip(rows, chosen, strict=True)]
        return np.concatenate(rows), np.concatenate(drawn, -1)

    def _interval(self, value: Array, drawn: Array) -> Interval:
        drawn = drawn[np.isfinite(drawn)]
        if not np.isfinite(value) or not drawn.size:
            return Interval(np.nan, np.nan, np.nan)
        tail = (1.0 - self.confidence) / 2.0
        low, high = np.quantile(drawn, [tail, 1.0 - tail])
        return Interval(float(value), float(low), float(high))


def _reduced(statistic: Statistic, rows: Array) -> Array:
    found = np.asarray(statistic(rows), dtype=float)
    if found.shape != rows.shape[:1]:
        raise ValueError(
            f"`statistic` must reduce the last dimension alone, to {rows.shape[:1]}, got "
            f"{found.shape}"
        )
    return found


def _no_zero(numbers: Array) -> Array:
    return np.where(numbers == 0.0, np.nan, np.abs(numbers))


def _numbers(values: ArrayLike) -> Array:
    numbers = np.asarray(values, dtype=float)
    if not numbers.ndim or not numbers.shape[-1]:
        raise ValueError(f"`values` must hold at least one number, got {values!r}")
    return numbers


def _runs(name: str, values: ArrayLike) -> Array:
    numbers = np.asarray(values, dtype=float)
    if numbers.ndim != 1 or not numbers.size:
        raise ValueError(f"`{name}` must be a row of at least one number, got {values!r}")
    if not np.isfinite(numbers).all():
        raise ValueError(f"`{name}` must hold finite numbers, got {values!r}")
    return numbers
