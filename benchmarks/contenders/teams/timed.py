"""Rounds timed in seconds of the processor."""

from __future__ import annotations

import time
from collections.abc import Callable


def timed(run: Callable[[int], int]) -> Callable[[int], tuple[int, float]]:
    """``run``, which gives what it has done, and the processor's seconds with it."""

    def round_of(count: int) -> tuple[int, float]:
        begun = time.process_time()
        done = run(count)
        return done, time.process_time() - begun

    return round_of


def repeated(run: Callable[[], int]) -> Callable[[int], int]:
    """``run`` as often as it takes to do so much."""

    def until(count: int) -> int:
        done = 0
        while done < count:
            done += run()
        return done

    return until
