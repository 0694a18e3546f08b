"""Tournaments that are killed with kill -9 again and again end as if nobody had."""

from __future__ import annotations

import os
import random
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from tournament_toys import Toy, check_whole, die, history, outlives, play, rows

from torchrl_elegant.tournament.store import DamagedError, Store

PLAN = {"budget": 10_000, "population": 5, "rungs": 1}
# Generations of fewer pods, so that averages come up in each life.
PLANS = {
    "asynchronous": PLAN,
    "generational": {**PLAN, "scheme": "generational", "fusion": True, "quantum": 200},
}


def life(folder: Path, arm: Callable[[], None], plan=PLAN, **options) -> bool:
    """A tournament in a child process, which ``arm`` may end; True if it came to its end."""
    return outlives(arm, lambda: play(folder, **plan, **options))


def after(seconds: float) -> Callable[[], None]:
    def arm() -> None:
        threading.Timer(seconds, die).start()

    return arm


def at_call(names: tuple[str, ...], count: int, when: str) -> Callable[[], None]:
    """Die before or after the so manieth call of functions of ``os``, over all of them."""

    def arm() -> None:
        left = [count]

        def wrap(real: Callable) -> Callable:
            def call(*args, **kwargs):
                left[0] -= 1
                if left[0] == 0 and when == "before":
                    die()
                result = real(*args, **kwargs)
                if left[0] == 0:
                    die()
                return result

            return call

        for name in names:
            setattr(os, name, wrap(getattr(os, name)))

    return arm


@pytest.fixture(scope="module", params=PLANS)
def planned(request, tmp_path_factory):
    """A plan, and how it ends where nobody is killed."""
    plan, folder = PLANS[request.param], tmp_path_factory.mktemp("reference")
    play(folder, **plan)
    fusions = rows(folder, "SELECT DISTINCT state FROM pod WHERE operation = 'fuse' ORDER BY state")
    assert fusions == ([("done",), ("ended",)] if "fusion" in plan else [])
    return plan, history(folder)


def check(folder: Path, planned: tuple[dict, list]) -> None:
    plan, reference = planned
    play(folder, **plan)
    check_whole(folder)
    assert history(folder) == reference


def test_a_hundred_kills_at_random_moments_change_nothing(tmp_path, planned):
    draw, lives = random.Random(0), 0
    while lives < 100:
        folder = tmp_path / str(lives)
        work, arm = Toy(Store(folder / "checkpoints"), seconds=0.001), draw.uniform
        while lives < 100 and not life(folder, after(arm(0.0, 0.03)), planned[0], work=work):
            lives += 1
            check_readable(folder)
        check(folder, planned)


def check_readable(folder: Path) -> None:
    """Live checkpoints are there and whole, at any moment."""
    if (folder / "leaderboard.sqlite").exists():
        for (digest,) in rows(folder, "SELECT digest FROM checkpoint WHERE state = 'live'"):
            Store(folder / "checkpoints").get(digest)


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize(
    "names", [("replace",), ("fsync",), ("unlink",), ("replace", "fsync", "unlink", "open")]
)
def test_kills_inside_publishing_committing_and_collecting_garbage(tmp_path, planned, names, when):
    draw = random.Random(str((names, when)))
    for _ in range(8):
        life(tmp_path, at_call(names, draw.randint(1, 25), when), planned[0])
    check(tmp_path, planned)


def test_pods_killed_in_the_middle_of_an_average_make_it_later(tmp_path):
    class Dying(Toy):
        def fuse(self, order):
            if order.attempt == 1:
                die()
            return super().fuse(order)

    plan = PLANS["generational"]
    work, lives = Dying(Store(tmp_path / "run" / "checkpoints")), 0
    while not life(tmp_path / "run", int, plan, work=work):
        lives += 1
    assert (
        lives == rows(tmp_path / "run", "SELECT COUNT(*) FROM pod WHERE operation = 'fuse'")[0][0]
    )
    play(tmp_path / "whole", **plan)
    assert history(tmp_path / "run") == history(tmp_path / "whole")


def test_sixteen_publishers_and_a_collector_that_takes_all_it_can(tmp_path):
    """No checkpoint that is needed is ever missing; every flipped bit is found."""
    store, needed, lock = Store(tmp_path), dict[str, bytes](), threading.Lock()
    over, found = threading.Event(), list[str]()

    def publish(number: int) -> None:
        for turn in range(20):
            data = f"{number} {turn} ".encode() * 2_000
            with lock:
                needed[store.put(data)] = data

    def collect() -> None:
        while not over.is_set():
            with lock:
                gone = [digest for number, digest in enumerate(needed) if number % 2]
                for digest in gone:
                    del needed[digest]
            store.remove(gone)

    threads = [threading.Thread(target=publish, args=(number,)) for number in range(16)]
    collector = threading.Thread(target=collect)
    for thread in (*threads, collector):
        thread.start()
    for thread in threads:
        thread.join()
    over.set()
    collector.join()
    assert needed
    draw = random.Random(0)
    for digest, data in needed.items():
        assert store.get(digest) == data
        path = tmp_path / digest
        place = draw.randrange(len(data))
        path.write_bytes(
            data[:place] + bytes([data[place] ^ (1 << draw.randrange(8))]) + data[place + 1 :]
        )
        with pytest.raises(DamagedError, match="is not what was published"):
            store.get(digest)
        found.append(digest)
    assert len(found) == len(needed)


def test_a_slow_life_after_many_kills_goes_on_from_partial_results(tmp_path):
    """SIGTERM leaves what a pod has: the next life trains the rest of it."""
    folder = tmp_path / "run"
    store = Store(folder / "checkpoints")

    def arm() -> None:
        def end() -> None:
            time.sleep(0.35)
            os.kill(os.getpid(), signal.SIGTERM)

        threading.Thread(target=end, daemon=True).start()

    lives = 0
    while not life(folder, arm, work=Toy(store, seconds=0.3)) and lives < 3:
        lives += 1
    amounts = rows(
        folder, "SELECT attempt, amount, start IS NOT NULL FROM pod WHERE state = 'queued'"
    )
    assert amounts == [(2, 50.0, 1)] or amounts == [(2, 25.0, 1)], amounts
