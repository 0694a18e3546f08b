"""Ledger of a run: frames, updates, and the updates that are owed."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(kw_only=True)
class Ledger:
    """The one owner of a run's counts; sources, learners and monitors read and write it.

    Every frame beyond ``free_frames`` asks for ``updates_per_frame`` updates. Asynchronous workers
    pace themselves in shared memory: their source copies the count of frames here whenever it
    looks, and asks the collector for the updates that are due.

    Args:
        total_frames: frames that are planned, over all ranks.
        updates_per_frame: 0 for algorithms that learn from whole rollouts and owe nothing.
        free_frames: frames that ask for no update; may be fractional or negative after a resume.
        frames, updates: counts so far.

    >>> ledger = Ledger(total_frames=100, updates_per_frame=0.5, free_frames=10)
    >>> ledger.frames = 30
    >>> ledger.due, ledger.progress
    (10, 0.3)
    """

    total_frames: int
    updates_per_frame: float = 0.0
    free_frames: float = 0.0
    frames: int = 0
    updates: int = 0
    #: Updates that were owed in the state that was loaded.
    loaded_owed: float = 0.0
    #: True if the state that was loaded left nothing to collect and nothing to learn.
    was_done: bool = False

    @property
    def owed(self) -> float:
        """Updates owed for the frames so far; below zero where frames ask for none yet."""
        if not self.updates_per_frame:
            return 0.0
        return self.updates_per_frame * (self.frames - self.free_frames) - self.updates

    @property
    def due(self) -> int:
        """Whole updates owed."""
        # 0.1 * 30 and its like fall short of the whole number by one rounding error.
        return max(0, math.floor(self.owed + 1e-6))

    @property
    def progress(self) -> float:
        """Part of the planned frames that is collected."""
        return self.frames / self.total_frames

    @property
    def is_full(self) -> bool:
        """True if all planned frames are collected."""
        return self.frames >= self.total_frames

    def go_on(self, *, warmup: int, refill: int = 0) -> None:
        """Set ``free_frames`` such that a run that goes on owes what it owed when it was saved.

        Args:
            warmup: frames that the algorithm collects before it learns.
            refill: frames that fill a replay buffer anew, and ask for no update.

        >>> ledger = Ledger(total_frames=900, updates_per_frame=0.5)
        >>> ledger.load_state_dict({"frames": 300, "updates": 100, "owed": 0.0})
        >>> ledger.go_on(warmup=100)
        >>> ledger.free_frames
        100.0
        """
        if refill:
            start: float = self.frames + refill
        elif self.updates:
            start = self.frames - self.loaded_owed / self.updates_per_frame
        else:
            self.free_frames = warmup
            return
        self.free_frames = max(start, warmup) - self.updates / self.updates_per_frame

    def state_dict(self) -> dict[str, Any]:
        return {"frames": self.frames, "updates": self.updates, "owed": self.owed}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        self.frames, self.updates = state_dict["frames"], state_dict["updates"]
        self.loaded_owed = state_dict["owed"]
        self.was_done = self.is_full and self.loaded_owed < 1
