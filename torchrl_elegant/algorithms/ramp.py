"""Numbers that move over the course of a run: learning rates, exploration, corrections."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Ramp:
    """A number that goes evenly from ``start`` to ``end`` and then stays.

    Args:
        start, end: its first and its last value.
        until: the part of the run after which it has arrived.
        apply: what takes the number.

    >>> seen = []
    >>> ramp = Ramp(start=1.0, end=0.0, until=0.5, apply=seen.append)
    >>> for progress in (0.0, 0.25, 0.75):
    ...     ramp.at(progress)
    >>> seen
    [1.0, 0.5, 0.0]
    """

    start: float
    end: float
    until: float = 1.0
    apply: Callable[[float], None]

    def __post_init__(self) -> None:
        if not 0.0 < self.until <= 1.0:
            raise ValueError(f"`until` must lie in (0, 1], got `{self.until}`")

    def at(self, progress: float) -> None:
        """Set the number for a run of which the part ``progress`` is done; 1 is its end."""
        done = min(1.0, progress / self.until)
        self.apply(self.start + (self.end - self.start) * done)
