"""Prioritized experience replay: TorchRL's sampler, also where its C++ extension does not load."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from logging import LogRecord
from pathlib import Path
from typing import Any

import numpy as np
import torch
from tensordict import NestedKey
from torch import Tensor
from torchrl._extension import EXTENSION_WARNING
from torchrl._utils import logger as torchrl_logger
from torchrl.data import Storage
from torchrl.data.replay_buffers.samplers import PrioritizedSampler as TorchRLPrioritizedSampler
from torchrl.data.replay_buffers.samplers import prioritized as torchrl_prioritized

from torchrl_elegant.data.segment_tree import MinSegmentTree, SumSegmentTree
from torchrl_elegant.functional import devices

_REDUCTIONS = ("max", "min", "mean", "median", "sum")
# Names of the trees in a state, and of the files in which TorchRL's `dumps` keeps their leaves.
_TREES = {"_sum_tree": "sumtree.memmap", "_min_tree": "mintree.memmap"}


class PrioritizedSampler(TorchRLPrioritizedSampler):
    """Row i is drawn with P(i) = p_i^α / Σ_j p_j^α and carries the weight w_i = (p_i / p_min)^-αβ.

    That weight is (N P(i))^-β over its largest value in the buffer; p_i is the priority plus `eps`.
    [Schaul et al., 2015, equations (1) and section 3.4](https://arxiv.org/abs/1511.05952).

    It takes the arguments of :class:`torchrl.data.PrioritizedSampler` and differs from it in this:

    - Where TorchRL's C++ extension does not load, it uses the trees of this package.
    - On a GPU nothing waits for the device. On the CPU a priority that is negative or not finite is
      an error at once; with TorchRL sampling breaks down later.
    - `state_dict` holds only tensors and numbers, so `torch.load` reads it with `weights_only`.
    - `dumps` and `loads` write TorchRL's files without a Python loop over the rows.

    >>> from tensordict import TensorDict
    >>> from torchrl.data import LazyTensorStorage, TensorDictReplayBuffer
    >>> buffer = TensorDictReplayBuffer(
    ...     storage=LazyTensorStorage(3), sampler=PrioritizedSampler(3, alpha=1.0, beta=0.5)
    ... )
    >>> _ = buffer.extend(TensorDict({"x": torch.arange(3)}, [3]))
    >>> buffer.update_priority(torch.arange(3), torch.tensor([1.0, 4.0, 1e9]))
    >>> batch = buffer.sample(2)
    >>> batch["index"]
    tensor([2, 2])
    """

    _max_priority: Any  # the largest so far and its row; (None, None) at first

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        # It warns that prioritized replay may not work; here it does.
        with left_out(EXTENSION_WARNING):
            super().__init__(*args, **kwargs)

    def _init(self) -> None:
        cuda = self._device is not None and self._device.type == "cuda"
        name = "CudaSumSegmentTreeFp32" if cuda else "SumSegmentTreeFp32"
        if getattr(torchrl_prioritized, name) is not None:
            super()._init()
            return
        size, kind = self._max_capacity, {"dtype": self.dtype, "device": self._device}
        self._sum_tree, self._min_tree = SumSegmentTree(size, **kind), MinSegmentTree(size, **kind)
        self._max_priority = None

    def sample(self, storage: Storage, batch_size: int) -> tuple[Any, dict[str, Tensor]]:
        self._maybe_init_from_storage(storage)
        ours = isinstance(self._sum_tree, SumSegmentTree)
        if devices.reads_at_once(self.device) or not ours or not len(storage):
            return super().sample(storage, batch_size)
        return self._sample_on_device(storage, batch_size)

    def _sample_on_device(self, storage: Storage, batch_size: int) -> tuple[Any, dict[str, Tensor]]:
        """Draws as TorchRL's sampler does on a GPU, without waiting for it."""
        rows = len(storage)
        mass = torch.rand(batch_size, device=self.device, generator=self._rng, dtype=torch.float64)
        index = self._sum_tree.scan_lower_bound(mass * self._sum_tree.reduce(0, rows))
        index = index.clamp_(max=rows - 1)
        weight = (self._sum_tree[index] / self._min_tree.reduce(0, rows)).pow(-self._beta)
        place = index if storage.ndim == 1 else torch.unravel_index(index, storage.shape)
        return place, {"priority_weight": weight}

    def update_priority(self, index: Any, priority: Any, *, storage: Any = None) -> None:
        self._maybe_init_from_storage(storage)
        if not devices.reads_at_once(self.device) and torch.as_tensor(index).ndim < 2:
            self._update_on_device(index, priority)
            return
        priority = torch.as_tensor(priority)
        if devices.reads_at_once(priority.device) and priority.numel():
            low, high = (bound.item() for bound in priority.aminmax())
            if not (low >= 0 and high < math.inf):
                raise ValueError(
                    f"`priority` must be finite and not negative, got `{low}` to `{high}`; "
                    "give the absolute TD error, and look whether the loss is finite"
                )
        super().update_priority(index, priority, storage=storage)

    @torch.no_grad()
    def _update_on_device(self, index: Any, priority: Any) -> None:
        """Files priorities as TorchRL's sampler does on a GPU, without waiting for it."""
        index = torch.as_tensor(index, dtype=torch.long, device=self.device).reshape(-1)
        priority = torch.as_tensor(priority, device=self.device).reshape(-1).expand(index.shape)
        # -1 marks a row that the writer left out. It writes back the value that leaf 0 has, and
        # comes first, so that a new value for leaf 0 is not lost.
        order = (index >= 0).to(torch.uint8).argsort(stable=True)
        index, priority = index[order], priority[order]
        valid, index = index >= 0, index.clamp(min=0)
        highest, at = priority.masked_fill(~valid, 0.0).max(0)
        known = self._max_priority[0]
        if known is not None and not self._max_priority_within_buffer:
            highest = torch.maximum(highest, torch.as_tensor(known, device=self.device))
        self._max_priority = (highest, index.take(at))
        leaf = (priority + self._eps).pow(self._alpha).to(self.dtype)
        for tree in (self._sum_tree, self._min_tree):
            tree[index] = torch.where(valid, leaf, torch.as_tensor(tree[index]))
        if self._max_priority_within_buffer and self._alpha:
            highest, at = self._tree_argmax()
            self._max_priority = ((highest ** (1 / self._alpha) - self._eps).clamp_min(0), at)

    def state_dict(self) -> dict[str, Any]:
        index = torch.arange(self._max_capacity, device=self.device)
        leaves = {name: torch.as_tensor(getattr(self, name)[index]) for name in _TREES}
        return {**super().state_dict(), **leaves}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Takes the state of this class, of at most as many rows as fit, or TorchRL's own."""
        state = dict(state_dict)
        if isinstance(state["_sum_tree"], Tensor):
            length = len(state["_sum_tree"])
            if length > self._max_capacity:
                raise ValueError(
                    f"`max_capacity` must be at least the {length} of the state, "
                    f"got `{self._max_capacity}`"
                )
            self._init()
            index = torch.arange(length, device=self.device)
            for name in _TREES:
                tree = getattr(self, name)
                tree[index] = state[name].to(self.device, self.dtype)
                state[name] = tree
        super().load_state_dict(state)

    def dumps(self, path: str | Path) -> None:
        path = Path(path).absolute()
        path.mkdir(parents=True, exist_ok=True)
        state = self.state_dict()
        for name, file in _TREES.items():
            state.pop(name).double().cpu().numpy().tofile(path / file)
        priority = [None if value is None else float(value) for value in state["_max_priority"]]
        state |= {"_max_priority": priority, "_max_capacity": self._max_capacity}
        (path / "sampler_metadata.json").write_text(json.dumps(state), encoding="utf-8")

    def loads(self, path: str | Path) -> None:
        path = Path(path).absolute()
        state = json.loads((path / "sampler_metadata.json").read_text(encoding="utf-8"))
        for name, file in _TREES.items():
            state[name] = torch.from_numpy(np.fromfile(path / file, np.float64))
        value, index = state["_max_priority"]
        if value is not None:
            value, index = torch.tensor(value), torch.tensor(int(index))
        self.load_state_dict({**state, "_max_priority": (value, index)})


@dataclass(frozen=True, kw_only=True)
class Priority:
    """Options of prioritized replay, which make the buffer's sampler.

    Rows arrive with the largest priority so far. A loss leaves its error under `key` in the batch
    and `buffer.update_tensordict_priority(batch)` files it. To anneal β give the buffer to
    :class:`torchrl.data.replay_buffers.scheduler.LinearScheduler`.

    Args:
        alpha: exponent of the priorities; 0 draws uniformly.
        beta: exponent of the weights; 1 undoes the whole bias, 0 none of it.
        eps: added to every priority, so that none is zero.
        key: entry of a batch with its priorities.
        reduction: of an error with several elements per row: max, min, mean, median or sum.
        max_priority_within_buffer: new rows get the largest priority of the rows still there.

    >>> Priority(beta=0.5).make_sampler(100)
    PrioritizedSampler(alpha=0.6, beta=0.5, eps=1e-08, reduction=max)
    """

    alpha: float = 0.6
    beta: float = 0.4
    eps: float = 1e-8
    key: NestedKey = "td_error"
    reduction: str = "max"
    max_priority_within_buffer: bool = False

    def __post_init__(self) -> None:
        for name in ("alpha", "beta"):
            value = getattr(self, name)
            if not 0 <= value < math.inf:
                raise ValueError(f"`{name}` must be finite and not negative, got `{value}`")
        if not 0 < self.eps < math.inf:
            raise ValueError(f"`eps` must be finite and positive, got `{self.eps}`")
        if self.reduction not in _REDUCTIONS:
            raise ValueError(
                f"`reduction` must be one of {', '.join(_REDUCTIONS)}, got `{self.reduction}`"
            )

    def make_sampler(self, size: int) -> PrioritizedSampler:
        """Makes the sampler of a buffer of ``size`` rows."""
        return PrioritizedSampler(
            size,
            self.alpha,
            self.beta,
            self.eps,
            reduction=self.reduction,
            max_priority_within_buffer=self.max_priority_within_buffer,
        )


@contextmanager
def left_out(beginning: str) -> Iterator[None]:
    """Leave out messages of TorchRL that begin so."""

    def is_other(record: LogRecord) -> bool:
        return not record.getMessage().startswith(beginning)

    torchrl_logger.addFilter(is_other)
    try:
        yield
    finally:
        torchrl_logger.removeFilter(is_other)
