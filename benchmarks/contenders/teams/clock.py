"""Learning curve of one run: evaluations do not count into its seconds."""

from __future__ import annotations

import resource
import time
from collections.abc import Callable


class Curve:
    """Rows of frames, seconds, processor seconds and return, at equal distances of frames.

    Args:
        frames: of the whole run.
        points: rows, the last one at the end.
        evaluate: gives the return of the policy as it is.
    """

    def __init__(self, frames: int, points: int, evaluate: Callable[[], float]) -> None:
        self.rows: list[tuple[int, float, float, float]] = []
        self._every, self._evaluate = frames / points, evaluate
        self.start()

    def start(self) -> None:
        """Count seconds from here."""
        self._begun = _now()

    def at(self, frames: int) -> None:
        """Evaluate if a row is due after so many frames."""
        if frames < round(self._every * (len(self.rows) + 1)):
            return
        before = _now()
        took = [now - begun for now, begun in zip(before, self._begun, strict=True)]
        self.rows.append((frames, took[0], took[1], self._evaluate()))
        self._begun = [now - spent for now, spent in zip(_now(), took, strict=True)]


def _now() -> list[float]:
    """Seconds of the clock, and of the processor, those of ended compilers included."""
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return [time.perf_counter(), time.process_time() + children.ru_utime + children.ru_stime]
