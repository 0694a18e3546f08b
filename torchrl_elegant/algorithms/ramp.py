"""Numbers that move over the course of a run: learning rates, exploration, corrections."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch


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


def ramp_to(start: float, end: float | None, apply: Callable[[float], None]) -> tuple[Ramp, ...]:
    """The ramp from ``start`` to ``end``; none where ``end`` is None.

    >>> ramp_to(1.0, None, float), len(ramp_to(1.0, 0.0, float))
    ((), 1)
    """
    return () if end is None else (Ramp(start=start, end=end, apply=apply),)


def ramp_lr(optimizer: torch.optim.Optimizer, end: float) -> tuple[Ramp, ...]:
    """Ramps that take every learning rate to the part ``end`` of what it is now.

    >>> optimizer = torch.optim.SGD([torch.nn.Parameter(torch.ones(1))], lr=0.5)
    >>> for ramp in ramp_lr(optimizer, 0.2):
    ...     ramp.at(0.5)
    >>> round(optimizer.param_groups[0]["lr"], 6)
    0.3
    """
    groups = optimizer.param_groups
    return tuple(
        Ramp(start=lr, end=end * lr, apply=_Rate(optimizer, index))
        for index, lr in enumerate([group["lr"] for group in groups])
    )


@dataclass(frozen=True)
class _Rate:
    """Sets the learning rate of a parameter group."""

    optimizer: torch.optim.Optimizer
    group: int

    def __call__(self, lr: float) -> None:
        # Looked up at each call: a loaded state puts new groups in the place of the old.
        self.optimizer.param_groups[self.group]["lr"] = lr
