"""Batched environments that live in tensors, each with one thing that a rollout may get wrong."""

from __future__ import annotations

import torch
from tensordict import TensorDict, TensorDictBase
from torchrl.data import Bounded, Composite, Unbounded
from torchrl.envs import EnvBase


def flags(shape: tuple[int, ...], *names: str) -> dict[str, Bounded]:
    return {name: Bounded(0, 1, (*shape, 1), dtype=torch.bool) for name in names}


class Drift(EnvBase):
    """Points that actions push; row i ends when far away, or is cut after `length + i` steps.

    Where a row begins is drawn from a generator of its own: as many numbers for any mask.
    """

    def __init__(self, *batch: int, length: int = 7) -> None:
        super().__init__(device="cpu", batch_size=list(batch))
        self.length = length
        self.observation_spec = Composite(observation=Unbounded((*batch, 2)), shape=batch)
        self.action_spec = Bounded(-1.0, 1.0, (*batch, 2))
        self.reward_spec = Unbounded((*batch, 1))
        names = "done", "terminated", "truncated"
        self.full_done_spec = Composite(flags(batch, *names), shape=batch)
        self.lengths = length + torch.arange(self.batch_size.numel()).view(*batch, 1)
        self.rng = torch.Generator()
        self.place = torch.zeros(*batch, 2)
        self.age = torch.zeros(*batch, 1, dtype=torch.int64)
        self.masks: list[torch.Tensor] = []

    def _set_seed(self, seed: int | None) -> None:
        self.rng.manual_seed(seed)

    def _begin(self, mask: torch.Tensor) -> torch.Tensor:
        return torch.rand(self.place.shape, generator=self.rng)

    def _reset(self, tensordict: TensorDictBase | None = None, **kwargs) -> TensorDict:
        mask = torch.ones_like(self.age, dtype=torch.bool)
        if tensordict is not None and "_reset" in tensordict:
            mask = tensordict.get("_reset")
            self.masks.append(mask)
        self.place = torch.where(mask, self._begin(mask), self.place)
        self.age = torch.where(mask, 0, self.age)
        return self._told(torch.zeros_like(mask), torch.zeros_like(mask))

    def _step(self, tensordict: TensorDictBase) -> TensorDict:
        self.place = self.place + 0.3 * tensordict.get("action") + 0.02
        self.age = self.age + 1
        far = self.place.abs().amax(-1, keepdim=True) > 1.2
        out = self._told(far, self.age >= self.lengths)
        return out.set("reward", self.place.sum(-1, keepdim=True))

    def _told(self, terminated: torch.Tensor, truncated: torch.Tensor) -> TensorDict:
        values = {"done": terminated | truncated, "terminated": terminated, "truncated": truncated}
        return TensorDict({"observation": self.place, **values}, self.batch_size, device="cpu")


class Masked(Drift):
    """Begins where its row and its number of episodes say, so that the order of resets is free."""

    resets_by_mask = True

    def __init__(self, *batch: int, **kwargs) -> None:
        super().__init__(*batch, **kwargs)
        self.episode = torch.zeros_like(self.age)

    def _begin(self, mask: torch.Tensor) -> torch.Tensor:
        self.episode = self.episode + mask
        number = self.episode * 7 + torch.arange(self.age.numel()).view_as(self.age)
        return (number * 0.37 % 1).expand(self.place.shape)


class Terse(Drift):
    """Leaves out what TorchRL completes; rewards and flags come without their last dimension."""

    def _told(self, terminated: torch.Tensor, truncated: torch.Tensor) -> TensorDict:
        values = {"terminated": (terminated | truncated).squeeze(-1)}
        return TensorDict({"observation": self.place, **values}, self.batch_size, device="cpu")

    def __init__(self, *batch: int, **kwargs) -> None:
        super().__init__(*batch, **kwargs)
        self.full_done_spec = Composite(flags(batch, "done", "terminated"), shape=batch)

    def _step(self, tensordict: TensorDictBase) -> TensorDict:
        out = super()._step(tensordict)
        return out.set("reward", out.get("reward").squeeze(-1))


class Flat(Drift):
    """Gives its rewards without their last dimension, and all else as it should be."""

    def _step(self, tensordict: TensorDictBase) -> TensorDict:
        out = super()._step(tensordict)
        return out.set("reward", out.get("reward").squeeze(-1))


class Sloppy(Drift):
    """Says of rows that are not reset what is not so, as TorchRL allows."""

    def _reset(self, tensordict: TensorDictBase | None = None, **kwargs) -> TensorDict:
        out = super()._reset(tensordict, **kwargs)
        if tensordict is None or "_reset" not in tensordict:
            return out
        return out.set("observation", torch.where(self.masks[-1], self.place, 99.0))


class Team(Drift):
    """Three agents a row under nested keys; agents are done for themselves before the row is."""

    def __init__(self, *batch: int, root: bool = True, **kwargs) -> None:
        super().__init__(*batch, **kwargs)
        shape, self.root = (*batch, 3), root

        def nested(**specs) -> Composite:
            return Composite(agents=Composite(specs, shape=shape), shape=batch)

        self.observation_spec = nested(
            observation=Unbounded((*shape, 2)),
            info=Composite(age=Unbounded((*shape, 1), dtype=torch.int64), shape=shape),
        )
        self.action_spec = nested(action=Bounded(-1.0, 1.0, (*shape, 2)))
        self.reward_spec = nested(reward=Unbounded((*shape, 1)))
        done = nested(**flags(shape, "done", "terminated"))
        if root:
            done.update(flags(batch, "done", "terminated"))
        self.full_done_spec = done
        self.agents = torch.zeros(*shape, 2)

    def _reset(self, tensordict: TensorDictBase | None = None, **kwargs) -> TensorDict:
        mask = torch.ones_like(self.age, dtype=torch.bool)
        if self.root and tensordict is not None and "_reset" in tensordict:
            mask = tensordict.get("_reset")
        if not self.root and tensordict is not None and "agents" in tensordict:
            mask = tensordict.get(("agents", "_reset")).any(-2)
        begin = torch.rand(self.agents.shape, generator=self.rng)
        self.agents = torch.where(mask.unsqueeze(-1), begin, self.agents)
        self.age = torch.where(mask, 0, self.age)
        return self._told_agents(torch.zeros_like(self.agents[..., :1], dtype=torch.bool))

    def _told_agents(self, agents_done: torch.Tensor) -> TensorDict:
        done = {"done": agents_done, "terminated": agents_done.clone()}
        age = self.age.unsqueeze(-2).expand_as(agents_done)
        agents = {"observation": self.agents, "info": {"age": age}, **done}
        out = TensorDict({"agents": agents}, self.batch_size, device="cpu")
        out.get("agents").batch_size = (*self.batch_size, 3)
        out.get(("agents", "info")).batch_size = (*self.batch_size, 3)
        if self.root:
            over = agents_done.all(-2) | (self.age >= self.lengths)
            out.update({"done": over, "terminated": over.clone()})
        return out

    def _step(self, tensordict: TensorDictBase) -> TensorDict:
        self.agents = self.agents + 0.3 * tensordict.get(("agents", "action"))
        self.age = self.age + 1
        far = self.agents.abs().amax(-1, keepdim=True) > 1.2
        if not self.root:
            far = far | (self.age >= self.lengths).unsqueeze(-2)
        out = self._told_agents(far)
        return out.set(("agents", "reward"), self.agents.sum(-1, keepdim=True))
