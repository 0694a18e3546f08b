"""Ensembles of critics: random subsets, reductions, and the actor's trust in them."""

from __future__ import annotations

import math

import torch
from torch import Tensor


def draw_members(
    total: int, members: int | None, device: torch.device | None = None
) -> Tensor | None:
    """Indices of a random subset of M members, drawn anew at each call; ``None`` for all.

    The subset is shared by the whole batch (Chen et al. 2021, algorithm 1, line 7). Drawn before
    the members are evaluated, so that the others need not be.

    >>> draw_members(4, 2).shape
    torch.Size([2])
    >>> draw_members(4, None) is None
    True
    """
    if members is None or members == total:
        return None
    return torch.randperm(total, device=device)[:members]  # [M]


def reduce_members(values: Tensor, how: str) -> Tensor:
    """Minimum, mean or sum over the leading ensemble dimension.

    ``"weighted"`` is one third of the minimum and two thirds of the mean, ElegantRL's target of
    REDQ: less pessimistic than the minimum, and without a draw.

    >>> import torch
    >>> reduce_members(torch.tensor([[1.0, 5.0], [3.0, 2.0]]), "min").tolist()
    [1.0, 2.0]
    >>> reduce_members(torch.tensor([[1.0, 5.0], [3.0, 2.0]]), "mean").tolist()
    [2.0, 3.5]
    >>> reduce_members(torch.tensor([[1.0, 5.0], [4.0, 2.0]]), "weighted").tolist()
    [2.0, 3.0]
    """
    if how == "mean":
        return values.mean(0)  # [*B]
    if how == "sum":
        return values.sum(0)
    if how == "weighted":
        return torch.lerp(values.mean(0), values.amin(0), 1.0 / 3.0)
    if values.shape[0] == 2:
        # One elementwise kernel instead of a reduction that also finds indices.
        return torch.minimum(*values.unbind(0))
    return values.amin(0)


def critic_trust(running_loss: float) -> float:
    """rel = exp(-c^2): one for a perfect critic, zero for a useless one.

    >>> critic_trust(0.0)
    1.0
    """
    return math.exp(-(running_loss**2))


def actor_ratio(trust: float) -> float:
    """Highest allowed actor updates per critic update, 1 / (2 - rel): from 1/2 up to 1.

    >>> actor_ratio(1.0), actor_ratio(0.0)
    (1.0, 0.5)
    """
    return 1.0 / (2.0 - trust)
