"""Protocol of all executors."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from torchrl_elegant.tournament.pod import Result, Stop


@dataclass(frozen=True, kw_only=True)
class Event:
    """News of a running pod: a sign of life, a score at a rung, or its result.

    Args:
        pod, attempt: whose.
        rung, score, frames: of a report; ``rung`` is None otherwise.
        result: the end.
    """

    pod: int
    attempt: int
    rung: int | None = None
    score: float = 0.0
    frames: int = 0
    result: Result | None = None


#: Called with each event, in the process and thread of the orchestrator.
Hear = Callable[[Event], None]


class Executor(Protocol):
    """Runs pods. A pod that it was given ends in exactly one event with a result, unless killed."""

    #: True if pods take cores and memory of this machine.
    is_local: bool

    @property
    def most(self) -> int | None:
        """Pods at a time at most, at the moment; None for any number."""

    def start(self, text: str) -> None:
        """Begin an order, given as JSON."""

    def stop(self, pod: int, reason: Stop) -> None:
        """Ask a pod to end soon; one that is over does not matter."""

    def kill(self, pod: int) -> None:
        """End a pod at once; nothing more is heard of it."""

    def wait(self, seconds: float, hear: Hear) -> None:
        """Tell what happens, for so many seconds or until something has happened."""

    def close(self) -> None:
        """End all pods and processes."""
