"""Rows without junk: those that an environment flags are neither stored nor learned from."""

from __future__ import annotations

import torch
from tensordict import TensorDictBase

from torchrl_elegant.functional import JUNK, junk_of


def without_junk(rows: TensorDictBase) -> TensorDictBase:
    """Gives the rows that are not junk, ``[N]``, without the flag; others' rows as they are.

    How many rows are left depends on the flags, so each call waits for the device once.

    >>> from tensordict import TensorDict
    >>> flags = torch.tensor([[False], [True], [False]])
    >>> without_junk(TensorDict({"x": torch.arange(3), "junk": flags}, [3]))["x"].tolist()
    [0, 2]
    """
    junk = junk_of(rows)
    return rows if junk is None else rows.exclude(JUNK)[~junk]


def refilled(rows: TensorDictBase) -> TensorDictBase:
    """Gives as many rows ``[N]``: each place of junk goes to a row drawn evenly from the rest.

    The number of rows stays, so all ranks make the same minibatches, a compiled update keeps its
    shapes, and nothing waits for the device. Each row that is not junk counts equally often on
    average.

    >>> from tensordict import TensorDict
    >>> flags = torch.tensor([[False], [True]])
    >>> refilled(TensorDict({"x": torch.tensor([7, 8]), "junk": flags}, [2]))["x"].tolist()
    [7, 7]
    """
    junk = junk_of(rows)
    if junk is None:
        return rows
    place, good = torch.arange(len(junk), device=junk.device), (~junk).cumsum(0)
    drawn = (torch.rand(len(junk), device=junk.device) * good[-1]).long()
    others = torch.searchsorted(good, drawn, right=True).clamp(max=len(junk) - 1)
    return rows.exclude(JUNK)[torch.where(junk, others, place)]
