"""Mean and variance of all that was seen, exact however it comes in parts."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import torch
from torch import Tensor

#: Gives the parts of all processes, the own one included, in an order that is theirs in common.
Gather: TypeAlias = Callable[[Tensor], Sequence[Tensor]]


def alone(part: Tensor) -> list[Tensor]:
    """The ``Gather`` of a single process.

    >>> alone(torch.ones(()))
    [tensor(1.)]
    """
    return [part]


class Moments:
    """Count, mean and sum of squared deviations, in float64.

    Parts are merged by Chan, Golub and LeVeque 1983, eq. 2.1: with ``d`` the difference of the
    means, ``M2 = M2_a + M2_b + d^2 n_a n_b / n``. No square of a value is ever summed up, so a
    large offset costs no digits.

    Args:
        shape: of one value.

    >>> moments = Moments(())
    >>> moments.add(torch.tensor([1.0, 2.0])), moments.add(torch.tensor([6.0]))
    (None, None)
    >>> moments.count, moments.mean.item(), round(moments.variance.item(), 3)
    (3, 3.0, 4.667)
    """

    def __init__(self, shape: tuple[int, ...] | torch.Size) -> None:
        self.count = 0
        self.mean = torch.zeros(shape, dtype=torch.float64)
        self.squares = torch.zeros(shape, dtype=torch.float64)

    @property
    def variance(self) -> Tensor:
        """Over all values, not corrected for their number; zero without any."""
        return self.squares / max(1, self.count)

    def add(self, values: Tensor, gather: Gather = alone) -> None:
        """Take in values ``[*B, *shape]``, and what ``gather`` brings of other processes'."""
        rows = values.detach().to("cpu", torch.float64).reshape(-1, *self.mean.shape)
        mean = rows.mean(0) if len(rows) else torch.zeros_like(self.mean)
        squares = (rows - mean).square().sum(0)
        count = torch.tensor([float(len(rows))], dtype=torch.float64)
        for part in gather(torch.cat([count, mean.reshape(-1), squares.reshape(-1)])):
            left, right = part[1:].chunk(2)
            self.merge(int(part[0]), left.reshape(mean.shape), right.reshape(mean.shape))

    def merge(self, count: int, mean: Tensor, squares: Tensor) -> None:
        """Take in what ``count`` other values came to."""
        if not count:
            return
        total = self.count + count
        apart = mean - self.mean
        self.mean = self.mean + apart * (count / total)
        self.squares = self.squares + squares + apart.square() * (self.count * count / total)
        self.count = total

    def state_dict(self) -> dict[str, Any]:
        return {"count": self.count, "mean": self.mean, "squares": self.squares}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        for name, value in state_dict.items():
            setattr(self, name, value)
