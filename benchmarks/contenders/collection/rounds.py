"""How frames are asked for and counted."""

from __future__ import annotations

import atexit
import os
import signal
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any

#: Rows of the replay buffer.
ROOM = 100_000


def handed_out(collector: Iterable[Any]) -> Callable[[int], int]:
    """Batch after batch of a collector that hands them out."""
    batches = iter(collector)

    def frames(count: int) -> int:
        done = 0
        while done < count:
            done += next(batches).numel()
        return done

    return frames


def tell(pids: Sequence[int], message: signal.Signals) -> None:
    for pid in pids:
        os.kill(pid, message)


def stop_before_exit(pids: Sequence[int], shutdown: Callable[[], object]) -> None:
    """Shut down at the end of this process, with workers awake to hear of it."""

    def leave() -> None:
        tell(pids, signal.SIGCONT)
        shutdown()

    atexit.register(leave)


def free_running(pids: Sequence[int], written: Callable[[], int]) -> Callable[[int], int]:
    """Workers that collect while nobody asks.

    ``written`` counts the frames that the processes ``pids`` have written so far. Between rounds
    the system holds the workers still, so that other contenders have the machine to themselves
    and nothing of the libraries takes part in it.
    """
    # The first round begins when the workers are built and warm.
    while not written():
        time.sleep(0.01)
    tell(pids, signal.SIGSTOP)

    def frames(count: int) -> int:
        tell(pids, signal.SIGCONT)
        before = written()
        while (done := written() - before) < count:
            time.sleep(0.005)
        tell(pids, signal.SIGSTOP)
        return done

    return frames
