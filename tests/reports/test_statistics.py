"""Statistics over seeds, against numbers worked out by hand and draws whose law is known."""

from __future__ import annotations

import math

import numpy as np
import pytest

from torchrl_elegant.reports import Bootstrap, Interval, interquartile_mean, mean, std

QUICK = Bootstrap(resamples=500)
PAIRWISE = ("difference", "relative_change")


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([7.0], 7.0),
        ([1.0, 3.0], 2.0),
        # Of three, three quarters of either end go: (0.25 * 0 + 1 * 3 + 0.25 * 12) / 1.5.
        ([12.0, 0.0, 3.0], 4.0),
        ([100.0, 2.0, 4.0, -50.0], 3.0),
        # Of five, one and a quarter: (0.75 * 1 + 1 * 2 + 0.75 * 7) / 2.5.
        ([1.0, 2.0, 7.0, 1e6, -1e6], 3.2),
        # Of six, one and a half: (0.5 * 1 + 2 + 4 + 0.5 * 9) / 3.
        ([-1e6, 1.0, 2.0, 4.0, 9.0, 1e6], 11 / 3),
        # Of seven, one and three quarters: (0.25 * 1 + 2 + 3 + 4 + 0.25 * 9) / 3.5.
        ([-9.0, 1.0, 2.0, 3.0, 4.0, 9.0, 99.0], 11.5 / 3.5),
        (range(8), 3.5),
    ],
)
def test_the_interquartile_mean_by_hand(values, expected) -> None:
    assert interquartile_mean(values) == pytest.approx(expected)


@pytest.mark.parametrize("size", range(1, 13))
def test_the_interquartile_mean_keeps_half_of_the_weight(size) -> None:
    # Each value four times makes the quarter a whole number: plain trimming then says the same.
    values = np.random.default_rng(size).normal(size=size)
    middle = np.sort(np.repeat(values, 4))[size : 3 * size]
    assert interquartile_mean(values) == pytest.approx(middle.mean())


@pytest.mark.parametrize("statistic", [mean, interquartile_mean, std])
def test_statistics_reduce_the_last_dimension_alone(statistic) -> None:
    rows = np.random.default_rng(0).normal(size=(3, 4, 7))
    found = statistic(rows)
    assert found.shape == (3, 4)
    assert found[2, 1] == pytest.approx(float(statistic(rows[2, 1])))


def test_the_std_has_one_degree_of_freedom_less() -> None:
    assert std([2.0, 4.0, 4.0, 4.0, 5.0, 5.0, 7.0, 9.0]) == pytest.approx(math.sqrt(32 / 7))
    assert std([0.1, 0.1, 0.1]) == 0.0
    assert math.isnan(float(std([3.0])))


def test_the_interval_of_a_mean_of_two_by_hand() -> None:
    # Resamples of 0 and 1 have means 0, 0.5, 0.5 and 1: a quarter of them lies at either end.
    assert Bootstrap(confidence=0.6).of([0.0, 1.0], mean) == Interval(0.5, 0.0, 1.0)
    assert Bootstrap(confidence=0.4).of([0.0, 1.0], mean) == Interval(0.5, 0.5, 0.5)


def test_the_interval_of_a_mean_is_that_of_the_normal_law() -> None:
    values = np.random.default_rng(0).normal(size=400)
    found = Bootstrap().of(values, mean)
    half = 1.96 * values.std() / 20
    assert found.low == pytest.approx(found.value - half, abs=0.004)
    assert found.high == pytest.approx(found.value + half, abs=0.004)


def test_more_confidence_is_a_wider_interval() -> None:
    values = np.random.default_rng(0).normal(size=12)
    narrow = Bootstrap(confidence=0.5).of(values, std)
    wide = Bootstrap(confidence=0.99).of(values, std)
    assert wide.low < narrow.low < narrow.high < wide.high


