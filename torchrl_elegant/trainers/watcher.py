"""Watchers of a training loop: evaluation, saving, and when to stop."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Protocol

from torch import Tensor

from torchrl_elegant.trainers.clock import Clock
from torchrl_elegant.trainers.ledger import Ledger
from torchrl_elegant.trainers.sources import Source


class Watcher(Protocol):
    """Looks after a run between its updates; a loop tells ``clock`` what it does."""

    clock: Clock

    def note(self, terms: Mapping[str, Tensor]) -> None:
        """Take in the terms of one update."""

    def after(self, source: Source) -> bool:
        """Do what is due once ``source`` has handed over its frames; whether to go on."""

    def finish(self, source: Source) -> None:
        """Do what is due at the end."""


class Quantum:
    """Watcher that ends a loop after so many frames, updates or seconds.

    A loop is asked after each round, so that the last round may go beyond the bound.

    Args:
        ledger: counts frames and updates.
        frames, updates, seconds: bounds from now on; None for none.

    >>> ledger = Ledger(total_frames=100)
    >>> quantum = Quantum(ledger, frames=10)
    >>> ledger.frames = 10
    >>> quantum.after(None)
    False
    """

    def __init__(
        self,
        ledger: Ledger,
        *,
        frames: int | None = None,
        updates: int | None = None,
        seconds: float | None = None,
    ) -> None:
        for name, value in (("frames", frames), ("updates", updates), ("seconds", seconds)):
            if value is not None and value <= 0:
                raise ValueError(f"`{name}` must be positive or None, got `{value}`")
        self.clock = Clock()
        self._ledger = ledger
        self._frames = None if frames is None else ledger.frames + frames
        self._updates = None if updates is None else ledger.updates + updates
        self._end = None if seconds is None else time.monotonic() + seconds

    def note(self, terms: Mapping[str, Tensor]) -> None:
        """Keep nothing."""

    def after(self, source: Source) -> bool:
        """True if no bound is reached."""
        ledger = self._ledger
        return (
            (self._frames is None or ledger.frames < self._frames)
            and (self._updates is None or ledger.updates < self._updates)
            and (self._end is None or time.monotonic() < self._end)
        )

    def finish(self, source: Source) -> None:
        """Do nothing: what was learned stays in the trial."""
