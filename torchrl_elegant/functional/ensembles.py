"""How the values of an ensemble become one value."""

from __future__ import annotations

import torch
from torch import Tensor


def pick_members(values: Tensor, members: int | None) -> Tensor:
    """A random subset of M members, drawn anew at each call (Chen et al. 2021, algorithm 1).

    ``None`` keeps all. The subset is shared by the whole batch, as in the paper.

    >>> import torch
    >>> pick_members(torch.arange(12.0).view(4, 3), 2).shape
    torch.Size([2, 3])
    """
    if members is None or members == values.shape[0]:
        return values
    index = torch.randperm(values.shape[0], device=values.device)[:members]
    return values[index]  # [M, *B]


def reduce_members(values: Tensor, how: str) -> Tensor:
    """Minimum or mean over the leading ensemble dimension.

    >>> import torch
    >>> reduce_members(torch.tensor([[1.0, 5.0], [3.0, 2.0]]), "min").tolist()
    [1.0, 2.0]
    >>> reduce_members(torch.tensor([[1.0, 5.0], [3.0, 2.0]]), "mean").tolist()
    [2.0, 3.5]
    """
    if how == "mean":
        return values.mean(0)  # [*B]
    if values.shape[0] == 2:
        # One elementwise kernel instead of a reduction that also finds indices.
        return torch.minimum(*values.unbind(0))
    return values.amin(0)
