"""Sequences of steps for networks with a memory, cut from consecutive batches."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from tensordict import NestedKey, TensorDict, TensorDictBase, unravel_key
from torch import Tensor

from torchrl_elegant.data.slices import MASK, Carry, Path
from torchrl_elegant.functional import JUNK, path_of


class SequenceFold:
    """Cuts each environment's stream of steps into rows of ``burn_in + length`` steps.

    Each batch ``[*envs, time]`` goes on where the last one ended. Rows follow one another every
    ``length`` steps: each step is among the last ``length`` of exactly one row, behind ``burn_in``
    steps that only warm up the state (Kapturowski et al. 2019, "Recurrent experience replay in
    distributed reinforcement learning", section 3). Of the states in ``state_keys`` a row keeps the
    first, which takes a ``length``-th of the memory.

    A row may hold the end of one episode and the beginning of the next. Its own flags tell where,
    and the state is zero there: no state crosses an episode. So rows need no padding, each is full
    of steps to learn from, and their number never depends on values: nothing waits for a device.
    Where the environment flags junk, ``mask`` tells the steps that are none.

    Args:
        length: steps of a row that are learned from.
        burn_in: steps before them.
        state_keys: entries of which only the first step's is kept.

    >>> fold = SequenceFold(length=2, burn_in=1, state_keys=["state"])
    >>> steps = TensorDict({"x": torch.arange(6), "state": torch.arange(6)}, [6])
    >>> rows = fold(steps)
    >>> rows["x"].tolist(), rows["state"].tolist(), fold.held
    ([[0, 1, 2], [2, 3, 4]], [0, 2], 2)
    """

    def __init__(
        self, *, length: int, burn_in: int = 0, state_keys: Sequence[NestedKey] = ()
    ) -> None:
        if length < 1:
            raise ValueError(f"`length` must be at least 1, got `{length}`")
        if burn_in < 0:
            raise ValueError(f"`burn_in` must be 0 or more, got `{burn_in}`")
        self.length, self.burn_in = length, burn_in
        self._states = {path_of(unravel_key(key)) for key in state_keys}
        self.restart()

    def restart(self) -> None:
        """Drop the steps that wait: those that come next follow no others."""
        self._carry, self._held = Carry(), 0

    @property
    def held(self) -> int:
        """Steps of each environment that wait for later ones."""
        return self._held

    def __call__(self, batch: TensorDictBase) -> TensorDict:
        """Return the rows ``[N]`` that are complete with ``batch``: entries ``[N, steps, ...]``."""
        rows, size = self._carry.join(batch), self.burn_in + self.length
        envs, time = next(iter(rows.values())).shape[:2]
        count = max(0, (time - size) // self.length + 1)
        self._held = time - count * self.length
        self._carry.keep(rows, self._held)
        _mask_junk(rows)
        starts = torch.arange(count) * self.length
        out = TensorDict(batch_size=[envs * count])
        for path, value in rows.items():
            place = starts.to(value.device)
            if path not in self._states:
                place = place.unsqueeze(1) + torch.arange(size, device=value.device)
            out.set(path, value[:, place].flatten(0, 1))
        return out


def cut_rollout(
    rollout: TensorDictBase, length: int, *, state_keys: Sequence[NestedKey] = ()
) -> TensorDict:
    """Cuts a rollout ``[*envs, T]`` into rows as ``SequenceFold`` does, without a burn-in.

    Where ``length`` does not divide T, the last rows are padded with their last step, and ``mask``
    tells which steps are real. It leaves out junk, too.

    >>> steps = TensorDict({"x": torch.arange(5), "state": torch.arange(5)}, [5])
    >>> rows = cut_rollout(steps, 3, state_keys=["state"])
    >>> rows["x"].tolist(), rows["state"].tolist(), rows["mask"].tolist()[1]
    ([[0, 1, 2], [3, 4, 4]], [0, 3], [True, True, False])
    """
    states, time = {path_of(unravel_key(key)) for key in state_keys}, rollout.shape[-1]
    starts = torch.arange(0, time, min(length, time), device=rollout.device)
    place = starts.unsqueeze(1) + torch.arange(min(length, time), device=rollout.device)
    rows = Carry().join(rollout)
    _mask_junk(rows)
    envs = next(iter(rows.values())).shape[0]
    out = TensorDict(batch_size=[envs * len(starts)])
    for path, value in rows.items():
        at = starts if path in states else place.clamp(max=time - 1)
        out.set(path, value[:, at].flatten(0, 1))
    if time % place.shape[1]:
        real = (place < time).repeat(envs, 1)
        out.set(MASK, real & out.get(MASK) if (MASK,) in rows else real)
    return out


def _mask_junk(rows: dict[Path, Tensor]) -> None:
    """Puts the mask of real steps, ``[E, t]``, in the place of the flags of junk."""
    junk = rows.pop((JUNK,), None)
    if junk is not None:
        rows[MASK,] = ~junk.squeeze(-1)
