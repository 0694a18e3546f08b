"""Where the time of a run goes."""

from __future__ import annotations

import contextlib
import threading
import time

import pytest

from torchrl_elegant.trainers.clock import ACTIVITIES, Clock


def spent(clock: Clock) -> dict[str, float]:
    """What took any time."""
    return {name: seconds for name, seconds in clock.seconds().items() if seconds}


def test_each_second_belongs_to_one_activity(hand):
    clock = Clock()
    hand.turn(1)
    with clock.during("evaluate"):
        hand.turn(2)
        with clock.during("save"):
            hand.turn(4)
        hand.turn(8)
    hand.turn(16)
    with clock.during("learn"):
        hand.turn(32)
    assert spent(clock) == {"other": 17, "evaluate": 10, "save": 4, "learn": 32}
    assert tuple(clock.seconds()) == ACTIVITIES


def test_looking_at_the_clock_in_the_middle_loses_nothing(hand):
    clock = Clock()
    with clock.during("learn"):
        hand.turn(1)
        assert spent(clock) == {"learn": 1}
        hand.turn(2)
    assert spent(clock) == {"learn": 3}
    clock.seconds()["learn"] = 0.0  # what it gives is the caller's
    assert spent(clock) == {"learn": 3}


def test_coming_by_an_item_is_told_from_using_it(hand):
    def items():
        for item in range(3):
            hand.turn(1)
            yield item
        hand.turn(10)  # to find out that there are no more

    clock = Clock()
    seen = []
    for item in clock.over(items(), "collect"):
        hand.turn(100)
        with clock.during("learn"):
            hand.turn(1000)
        seen.append(item)
    assert seen == [0, 1, 2]
    assert spent(clock) == {"collect": 13, "other": 300, "learn": 3000}


def test_one_iterator_inside_another(hand):
    def items(seconds):
        for item in range(2):
            hand.turn(seconds)
            yield item

    clock = Clock()
    for _ in clock.over(items(1), "collect"):
        for _ in clock.over(items(10), "sample"):
            hand.turn(100)
    assert spent(clock) == {"collect": 2, "sample": 40, "other": 400}


def test_what_is_broken_off_is_over(hand):
    def items():
        hand.turn(1)
        yield 0
        raise RuntimeError("the simulator fell over")

    clock = Clock()
    for _ in clock.over(items(), "collect"):
        break
    hand.turn(2)
    with pytest.raises(RuntimeError, match="fell over"):
        list(clock.over(items(), "collect"))
    hand.turn(4)
    with contextlib.suppress(ValueError), clock.during("learn"):
        hand.turn(8)
        raise ValueError("the loss")
    hand.turn(16)
    assert spent(clock) == {"collect": 2, "other": 22, "learn": 8}


def test_an_activity_without_a_column_is_refused(hand):
    clock = Clock()
    with pytest.raises(ValueError, match=r"`activity` must be one of collect, .*, got `lern`"):
        clock.during("lern").__enter__()
    hand.turn(1)
    assert spent(clock) == {"other": 1}


def test_clocks_of_runs_in_one_process_know_nothing_of_each_other():
    clocks = [Clock(), Clock()]
    entered = threading.Barrier(2)

    def run(clock: Clock, activity: str) -> None:
        with clock.during(activity):
            entered.wait()  # both at once
            time.sleep(0.01)

    names = ("learn", "save")
    threads = [threading.Thread(target=run, args=each) for each in zip(clocks, names, strict=True)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [set(spent(clock)) for clock in clocks] == [{"learn", "other"}, {"save", "other"}]
    assert all(clock.seconds()[name] >= 0.01 for clock, name in zip(clocks, names, strict=True))


def test_the_parts_are_the_whole():
    before = time.perf_counter()
    clock = Clock()
    for _ in clock.over(range(200), "collect"):
        with clock.during("learn"):
            time.sleep(0)
    within = sum(clock.seconds().values())
    assert 0 < within <= time.perf_counter() - before
