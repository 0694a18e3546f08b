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
from tournament_toys import Toy, check_whole, history, play, rows

from torchrl_elegant.tournament.store import DamagedError, Store

PLAN = {"budget": 10_000, "population": 5, "rungs": 1}


def life(folder: Path, arm: Callable[[], None], **options) -> bool:
    """A tournament in a child process, which ``arm`` may end; True if it came to its end."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            arm()
            play(folder, **PLAN, **options)
            code = 0
        finally:
            os._exit(code)
    _, status = os.waitpid(child, 0)
    assert status == 0 or os.WTERMSIG(status) == signal.SIGKILL, status
    return status == 0


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


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


@pytest.fixture(scope="module")
def reference(tmp_path_factory):
    folder = tmp_path_factory.mktemp("reference")
    play(folder, **PLAN)
    return history(folder)


def check(folder: Path, reference: list) -> None:
    play(folder, **PLAN)
    check_whole(folder)
    assert history(folder) == reference


def test_a_hundred_kills_at_random_moments_change_nothing(tmp_path, reference):
    draw, lives = random.Random(0), 0
    while lives < 100:
        folder = tmp_path / str(lives)
        work = Toy(Store(folder / "checkpoints"), seconds=0.001)
        while lives < 100 and not life(folder, after(draw.uniform(0.0, 0.03)), work=work):
            lives += 1
            check_readable(folder)
        check(folder, reference)


def check_readable(folder: Path) -> None:
    """Live checkpoints are there and whole, at any moment."""
    if (folder / "leaderboard.sqlite").exists():
        for (digest,) in rows(folder, "SELECT digest FROM checkpoint WHERE state = 'live'"):
            Store(folder / "checkpoints").get(digest)


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize(
    "names", [("replace",), ("fsync",), ("unlink",), ("replace", "fsync", "unlink", "open")]
)
def test_kills_inside_publishing_committing_and_collecting_garbage(
    tmp_path, reference, names, when
):
    draw = random.Random(str((names, when)))
    for _ in range(8):
        life(tmp_path, at_call(names, draw.randint(1, 25), when))
    check(tmp_path, reference)


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
