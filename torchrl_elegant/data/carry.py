"""What consecutive batches of the same environments share."""

from __future__ import annotations

import math

import torch
from tensordict import NestedKey, TensorDictBase
from torch import Tensor

Path = tuple[str, ...]


class Carry:
    """Joins batches ``[*envs, time]`` to the rows that were kept of those before.

    >>> from tensordict import TensorDict
    >>> carry = Carry()
    >>> rows = carry.join(TensorDict({"x": torch.tensor([0, 1, 2])}, [3]))
    >>> carry.keep(rows, 2)
    >>> carry.join(TensorDict({"x": torch.tensor([3])}, [1]))["x",]
    tensor([[1, 2, 3]])
    """

    def __init__(self) -> None:
        self._rows: dict[Path, Tensor] = {}

    def join(self, batch: TensorDictBase) -> dict[Path, Tensor]:
        """Each entry of what was kept and of ``batch``, ``[E, t, ...]``."""
        *envs, time = batch.shape
        count, rows = math.prod(envs), {}
        for key, value in batch.items(True, True):
            path = path_of(key)
            new = value.reshape(count, time, *value.shape[batch.ndim :])
            rows[path] = torch.cat([self._rows[path], new] if self._rows else [new], 1)
        return rows

    def keep(self, rows: dict[Path, Tensor], last: int) -> None:
        """Of what ``join`` gave, the last so many rows of each environment, or all there are."""
        self._rows = {
            path: value[:, max(0, value.shape[1] - last) :] for path, value in rows.items()
        }


def path_of(key: NestedKey) -> Path:
    """A key as a tuple.

    >>> path_of("reward")
    ('reward',)
    """
    return (key,) if isinstance(key, str) else key
