"""The store of the best slices of late."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from tensordict import NestedKey, TensorDict, TensorDictBase, unravel_key
from torch import Tensor

from torchrl_elegant.data.slices import MASK, SliceCutter
from torchrl_elegant.functional import Steps, steps_of

# Beside what the user keeps, whatever that is called.
_SCORE, _BORN = "_score", "_born"


class BestSlices:
    r"""Keeps the slices of K steps with the highest return, for as long as they are new.

    Every batch that a collector brings is cut into slices (``SliceCutter``) and scored by

    .. math:: \sum_k \gamma^{k-1} m_k r_k \Big/ \sum_k \gamma^{k-1} m_k

    where the steps after a termination count with a reward of 0 and those after a truncation not at
    all: whole slices are ranked by their K-step return. Those that a time limit cut short come
    after all of them, by what they brought a step: an average of few steps wins too easily. Kept
    are those that are less than ``max_age`` frames old; of equals the newest stands in front.

    Args:
        horizon: K.
        max_age: a slice is dropped once so many frames have come after the batch that ended it.
        capacity: slices kept at most, the best; None for all that are young enough.
        best: the part of what is kept that is drawn from, the best of it.
        gamma: discount factor.
        keys: entries of a step that are kept beside its reward and flags; for a policy's what it
            reads, its action and its log-probability.
        reward_key, done_key, terminated_key: where ``next`` has them.
        device: where slices are kept; that of the first batch by default.
        seed: of the draws, which leave PyTorch's own generator alone.

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
        self._make_cutter()  # refuses what no stream could be cut by
        self._device, self._generator = device, torch.Generator().manual_seed(seed)
        self._cutters: dict[int, SliceCutter] = {}
        self._kept: TensorDict | None = None  # [slices, K], the best in front

    def __len__(self) -> int:
        return 0 if self._kept is None else len(self._kept)

    def extend(self, batch: TensorDictBase, *, stream: int = 0) -> TensorDict:
        """Take in the next steps ``[*envs, time]`` of the environments of ``stream``; the slices
        that they complete are given back, kept or not."""
        if stream not in self._cutters:
            self._cutters[stream] = self._make_cutter()
        new = self._cutters[stream](batch.detach()).to(self._device)
        self.frames += batch.shape.numel()  # without rows 0, where a TensorDict says 1
        born = torch.full((len(new), 1), self.frames, device=new.device).expand(new.shape)
        self._keep(new.copy().set(_SCORE, self._scores(new)).set(_BORN, born))
        return new

    def sample(self, count: int) -> TensorDict:
        """``count`` slices ``[count, K]``, drawn evenly from the best with replacement."""
        if self._kept is None or not len(self._kept):
            raise RuntimeError("the store must hold a slice to draw from, got none yet")
        drawn = torch.randint(
            math.ceil(self.best * len(self._kept)), (count,), generator=self._generator
        )
        return self._kept[drawn.to(self._kept.device)].exclude(_SCORE, _BORN)

    def reseed(self, seed: int) -> None:
        """Draw from here on as a store made with this seed would."""
        self._generator.manual_seed(seed)

    def state_dict(self) -> dict[str, Any]:
        """What is kept; slices under way are not part of it, as environments start anew."""
        kept = {} if self._kept is None else self._kept.to_dict()
        return {"kept": kept, "frames": self.frames, "generator": self._generator.get_state()}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Take over another store's slices; those of another length, or that lack one of ``keys``,
        are refused."""
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

    def _make_cutter(self) -> SliceCutter:
        return SliceCutter(self.horizon, keys=self._keys, done_key=self._done_key)

    def _scores(self, slices: TensorDict) -> Tensor:
        """The same for each step of a slice, ``[N, K]``."""
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
        """Which slices stay, by the frames at which they ended."""
        young = born > self.frames - self.max_age
        # Many environments collect more than a slice's length ages by before the next one ends.
        return young | (born == born.max()) if len(born) else young

    def _keep(self, new: TensorDict) -> None:
        """The best of the old and the new that are young enough, in their order."""
        # The newest in front, and of equals it stays there.
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
