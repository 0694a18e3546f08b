"""Segment trees in tensors: sums and minima of ranges, updated as single leaves change."""

from __future__ import annotations

from abc import ABC, abstractmethod
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor

# A node has 2**_BITS children. A level costs a handful of tensor calls whatever its width: a
# million leaves in four levels of 32 children sample faster than with 16, 64 or 128 of them.
_BITS = 5
_WIDTH = 1 << _BITS


class SegmentTree(ABC):
    """Base of both trees; the interface is that of TorchRL's C++ trees.

    A batch of n leaves costs O(n log size), level by level, each level a few tensor calls. Inner
    nodes are computed anew from their children, so no rounding error builds up.

    Args:
        size: number of leaves.
        dtype: of the leaves; float32 or float64.
        device: device of the tree.
    """

    def __init__(
        self,
        size: int,
        *,
        dtype: torch.dtype = torch.float32,
        device: torch.device | str | None = None,
    ) -> None:
        if size < 1:
            raise ValueError(f"`size` must be at least 1, got `{size}`")
        if dtype not in (torch.float32, torch.float64):
            raise ValueError(f"`dtype` must be torch.float32 or torch.float64, got `{dtype}`")
        self.size, self.dtype = size, dtype
        leaves = torch.full((size,), self._identity(dtype), dtype=dtype, device=device)
        # From the leaves up, each [nodes / width, width]: a row is the children of one node above.
        self._levels = [self._rows(leaves)]
        while len(self._levels[-1]) > 1:
            self._levels.append(self._rows(self._combine(self._levels[-1])))

    @staticmethod
    @abstractmethod
    def _identity(dtype: torch.dtype) -> float:
        """Value that changes no reduction."""

    @staticmethod
    @abstractmethod
    def _combine(rows: Tensor) -> Tensor:
        """Reduces the last dimension."""

    @property
    def identity_element(self) -> float:
        """Value of a leaf that was never written."""
        return self._identity(self.dtype)

    @property
    def device(self) -> torch.device:
        return self._levels[0].device

    @property
    def capacity(self) -> int:
        """Number of leaves, including those that only fill up the last node."""
        return self._levels[0].numel()

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, index: Any) -> Any:
        """Read leaves: a float for an int, a tensor for anything else."""
        if isinstance(index, int):
            return self._leaves()[index].item()
        return self._leaves().take(torch.as_tensor(index, dtype=torch.long, device=self.device))

    def __setitem__(self, index: Any, value: Any) -> None:
        self.update(index, value)

    def update(self, index: Any, value: Any) -> None:
        """Write one value for all, or one each; of equal indices the last wins."""
        index = torch.as_tensor(index, dtype=torch.long, device=self.device).reshape(-1)
        value = torch.as_tensor(value, dtype=self.dtype, device=self.device).detach().reshape(-1)
        if value.numel() == 1:
            value = value.expand_as(index)
        elif value.shape == index.shape:
            index, value = _last_wins(index, value)
        else:
            raise ValueError(
                f"`value` must have one element or the {index.numel()} of `index`, "
                f"got `{value.numel()}`"
            )
        self._leaves().index_copy_(0, index, value)
        for below, above in pairwise(self._levels):
            index = index >> _BITS
            nodes = above.view(-1)
            if index.numel() < len(below):
                nodes.index_copy_(0, index, self._combine(below.index_select(0, index)))
            else:
                nodes[: len(below)] = self._combine(below)

    def query(self, left: int | Tensor, right: int | Tensor) -> float:
        """Reduces the leaves in [left, right) to a number, which waits for a device."""
        return self.reduce(int(left), int(right)).item()

    def reduce(self, left: int, right: int) -> Tensor:
        """Reduces the leaves in [left, right) to a tensor ``[]`` on the device."""
        left, right = max(left, 0), min(right, self.size)
        if right - left == self.size:
            return self._combine(self._levels[-1]).squeeze(0)
        parts = []
        for level in self._levels[:-1]:
            first, last = -(-left // _WIDTH), right // _WIDTH  # nodes above that lie within
            nodes, edge = level.view(-1), min(first * _WIDTH, right)
            parts += [nodes[left:edge], nodes[max(edge, last * _WIDTH) : right]]
            left, right = first, max(first, last)
        inside = torch.cat([*parts, self._levels[-1][0, left:right]])
        return self._combine(
            inside if len(inside) else inside.new_full((1,), self.identity_element)
        )

    def _leaves(self) -> Tensor:
        return self._levels[0].view(-1)[: self.size]

    def _rows(self, nodes: Tensor) -> Tensor:
        missing, identity = -len(nodes) % _WIDTH, self._identity(nodes.dtype)
        return torch.nn.functional.pad(nodes, (0, missing), value=identity).view(-1, _WIDTH)


class SumSegmentTree(SegmentTree):
    """Sums of ranges, and the leaf at which the running sum reaches a value.

    Inner nodes are float64: in float32 a sum over a million leaves loses the small ones.

    >>> tree = SumSegmentTree(100)
    >>> tree[torch.tensor([3, 50, 99])] = torch.tensor([1.0, 2.0, 4.0])
    >>> tree.query(0, 99), tree.query(0, 100)
    (3.0, 7.0)
    >>> tree.scan_lower_bound(torch.tensor([0.5, 1.0, 1.5, 7.0]))
    tensor([ 3,  3, 50, 99])
    """

    def scan_lower_bound(self, value: Any) -> Any:
        """Find the first leaf up to which the sum is at least ``value``; `size` beyond the total.

        With leaves that are not negative, a positive value up to the total always finds a leaf
        greater than zero. An int for a number, a tensor for anything else.
        """
        mass = torch.as_tensor(value, dtype=torch.float64, device=self.device)
        shape, mass = mass.shape, mass.reshape(-1, 1)
        beyond = mass > self._combine(self._levels[-1])
        node = torch.zeros_like(mass[:, 0], dtype=torch.long)
        for level in reversed(self._levels):
            running = level.index_select(0, node).cumsum(-1, dtype=torch.float64)  # [n, width]
            # A node's sum and the end of its running sum may differ by rounding.
            mass = torch.minimum(mass, running[:, -1:])
            child = torch.searchsorted(running, mass)  # [n, 1]
            before = running.gather(1, (child - 1).clamp_min_(0)).masked_fill_(child == 0, 0.0)
            mass = mass - before
            node = (node << _BITS) + child[:, 0]
        index = node.masked_fill_(beyond[:, 0], self.size).reshape(shape)
        return int(index) if isinstance(value, int | float) else index

    @staticmethod
    def _identity(dtype: torch.dtype) -> float:
        return 0.0

    @staticmethod
    def _combine(rows: Tensor) -> Tensor:
        return rows.sum(-1, dtype=torch.float64)


class MinSegmentTree(SegmentTree):
    """Minima of ranges.

    >>> tree = MinSegmentTree(100)
    >>> tree[torch.tensor([3, 50, 99])] = torch.tensor([2.0, 1.0, 4.0])
    >>> tree.query(0, 50), tree.query(51, 100)
    (2.0, 4.0)
    """

    @staticmethod
    def _identity(dtype: torch.dtype) -> float:
        return torch.finfo(dtype).max

    @staticmethod
    def _combine(rows: Tensor) -> Tensor:
        return rows.amin(-1)


def _last_wins(index: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
    """Gives equal indices the value of the last of them, so that the order of writing is free.

    >>> _last_wins(torch.tensor([7, 2, 7]), torch.tensor([1.0, 2.0, 3.0]))
    (tensor([2, 7, 7]), tensor([2., 3., 3.]))
    """
    index, order = index.sort(stable=True)
    return index, value[order[torch.searchsorted(index, index, right=True) - 1]]