def test_the_seed_settles_the_interval() -> None:
    values = np.random.default_rng(0).normal(size=12)
    assert Bootstrap(seed=3).of(values, mean) == Bootstrap(seed=3).of(values, mean)
    assert Bootstrap(seed=3).of(values, mean) != Bootstrap(seed=4).of(values, mean)


def test_the_probability_of_improvement_by_hand() -> None:
    # Of nine pairs five are won and one is even.
    found = Bootstrap().probability_of_improvement([1.0, 3.0, 6.0], [0.0, 3.0, 4.0])
    assert found.value == pytest.approx(5.5 / 9)
    assert 0.0 < found.low < found.value < found.high <= 1.0


def test_the_probability_of_improvement_is_one_minus_that_of_the_other() -> None:
    one, other = np.random.default_rng(0).normal(size=(2, 9)).round(0)
    there = QUICK.probability_of_improvement(one, other)
    back = QUICK.probability_of_improvement(other, one)
    assert there.value + back.value == pytest.approx(1.0)
    assert there.low + back.high == pytest.approx(1.0, abs=0.05)


def test_groups_apart_are_surely_better_or_worse() -> None:
    assert QUICK.probability_of_improvement([5.0, 6.0], [1.0, 2.0, 3.0]) == Interval(1, 1, 1)
    assert QUICK.probability_of_improvement([1.0, 2.0, 3.0], [5.0, 6.0]) == Interval(0, 0, 0)


def test_the_interval_of_a_probability_by_resampling_in_a_loop() -> None:
    generator = np.random.default_rng(1)
    own, other = generator.normal(0.5, 1, 10), generator.normal(0, 1, 14)
    drawn = []
    for _ in range(4000):
        x, y = generator.choice(own, 10), generator.choice(other, 14)
        drawn.append(np.mean(x[:, None] > y) + 0.5 * np.mean(x[:, None] == y))
    found = Bootstrap().probability_of_improvement(own, other)
    assert (found.low, found.high) == pytest.approx(np.quantile(drawn, [0.025, 0.975]), abs=0.03)


def test_the_relative_change_by_hand() -> None:
    assert QUICK.relative_change([1.0, 3.0], [0.0, 8.0], std).value == pytest.approx(-0.75)
    assert QUICK.relative_change([3.0, 5.0], [1.0, 3.0], mean).value == pytest.approx(1.0)
    # Less negative is more.
    assert QUICK.relative_change([-50.0], [-200.0], mean).value == pytest.approx(0.75)


def test_the_relative_change_of_a_group_to_itself_is_not_sure_to_be_none() -> None:
    # Were both resampled by the same draws, the interval would have no width.
    values = np.random.default_rng(0).normal(size=10)
    found = QUICK.relative_change(values, values, std)
    assert found.value == 0.0
    assert found.low < -0.2
    assert found.high > 0.2


def covered(test, truth: float, trials: int = 400) -> float:
    """The share of trials whose interval holds the truth."""
    generator = np.random.default_rng(7)
    found = (test(generator, Bootstrap(resamples=400, seed=n)) for n in range(trials))
    return float(np.mean([interval.low <= truth <= interval.high for interval in found]))


def test_intervals_hold_the_true_mean_about_as_often_as_they_say() -> None:
    def trial(generator, bootstrap):
        return bootstrap.of(generator.normal(3.0, 2.0, 30), mean)

    assert 0.90 < covered(trial, 3.0) < 0.98
    # One that is no truth is not held so often.
    assert covered(trial, 4.0) < 0.4


def test_intervals_hold_the_true_change_of_the_std_about_as_often_as_they_say() -> None:
    def trial(generator, bootstrap):
        own, base = generator.normal(0, 0.3, 20), generator.normal(0, 1, 20)
        return bootstrap.relative_change(own, base, std)

    assert 0.88 < covered(trial, -0.7) < 0.98
    assert covered(trial, -0.4) < 0.3


