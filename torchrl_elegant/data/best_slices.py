"""Store of the best recent slices of episodes."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from tensordict import NestedKey, TensorDict, TensorDictBase, unravel_key
from torch import Tensor

from torchrl_elegant.data.slices import MASK, SliceCutter
from torchrl_elegant.functional import Steps, steps_of

# Names that no entry of the user has.
_SCORE, _BORN = "_score", "_born"


class BestSlices:
    r"""Keeps the slices of K steps with the highest return, as long as they are recent.

    Every batch that a collector brings is cut into slices (``SliceCutter``) and scored by

    .. math:: \sum_k \gamma^{k-1} m_k r_k \Big/ \sum_k \gamma^{k-1} m_k

    where steps after a termination count with a reward of 0 and steps after a truncation do not
    count. So whole slices are ranked by their K-step return. Slices that a time limit cut short
    come after all whole ones, ranked by their average, because an average of few steps wins too
    easily. A slice is kept while it is less than ``max_age`` frames old; of equals the newest comes
    first.

    Args:
        horizon: K.
        max_age: frames after which a slice is dropped, counted from the batch that ended it.
        capacity: number of slices kept, the best ones; None for all that are recent enough.
        best: fraction of the kept slices that ``sample`` draws from, the best ones.
        gamma: discount factor.
        keys: entries of a step that are kept beside its reward and flags, for example the
            observations, the action and its log-probability.
        reward_key, done_key, terminated_key: entries under ``next``.
        device: device of the kept slices; that of the batches by default.
        seed: seed of the draws, which do not touch PyTorch's own generator.

    >>> done = torch.tensor([[False], [True], [False], [True]])
    >>> reward = torch.tensor([[1.0], [1.0], [2.0], [2.0]])
    >>> after = {"reward": reward, "done": done, "terminated": torch.zeros_like(done)}
    >>> store = BestSlices(horizon=2, best=0.5, max_age=100, keys=["x"])
    >>> _ = store.extend(TensorDict({"x": torch.arange(4), "next": after}, [4]))
    >>> store.sample(1)["x"].tolist()
    [[2, 3]]
    """

    def __init__(
        self,
        *,
        horizon: int,
        max_age: int,
        keys: Sequence[NestedKey],
        capacity: int | None = None,
        best: float = 1.0,
        gamma: float = 0.99,
        reward_key: NestedKey = "reward",
        done_key: NestedKey = "done",
        terminated_key: NestedKey = "terminated",
        device: torch.device | str | None = None,
        seed: int = 0,
    ) -> None:
        for name, value in (("horizon", horizon), ("capacity", capacity), ("max_age", max_age)):
            if value is not None and value < 1:
                raise ValueError(f"`{name}` must be at least 1, got `{value}`")
        if not 0.0 < best <= 1.0:
            raise ValueError(f"`best` must lie in (0, 1], got `{best}`")
        if not 0.0 <= gamma <= 1.0:
            raise ValueError(f"`gamma` must lie in [0, 1], got `{gamma}`")
        self.horizon, self.max_age, self.gamma = horizon, max_age, gamma
        self.capacity, self.best = capacity, best
        self.frames = 0
        self._after = [unravel_key(("next", key)) for key in (reward_key, done_key, terminated_key)]
        self._keys, self._done_key = [*keys, *self._after], done_key
        self._make_cutter()  # refuses wrong arguments now, not at the first batch
        self._device, self._generator = device, torch.Generator().manual_seed(seed)
        self._cutters: dict[int, SliceCutter] = {}
        self._kept: TensorDict | None = None  # [slices, K], the best in front

    def __len__(self) -> int:
        return 0 if self._kept is None else len(self._kept)

    def extend(self, batch: TensorDictBase, *, stream: int = 0) -> TensorDict:
        """Take in the next steps ``[*envs, time]`` of the environments of ``stream``; return the
        slices that they complete, kept or not."""
        if stream not in self._cutters:
            self._cutters[stream] = self._make_cutter()
        new = self._cutters[stream](batch.detach()).to(self._device)
        self.frames += batch.shape.numel()  # 0 for no rows, where a TensorDict says 1
        born = torch.full((len(new), 1), self.frames, device=new.device).expand(new.shape)
        self._keep(new.copy().set(_SCORE, self._scores(new)).set(_BORN, born))
        return new

    def sample(self, count: int) -> TensorDict:
        """Draw ``count`` slices ``[count, K]`` evenly from the best, with replacement."""
        if self._kept is None or not len(self._kept):
            raise RuntimeError("the store must hold a slice to draw from, got none yet")
        drawn = torch.randint(
            math.ceil(self.best * len(self._kept)), (count,), generator=self._generator
        )
        return self._kept[drawn.to(self._kept.device)].exclude(_SCORE, _BORN)

    def reseed(self, seed: int) -> None:
        """Draw from now on as a store with this seed would."""
        self._generator.manual_seed(seed)

    def state_dict(self) -> dict[str, Any]:
        """Kept slices; unfinished ones are left out, as environments start anew."""
        kept = {} if self._kept is None else self._kept.to_dict()
        return {"kept": kept, "frames": self.frames, "generator": self._generator.get_state()}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Take over another store's slices, which must have the same length and hold ``keys``."""
        self._kept = self._fitting(state_dict["kept"]) if state_dict["kept"] else None
        self.frames = state_dict["frames"]
        self._generator.set_state(state_dict["generator"])
        self._cutters.clear()

    def _fitting(self, kept: Mapping[str, Any]) -> TensorDict:
        slices = TensorDict(kept, kept[_SCORE].shape[:2])
        if slices.shape[1] != self.horizon:
            raise ValueError(
                f"`horizon` must be the {slices.shape[1]} steps of the stored slices, got "
                f"`{self.horizon}`"
            )
        for key in self._keys:
            if slices.get(key, None) is None:
                raise ValueError(f"`keys` must be among those of the stored slices, got `{key}`")
        own = slices.select(*self._keys, MASK, _SCORE, _BORN)
        return own.to(self._device or own[_SCORE].device)[: self.capacity]

    def restart(self) -> None:
        """Drop unfinished slices: the steps that come next begin new episodes."""
        self._cutters.clear()

    def _make_cutter(self) -> SliceCutter:
        return SliceCutter(self.horizon, keys=self._keys, done_key=self._done_key)

    def _scores(self, slices: TensorDict) -> Tensor:
        """Score of each slice, repeated for each of its steps, ``[N, K]``."""
        reward = slices.get(self._after[0]).squeeze(-1)
        real, rewarded = self._steps(slices)
        steps = torch.arange(self.horizon, device=reward.device, dtype=reward.dtype)
        weight = rewarded * self.gamma**steps
        score = (weight * reward * real).sum(1) / weight.sum(1)
        return score.unsqueeze(1).expand(slices.shape)

    def _steps(self, slices: TensorDict) -> Steps:
        done, terminated = (slices.get(key).squeeze(-1) for key in self._after[1:])
        return steps_of(done, terminated, slices[MASK])

    def _young(self, born: Tensor) -> Tensor:
        """Tell which slices stay, from the frames at which they ended."""
        young = born > self.frames - self.max_age
        # With many environments one batch may be older than ``max_age`` before the next ends.
        return young | (born == born.max()) if len(born) else young

    def _keep(self, new: TensorDict) -> None:
        """Keep the best of the old and new slices that are recent enough, in order."""
        # The newest come first; stable sorting keeps them first among equals.
        every = new[torch.arange(len(new) - 1, -1, -1, device=new.device)]
        if self._kept is not None:
            every = torch.cat([every, self._kept])
        young = self._young(every[_BORN][:, 0])
        if not len(new) and bool(young.all()):
            return
        every = every[young]
        order = every[_SCORE][:, 0].argsort(descending=True, stable=True)
        cut_short = ~self._steps(every).rewarded.all(1)
        order = order[cut_short[order].argsort(stable=True)]
        self._kept = every[order[: self.capacity]]
