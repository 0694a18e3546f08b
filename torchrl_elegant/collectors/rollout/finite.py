"""The check that stops a run at the first number that is not finite."""

from __future__ import annotations

from math import isfinite

import torch
from tensordict import TensorDictBase
from torchrl.envs import EnvBase

from torchrl_elegant.envs import BOOKKEEPING_KEYS

Key = str | tuple[str, ...]


def require_finite(batch: TensorDictBase, *, keys: list[Key], frames: int) -> None:
    """Raises if an entry of `batch`, collected after `frames` frames, is not finite.

    >>> from tensordict import TensorDict
    >>> batch = TensorDict({"next": {"reward": torch.tensor([0.0, torch.inf])}}, [2])
    >>> keys = [("next", "reward")]
    >>> require_finite(batch, keys=keys, frames=10)  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    ...
    FloatingPointError: `reward` must be finite, got `inf` from sub environment 0 at frame 12; ...
    """
    for key in keys:
        values = batch.get(key, None)
        # One sum in place of a mask: it is finite only if every value is, and an overflow of
        # huge finite values is told apart below.
        if values is not None and not isfinite(values.sum()):
            _raise_if_not_finite(values, key, batch.ndim, frames)


def finite_keys(env: EnvBase) -> list[Key]:
    """The rewards and observations of `env` that are floating point."""
    observations = [
        key
        for key, spec in env.full_observation_spec.items(True, True)
        if spec.dtype is not None and spec.dtype.is_floating_point and key not in BOOKKEEPING_KEYS
    ]
    return [*map(_next, env.reward_keys), *map(_next, observations), *observations]


def _raise_if_not_finite(values: torch.Tensor, key: Key, batch_dims: int, frames: int) -> None:
    finite = values.isfinite().reshape(*values.shape[:batch_dims], -1).all(-1)
    # In the order of collection: time first, then sub environments.
    broken = (~finite).reshape(-1, finite.shape[-1]).T.nonzero()
    if not len(broken):
        return
    t, row = broken[0].tolist()
    count = finite.numel() // finite.shape[-1]
    name = (key,) if isinstance(key, str) else key[1:] if key[0] == "next" else key
    value = values.reshape(count, finite.shape[-1], -1)[row, t]
    raise FloatingPointError(
        f"`{name[0] if len(name) == 1 else name}` must be finite, got "
        f"`{value[~value.isfinite()][0].item()}` from sub environment {row} at frame "
        f"{frames + t * count + row + 1}; mend the simulator, or clean the value in a wrapper"
    )


def _next(key: Key) -> tuple[str, ...]:
    return ("next", key) if isinstance(key, str) else ("next", *key)