def test_intervals_hold_an_even_chance_of_equals_and_not_of_the_better() -> None:
    def trial(shift):
        def one(generator, bootstrap):
            own, base = generator.normal(shift, 1, 15), generator.normal(0, 1, 15)
            return bootstrap.probability_of_improvement(own, base)

        return one

    assert 0.90 < covered(trial(0.0), 0.5) < 0.98
    assert covered(trial(1.5), 0.5) < 0.1


def test_equal_runs_leave_nothing_open() -> None:
    even = [500.0] * 5
    assert QUICK.of(even, interquartile_mean) == Interval(500.0, 500.0, 500.0)
    assert QUICK.of(even, std) == Interval(0.0, 0.0, 0.0)
    assert QUICK.probability_of_improvement(even, even) == Interval(0.5, 0.5, 0.5)
    assert QUICK.difference(even, even, mean) == Interval(0.0, 0.0, 0.0)


def undefined(interval: Interval) -> bool:
    return all(map(math.isnan, (interval.value, interval.low, interval.high)))


def test_what_is_not_defined_is_nan() -> None:
    assert undefined(QUICK.of([3.0], std))
    assert undefined(QUICK.relative_change([1.0, 2.0], [3.0], std))
    assert undefined(QUICK.relative_change([1.0, 2.0], [0.1, 0.1, 0.1], std))


def test_one_run_is_its_own_interval() -> None:
    assert QUICK.of([3.0], mean) == Interval(3.0, 3.0, 3.0)
    assert QUICK.of([3.0], interquartile_mean) == Interval(3.0, 3.0, 3.0)


def test_resamples_of_a_base_without_spread_are_left_out() -> None:
    # One half of the resamples of two runs holds the same run twice.
    found = QUICK.relative_change([0.0, 1.0], [0.0, 2.0], std)
    assert (found.value, found.low, found.high) == pytest.approx((-0.5, -1.0, -0.5))


@pytest.mark.parametrize(
    ("runs", "message"),
    [
        ([], r"`runs` must be a row of at least one number, got \[\]"),
        ([[1.0]], r"`runs` must be a row of at least one number, got \[\[1.0\]\]"),
        (3.0, "`runs` must be a row of at least one number, got 3.0"),
        ([1.0, math.nan], r"`runs` must hold finite numbers, got \[1.0, nan\]"),
        ([1.0, math.inf], r"`runs` must hold finite numbers, got \[1.0, inf\]"),
    ],
)
def test_runs_that_are_none_are_refused(runs, message) -> None:
    with pytest.raises(ValueError, match=message):
        QUICK.of(runs, mean)
    with pytest.raises(ValueError, match=message):
        QUICK.probability_of_improvement(runs, [1.0])
    for name in PAIRWISE:
        with pytest.raises(ValueError, match=message):
            getattr(QUICK, name)(runs, [1.0], mean)
        with pytest.raises(ValueError, match=message.replace("runs", "base")):
            getattr(QUICK, name)([1.0], runs, mean)


@pytest.mark.parametrize("confidence", [0.0, 1.0, -0.5, 95, math.nan])
def test_a_confidence_is_a_share(confidence) -> None:
    with pytest.raises(ValueError, match=f"`confidence` must lie .* got {confidence}"):
        Bootstrap(confidence=confidence)


def test_resamples_are_some() -> None:
    with pytest.raises(ValueError, match="`resamples` must be at least 1, got 0"):
        Bootstrap(resamples=0)


def test_a_statistic_of_everything_at_once_is_refused() -> None:
    with pytest.raises(ValueError, match="`statistic` must reduce the last dimension alone"):
        QUICK.of([1.0, 2.0], np.mean)


@pytest.mark.parametrize("statistic", [mean, interquartile_mean])
def test_no_values_have_no_statistic(statistic) -> None:
    with pytest.raises(ValueError, match="`values` must hold at least one number"):
        statistic([])
