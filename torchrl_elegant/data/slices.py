"""Slices of episodes, cut from consecutive batches."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from tensordict import NestedKey, TensorDict, TensorDictBase, unravel_key
from torch import Tensor

from torchrl_elegant.functional import JUNK, junk_keys, path_of

Path = tuple[str, ...]


class Carry:
    """Joins each batch ``[*envs, time]`` to the last rows of those before it.

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
        """Put the kept rows in front of ``batch``, entry by entry, ``[E, t, ...]``."""
        *envs, time = batch.shape
        count, rows = math.prod(envs), {}
        for key, value in batch.items(True, True):
            path = path_of(key)
            new = value.reshape(count, time, *value.shape[batch.ndim :])
            rows[path] = torch.cat([self._rows[path], new] if self._rows else [new], 1)
        return rows

    def keep(self, rows: dict[Path, Tensor], last: int) -> None:
        """Keep the ``last`` rows of each environment, or all if there are fewer."""
        self._rows = {
            path: value[:, max(0, value.shape[1] - last) :] for path, value in rows.items()
        }


MASK = "mask"


class SliceCutter:
    """Cuts each episode into slices of ``horizon`` steps from its start on.

    Each batch ``[*envs, time]`` of the same environments goes on where the last one ended. A slice
    is given out once its last step is there. The last slice of an episode may be shorter: it is
    padded with its last step, and ``mask`` tells which steps are real. No slice holds steps of two
    episodes, no step is in two slices, and only steps of unfinished slices are held back. Steps
    that are flagged as junk are in none.

    The number of slices depends on the flags, so each call waits for the device once.

    Args:
        horizon: K.
        keys: entries of a step, ``("next", "reward")`` and so on.
        done_key: flag under ``next`` that ends an episode; slices hold it too.

    >>> after = {"done": torch.tensor([[False], [False], [True], [False], [False]])}
    >>> steps = TensorDict({"x": torch.arange(5), "next": after}, [5])
    >>> slices = SliceCutter(2, keys=["x"])(steps)
    >>> slices["x"].tolist(), slices["mask"].tolist()
    ([[0, 1], [2, 2], [3, 4]], [[True, True], [True, False], [True, True]])
    """

    def __init__(
        self, horizon: int, *, keys: Sequence[NestedKey], done_key: NestedKey = "done"
    ) -> None:
        if horizon < 1:
            raise ValueError(f"`horizon` must be at least 1, got `{horizon}`")
        self._done = unravel_key(("next", done_key))
        self.horizon, self._keys = horizon, [*keys, self._done]
        if MASK in self._keys:
            raise ValueError(f"`keys` must not hold `{MASK}`, which tells steps from padding")
        self._carry, self._held = Carry(), 0
        self._place: Tensor | None = None  # step in its episode of the first held row, [E]

    def __call__(self, batch: TensorDictBase) -> TensorDict:
        """Give out the slices ``[N, K]`` that are complete, in order for each environment."""
        rows = self._carry.join(batch.select(*self._keys, *junk_keys(batch)))
        done = rows[self._done].squeeze(-1)  # [E, t]
        length = done.shape[1]
        at = torch.arange(length, device=done.device)
        place, size = self._places(done), (_ends(done) - at + 1).clamp(max=self.horizon)
        # Slices that ended among the held rows were given out before.
        whole = (at + size <= length) & (at + size > self._held)
        self._held = min(length, self.horizon - 1)
        self._carry.keep(rows, self._held)
        junk = rows.pop((JUNK,), None)  # a step that is an episode of its own
        if junk is not None:
            whole = whole & ~junk.squeeze(-1)
        env, start = ((place[:, :length] % self.horizon == 0) & whole).nonzero(as_tuple=True)
        self._place = place[:, length - self._held]
        return _cut(rows, env, start, size[env, start], self.horizon)

    def _places(self, done: Tensor) -> Tensor:
        """Count the steps of its episode before each row and the next one, ``[E, t + 1]``."""
        if self._place is None:
            self._place = done.new_zeros(len(done), dtype=torch.long)
        at = torch.arange(done.shape[1] + 1, device=done.device)
        before = -self._place.unsqueeze(1)
        first = torch.cat([before, torch.where(done, at[1:], before)], 1)
        return at - first.cummax(1).values


def _ends(done: Tensor) -> Tensor:
    """Row at which each row's episode ends; far beyond the batch if it goes on."""
    length = done.shape[1]
    at = torch.arange(length, device=done.device).expand_as(done)
    never = at.new_full((), 1 << 40)
    return torch.where(done, at, never).flip(1).cummin(1).values.flip(1)


def _cut(
    rows: dict[Path, Tensor], env: Tensor, start: Tensor, size: Tensor, horizon: int
) -> TensorDict:
    steps = torch.arange(horizon, device=env.device)
    at = start.unsqueeze(1) + steps.minimum(size.unsqueeze(1) - 1)  # [N, K]
    slices = TensorDict(batch_size=at.shape)
    for path, value in rows.items():
        slices.set(path, value[env.unsqueeze(1), at])
    return slices.set(MASK, steps < size.unsqueeze(1))
