"""Batch layout: arrays with time first become tensors with environments first."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor


@dataclass(frozen=True, kw_only=True)
class Layout:
    """`[time, n, ...]` -> `[n, time, ...]`, or `[time, ...]` for an environment without a batch.

    All results have memory of their own.

    Args:
        batch_dims: dimensions of the batch size of the environment, 1 or 0.

    >>> rows = np.zeros((5, 1, 3))
    >>> Layout(batch_dims=1).tensor(rows).shape, Layout(batch_dims=0).tensor(rows).shape
    (torch.Size([1, 5, 3]), torch.Size([5, 3]))
    """

    batch_dims: int

    def tensor(self, rows: np.ndarray) -> Tensor:
        """An array `[time, n, ...]` as a tensor."""
        return self.turned(torch.from_numpy(rows if self.batch_dims else rows[:, 0]))

    def turned(self, rows: Tensor) -> Tensor:
        """A tensor `[time, *batch, ...]` as `[*batch, time, ...]`."""
        # Not `contiguous`: a single row, or a single environment, is so without a copy.
        return (rows.transpose(0, 1) if self.batch_dims else rows).clone(
            memory_format=torch.contiguous_format
        )

    def flat(self, rows: np.ndarray) -> Tensor:
        """Single numbers `[time, n]` as a tensor `[n, time]`; numpy does this faster than torch."""
        return torch.from_numpy(rows.T.copy() if self.batch_dims else rows[:, 0].copy())

    def column(self, rows: np.ndarray) -> Tensor:
        """Single numbers `[time, n]` as a tensor `[n, time, 1]`."""
        turned = rows.T.copy() if self.batch_dims else rows[:, 0].copy()
        return torch.from_numpy(turned[..., None])

    def index(self, envs: Sequence[int], times: Sequence[int]) -> Any:
        """Index, after turning, of steps `times` of environments `envs`."""
        return (envs, times) if self.batch_dims else (times,)
