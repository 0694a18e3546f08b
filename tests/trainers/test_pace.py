"""Rates and shares of a run."""

from __future__ import annotations

import pytest

from torchrl_elegant.trainers.clock import ACTIVITIES, PACE_COLUMNS, Clock, Pace


def spend(clock, hand, **seconds):
    for activity, count in seconds.items():
        with clock.during(activity):
            hand.turn(count)


def test_a_row_is_about_the_time_since_the_last(hand):
    clock = Clock()
    pace = Pace(clock, frames=1000, updates=100)
    spend(clock, hand, collect=1, learn=3)
    first = pace.row(frames=1200, updates=104)
    assert tuple(first) == PACE_COLUMNS
    assert {name: value for name, value in first.items() if value} == {
        "frames_per_second": 50.0,
        "updates_per_second": 1.0,
        "share_collect": 0.25,
        "share_learn": 0.75,
    }
    spend(clock, hand, evaluate=1, save=1)
    second = pace.row(frames=1200, updates=106)
    assert {name: value for name, value in second.items() if value} == {
        "updates_per_second": 1.0,
        "share_evaluate": 0.5,
        "share_save": 0.5,
    }


def test_shares_add_up_to_one():
    clock = Clock()
    pace = Pace(clock, frames=0, updates=0)
    for activity in ACTIVITIES:
        with clock.during(activity):
            sum(range(1000))
    row = pace.row(frames=1, updates=1)
    shares = [row[f"share_{activity}"] for activity in ACTIVITIES]
    assert min(shares) > 0
    assert sum(shares) == pytest.approx(1.0, abs=1e-9)


def test_the_summary_is_about_all_of_it(hand):
    clock = Clock()
    pace = Pace(clock, frames=500, updates=0)
    spend(clock, hand, collect=12, sample=6, learn=30)
    pace.row(frames=600, updates=1)
    spend(clock, hand, learn=44, evaluate=5, save=1, other=2)
    assert pace.seconds == 100.0
    assert pace.summary(frames=21_800, updates=21_000) == (
        "time: collect 12 %, sample 6 %, learn 74 %, evaluate 5 %, save 1 %, other 2 % | "
        "213 frames/s, 210 updates/s"
    )


def test_waiting_is_told_where_there_is_any(hand):
    clock = Clock()
    pace = Pace(clock, frames=0, updates=0)
    spend(clock, hand, wait=1, learn=3)
    assert pace.summary(frames=4, updates=8) == (
        "time: wait 25 %, learn 75 % | 1 frames/s, 2 updates/s"
    )
