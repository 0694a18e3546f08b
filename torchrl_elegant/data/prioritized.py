"""Prioritized experience replay: TorchRL's sampler, also where its C++ extension does not load."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from logging import LogRecord
from pathlib import Path
from typing import Any

import numpy as np
import torch
from tensordict import NestedKey
from torch import Tensor
from torchrl._extension import EXTENSION_WARNING
from torchrl._utils import logger
from torchrl.data.replay_buffers.samplers import PrioritizedSampler as TorchRLPrioritizedSampler
from torchrl.data.replay_buffers.samplers import prioritized as torchrl_prioritized

from torchrl_elegant.data.segment_tree import MinSegmentTree, SumSegmentTree

_REDUCTIONS = ("max", "min", "mean", "median", "sum")
# The state's names of the trees, and the files in which TorchRL's `dumps` keeps their leaves.
_TREES = {"_sum_tree": "sumtree.memmap", "_min_tree": "mintree.memmap"}


class PrioritizedSampler(TorchRLPrioritizedSampler):
    """Row i is drawn with P(i) = p_i^α / Σ_j p_j^α and carries the weight w_i = (p_i / p_min)^-αβ.

    That weight is (N P(i))^-β over its largest value in the buffer; p_i is the priority plus `eps`.
    [Schaul et al., 2015, equations (1) and section 3.4](https://arxiv.org/abs/1511.05952).

    What differs from :class:`torchrl.data.PrioritizedSampler`, whose arguments it takes: where the
    C++ extension does not load, its trees are ours; a priority that is negative or not finite is
    an error where TorchRL's sampling breaks down later; `state_dict` holds tensors and numbers
    only, so that `torch.load` reads it with `weights_only`; `dumps` and `loads` write TorchRL's
    files without a Python loop over the rows.

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

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        logger.addFilter(_not_extension_warning)
        try:
            super().__init__(*args, **kwargs)
        finally:
            logger.removeFilter(_not_extension_warning)

    def _init(self) -> None:
        cuda = self._device is not None and self._device.type == "cuda"
        name = "CudaSumSegmentTreeFp32" if cuda else "SumSegmentTreeFp32"
        if getattr(torchrl_prioritized, name) is not None:
            super()._init()
            return
        size, kind = self._max_capacity, {"dtype": self.dtype, "device": self._device}
        self._sum_tree, self._min_tree = SumSegmentTree(size, **kind), MinSegmentTree(size, **kind)
        self._max_priority = None

    def update_priority(self, index: Any, priority: Any, *, storage: Any = None) -> None:
        priority = torch.as_tensor(priority)
        # On a GPU looking at the values would wait for them.
        if priority.device.type == "cpu" and priority.numel():
            low, high = (bound.item() for bound in priority.aminmax())
            if not (low >= 0 and high < math.inf):
                raise ValueError(
                    f"`priority` must be finite and not negative, got `{low}` to `{high}`; "
                    "give the absolute TD error, and look whether the loss is finite"
                )
        super().update_priority(index, priority, storage=storage)

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
    """How a buffer weighs its rows; its ``make_sampler`` is what the buffer draws with.

    Rows arrive with the largest priority so far. A loss leaves its error under `key` in the batch
    and `buffer.update_tensordict_priority(batch)` files it. To anneal β give the buffer to
    :class:`torchrl.data.replay_buffers.scheduler.LinearScheduler`.

    Args:
        alpha: exponent of the priorities; 0 draws uniformly.
        beta: how much of the bias the weights undo; 1 all of it.
        eps: added to every priority, so that none is zero.
        key: where a batch holds its priorities.
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
        """A sampler for a buffer of ``size`` rows."""
        return PrioritizedSampler(
            size,
            self.alpha,
            self.beta,
            self.eps,
            reduction=self.reduction,
            max_priority_within_buffer=self.max_priority_within_buffer,
        )


def _not_extension_warning(record: LogRecord) -> bool:
    """The warning says that prioritized replay may not work; here it does."""
    return record.msg != EXTENSION_WARNING
