"""Watcher: whoever looks on while a tournament runs; how often, and for how long."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol


class Watcher(Protocol):
    """Looks on while a tournament runs, and decides nothing."""

    def look(self, slots: int) -> None:
        """Look if it is time to. Called some times a second; ``slots`` are those of now."""

    def close(self) -> None:
        """Show the end; called once, however the tournament ended."""


class Pace:
    """Says when to look again, so that looking takes a small share of the time.

    Args:
        seconds: from one look to the next, at least.
        share: of all time that looks may take.

    >>> pace = Pace(60.0, share=0.01)
    >>> pace.is_due()
    True
    >>> with pace.look():
    ...     pass
    >>> pace.is_due()
    False
    """

    def __init__(self, seconds: float, *, share: float) -> None:
        self._seconds, self._share = seconds, share
        self._next = 0.0

    def is_due(self) -> bool:
        """True if it is time to look."""
        return time.monotonic() >= self._next

    @contextmanager
    def look(self) -> Iterator[None]:
        """Take the time of a look."""
        start = time.monotonic()
        try:
            yield
        finally:
            end = time.monotonic()
            self._next = end + max(self._seconds, (end - start) / self._share)
