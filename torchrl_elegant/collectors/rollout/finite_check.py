"""Check that stops a run at the first reward or observation that is not finite."""

from __future__ import annotations

from collections.abc import Iterator
from math import isfinite
from typing import Protocol

import numpy as np
import torch
from tensordict import (
    LazyStackedTensorDict,
    TensorDictBase,
    is_non_tensor,
    is_tensor_collection,
)
from torchrl.envs import EnvBase

from torchrl_elegant.collectors.rollout.env_steps import is_ragged
from torchrl_elegant.envs import BOOKKEEPING_KEYS
from torchrl_elegant.functional import devices, path_of

Key = str | tuple[str, ...]


class FiniteCheck(Protocol):
    """Raises if an entry of a batch is not finite."""

    def __call__(self, batch: TensorDictBase, *, frames: int) -> None:
        """Checks `batch`, before which `frames` frames were collected."""


def finite_check(env: EnvBase, device: torch.device | None) -> FiniteCheck:
    """Check of the floating-point rewards and observations of `env`, in batches on `device`."""
    observations = [
        key
        for key, spec in env.full_observation_spec.items(True, True)
        if spec.dtype is not None and spec.dtype.is_floating_point and key not in BOOKKEEPING_KEYS
    ]
    keys = [*map(_next, env.reward_keys), *map(_next, observations), *observations]
    if is_ragged(env):
        return CheckRagged(keys)
    if devices.reads_at_once(device):
        return CheckNow(keys)
    return CheckLater(keys, device=device or torch.device("cpu"))


class CheckNow:
    """Check that raises at once, and names the environment and the frame.

    >>> from tensordict import TensorDict
    >>> batch = TensorDict({"next": {"reward": torch.tensor([0.0, torch.inf])}}, [2])
    >>> CheckNow([("next", "reward")])(batch, frames=10)  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    ...
    FloatingPointError: `reward` must be finite, got `inf` from sub environment 0 at frame 12; ...
    """

    def __init__(self, keys: list[Key]) -> None:
        self._keys = keys

    def __call__(self, batch: TensorDictBase, *, frames: int) -> None:
        """Checks `batch`, before which `frames` frames were collected."""
        for key in self._keys:
            values = batch.get(key, None)
            # One sum in place of a mask: it is finite only if every value is. Huge finite values
            # may overflow in it, and are told apart below.
            if values is not None and not isfinite(values.sum()):
                _raise_if_not_finite(values, key, batch.ndim, frames)


class CheckRagged:
    """Check of batches whose parts differ in shape; it names the batch, not the frame.

    >>> from tensordict import LazyStackedTensorDict, TensorDict
    >>> steps = [TensorDict({"seen": torch.full((size,), torch.inf)}) for size in (0, 2)]
    >>> check = CheckRagged(["seen"])
    >>> check(LazyStackedTensorDict(*steps), frames=10)  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    ...
    FloatingPointError: `seen` must be finite, got a non-finite value in the batch up to frame 12...
    """

    def __init__(self, keys: list[Key]) -> None:
        self._keys = keys

    def __call__(self, batch: TensorDictBase, *, frames: int) -> None:
        """Checks `batch`, before which `frames` frames were collected."""
        names = set(map(path_of, self._keys))
        for key, value in _dense_leaves(batch):
            if key in names and not value.isfinite().all():
                raise _late_error(key, frames + batch.numel())


def _dense_leaves(batch: TensorDictBase) -> Iterator[tuple[tuple[str, ...], torch.Tensor]]:
    """Yields keys and tensors of all parts of `batch`, without stacking them."""
    if isinstance(batch, LazyStackedTensorDict):
        for part in batch.tensordicts:
            yield from _dense_leaves(part)
        return
    for name, value in batch.items():
        if isinstance(value, torch.Tensor):
            yield (name,), value
        elif is_tensor_collection(value) and not is_non_tensor(value):
            yield from (((name, *key), leaf) for key, leaf in _dense_leaves(value))


class CheckLater:
    """Check that never waits for a device: it raises at a later batch, without the exact frame.

    For each key the device notes the first batch with a value that is not finite, and starts a
    copy of the notes to the host. Each call reads the notes that have arrived. A note stays, so
    none is missed; those of a run's last batch are not read, and are left to the learner.

    Args:
        keys: entries to check.
        device: of the batches.

    >>> from tensordict import TensorDict
    >>> batch = TensorDict({"next": {"reward": torch.tensor([0.0, torch.inf])}}, [2])
    >>> check = CheckLater([("next", "reward")], device=torch.device("cpu"))
    >>> check(batch, frames=10)
    >>> check(batch, frames=12)  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    ...
    FloatingPointError: `reward` must be finite, got a non-finite value ...
    """

    def __init__(self, keys: list[Key], *, device: torch.device) -> None:
        self._keys = keys
        # Number of the last frame of the batch; 0 for a key that was always finite.
        self._first_bad = torch.zeros(len(keys), dtype=torch.int64, device=device)
        # Pinned, or else a copy from a GPU would wait for it.
        pinned = device.type == "cuda"
        self._arrived = torch.zeros(len(keys), dtype=torch.int64, pin_memory=pinned)
        self._read: np.ndarray = self._arrived.numpy()

    def __call__(self, batch: TensorDictBase, *, frames: int) -> None:
        """Reads the notes of earlier batches, and checks `batch` on its device."""
        if self._read.any():
            self._raise()
        last = frames + batch.numel()
        for number, key in enumerate(self._keys):
            values = batch.get(key, None)
            if values is not None:
                note = self._first_bad[number]
                keep = values.isfinite().all() | (note != 0)
                note.copy_(torch.where(keep, note, last))
        self._arrived.copy_(self._first_bad, non_blocking=True)

    def _raise(self) -> None:
        number = int(np.flatnonzero(self._read)[0])
        raise _late_error(self._keys[number], self._read[number])


def _late_error(key: Key, frames: int) -> FloatingPointError:
    return FloatingPointError(
        f"`{_name(key)}` must be finite, got a non-finite value in the batch up to frame {frames}; "
        "mend the simulator, or clean the value in a wrapper"
    )


def _raise_if_not_finite(values: torch.Tensor, key: Key, batch_dims: int, frames: int) -> None:
    finite = values.isfinite().reshape(*values.shape[:batch_dims], -1).all(-1)
    # In the order of collection: time first, then sub environments.
    broken = (~finite).reshape(-1, finite.shape[-1]).T.nonzero()
    if not len(broken):
        return
    t, row = broken[0].tolist()
    count = finite.numel() // finite.shape[-1]
    value = values.reshape(count, finite.shape[-1], -1)[row, t]
    raise FloatingPointError(
        f"`{_name(key)}` must be finite, got "
        f"`{value[~value.isfinite()][0].item()}` from sub environment {row} at frame "
        f"{frames + t * count + row + 1}; mend the simulator, or clean the value in a wrapper"
    )


def _name(key: Key) -> Key:
    name = path_of(key)[1:] if path_of(key)[0] == "next" else path_of(key)
    return name[0] if len(name) == 1 else name


def _next(key: Key) -> tuple[str, ...]:
    return ("next", *path_of(key))
