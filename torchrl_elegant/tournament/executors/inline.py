"""Inline executor: one pod after another, in the process of the orchestrator."""

from __future__ import annotations

import time
from pathlib import Path

from torchrl_elegant.tournament.executors.protocol import Event, Hear
from torchrl_elegant.tournament.pod import Order, Stop, Work, carry_out


class InlineExecutor:
    """Runs each pod inside ``wait``; for debugging, for tests, and where processes are not allowed.

    Args:
        work: what a pod does.
        results: folder of result files.
    """

    is_local = True
    most: int | None = 1

    def __init__(self, work: Work, results: Path) -> None:
        self._work, self._results = work, results
        self._waiting: Order | None = None
        self._stop: Stop | None = None

    def start(self, text: str) -> None:
        """Keep the order for the next ``wait``."""
        assert self._waiting is None, "one pod at a time"
        self._waiting, self._stop = Order.from_json(text), None

    def stop(self, pod: int, reason: Stop) -> None:
        """Have the pod's next sign of life end it."""
        self._stop = reason

    def kill(self, pod: int) -> None:
        """Forget a pod that has not begun; one at work in this process cannot be killed."""
        self._waiting = None

    def wait(self, seconds: float, hear: Hear) -> None:
        """Run the pod that waits; without one, sleep."""
        if self._waiting is None:
            time.sleep(seconds)
            return
        order, self._waiting = self._waiting, None
        result = carry_out(self._work, order, _Here(self, order, hear), self._results)
        hear(Event(pod=order.pod, attempt=order.attempt, result=result))

    def close(self) -> None:
        """Do nothing: there are no processes."""

    @property
    def reason(self) -> Stop | None:
        """Why the pod at work is to stop; None to go on."""
        return self._stop


class _Here:
    """Link of a pod in the same process."""

    def __init__(self, executor: InlineExecutor, order: Order, hear: Hear) -> None:
        self._executor, self._hear = executor, hear
        self._pod, self._attempt = order.pod, order.attempt

    def beat(self) -> Stop | None:
        self._hear(Event(pod=self._pod, attempt=self._attempt))
        return self._executor.reason

    def report(self, rung: int, score: float, frames: int) -> None:
        self._hear(
            Event(pod=self._pod, attempt=self._attempt, rung=rung, score=score, frames=frames)
        )
