"""Policy weights in shared memory: one writer, many readers, and nobody reads half an update."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TypeAlias

import torch
from tensordict import TensorDictBase
from torch import Tensor, nn
from torchrl._utils import _get_mp_ctx

_ALIGNMENT = 16  # bytes; enough for a view as any dtype
_PATIENCE = 0.2  # seconds between two looks at whether the holder of the lock still lives

Weights: TypeAlias = nn.Module | TensorDictBase | Mapping[str, Tensor]


def _named_tensors(policy: nn.Module) -> Iterator[tuple[str, Tensor]]:
    yield from policy.named_parameters()
    yield from policy.named_buffers()


class SharedWeights:
    """Newest parameters and buffers of a policy; each process reads them when it likes.

    In TorchRL's shared-memory scheme receivers act on the sender's own tensors, and its other
    schemes send each worker a message, which discards a rollout in progress. Here `publish`
    copies into one block of shared memory under a lock and raises a version number; `pull`
    copies out, under the same lock, only if the version has changed.

    Args:
        policy: the module whose parameters and buffers are shared; on any device.

    >>> source, target = nn.Linear(1, 1), nn.Linear(1, 1)
    >>> weights = SharedWeights(source)
    >>> weights.pull(target), weights.pull(target)
    (True, False)
    >>> bool(source.weight == target.weight)
    True
    """

    def __init__(self, policy: nn.Module) -> None:
        if not isinstance(policy, nn.Module):
            raise TypeError(
                f"`policy` must be a torch.nn.Module to have weights, got {type(policy).__name__}"
            )
        self._layout: dict[str, tuple[int, torch.Size, torch.dtype]] = {}
        size = 0
        for name, tensor in _named_tensors(policy):
            self._layout[name] = (size, tensor.shape, tensor.dtype)
            size += -(-tensor.numel() * tensor.element_size() // _ALIGNMENT) * _ALIGNMENT
        self._required = self._layout.keys() & policy.state_dict().keys()
        self._block = torch.zeros(size, dtype=torch.uint8).share_memory_()
        context = _get_mp_ctx()
        self._version = context.RawValue("q", 0)
        self._lock = context.Lock()
        self._views: dict[str, Tensor] | None = None
        self._seen = 0
        self.publish(policy)

    @property
    def version(self) -> int:
        """Number of times that weights were published."""
        return self._version.value

    @torch.no_grad()
    def publish(self, source: Weights, *, alive: Callable[[], None] | None = None) -> int:
        """Makes `source` the newest weights and returns their version.

        Args:
            source: a module, its `state_dict`, or its `TensorDict.from_module`.
            alive: called while a reader holds the lock for long; raises if that reader is dead.
        """
        named = self._select(source)
        # Device transfers happen before the lock: readers wait for a memory copy at most.
        arrived = [tensor.detach().to("cpu") for tensor in named.values()]
        views = [self._shared()[name] for name in named]
        while not self._lock.acquire(timeout=_PATIENCE):
            if alive is not None:
                alive()
        try:
            for view, tensor in zip(views, arrived, strict=True):
                view.copy_(tensor)
            self._version.value += 1
            return self._version.value
        finally:
            self._lock.release()

    @torch.no_grad()
    def pull(self, policy: nn.Module) -> bool:
        """Copies newer weights into `policy`; False if there were none."""
        if self._version.value == self._seen:
            return False
        views = self._shared()
        # A writer that dies here leaves the lock taken: the reader then keeps its weights.
        if not self._lock.acquire(timeout=_PATIENCE):
            return False
        try:
            for name, tensor in _named_tensors(policy):
                tensor.copy_(views[name])
            self._seen = self._version.value
        finally:
            self._lock.release()
        return True

    def _shared(self) -> dict[str, Tensor]:
        if self._views is None:
            self._views = {}
            for name, (start, shape, dtype) in self._layout.items():
                stop = start + shape.numel() * dtype.itemsize
                self._views[name] = self._block[start:stop].view(dtype).view(shape)
        return self._views

    def _select(self, source: Weights) -> dict[str, Tensor]:
        if isinstance(source, nn.Module) and not isinstance(source, TensorDictBase):
            given = dict(_named_tensors(source))
        elif isinstance(source, TensorDictBase):
            given = dict(source.flatten_keys(".").items())
        else:
            given = dict(source)
        missing = sorted(self._required - given.keys())
        if missing:
            raise KeyError(
                f"`policy_or_weights` must hold every weight of the policy, got none for {missing}"
            )
        chosen = {name: given[name] for name in self._layout if name in given}
        for name, tensor in chosen.items():
            if tensor.shape != self._layout[name][1]:
                raise ValueError(
                    f"`{name}` must have shape {tuple(self._layout[name][1])}, "
                    f"got {tuple(tensor.shape)}"
                )
        return chosen

    def __getstate__(self) -> dict:
        # Views would be pickled as tensors of their own; a new reader has seen nothing yet.
        return {**self.__dict__, "_views": None, "_seen": 0}
