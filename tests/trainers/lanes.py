"""Batched environments in tensors: factories of one batch, nested keys, counts of what is made."""

from __future__ import annotations

from typing import ClassVar

import torch
from tensordict import TensorDict
from torchrl.data import Binary, Bounded, Composite, Unbounded
from torchrl.envs import EnvBase


class Lanes(EnvBase):
    """A point on each lane; the reward is the action times the sign of where the point is.

    Episodes are cut after ``steps`` steps. With ``nested`` all entries stand below ``agent``.
    """

    batch_locked = True
    made: ClassVar[int] = 0

    def __init__(self, *, num_envs=4, steps=10, nested=False, device="cpu", seed=0):
        super().__init__(batch_size=[num_envs], device=device)
        type(self).made += 1
        self.steps, self.nested = steps, nested
        self.generator = torch.Generator(self.device).manual_seed(seed)
        rows = (num_envs,)
        flag = Binary(1, dtype=torch.bool, shape=(*rows, 1), device=device)
        seen = {
            "observation": Unbounded((*rows, 2), device=device),
            "hint": Unbounded((*rows, 1), device=device),
        }
        action = Bounded(-1.0, 1.0, (*rows, 1), device=device)
        done = {name: flag.clone() for name in ("done", "terminated", "truncated")}
        self.observation_spec = self._below(seen)
        self.action_spec = self._below({"action": action})
        self.reward_spec = self._below({"reward": Unbounded((*rows, 1), device=device)})
        self.done_spec = self._below(done)

    def _below(self, entries):
        shape = self.batch_size
        inner = Composite(entries, shape=shape, device=self.device)
        return Composite(agent=inner, shape=shape, device=self.device) if self.nested else inner

    def _given(self, entries):
        inner = TensorDict(entries, self.batch_size, device=self.device)
        return (
            TensorDict({"agent": inner}, self.batch_size, device=self.device)
            if self.nested
            else inner
        )

    def _draw(self):
        return torch.randn(*self.batch_size, 2, generator=self.generator, device=self.device)

    def _reset(self, tensordict=None, **kwargs):
        mask = None if tensordict is None else tensordict.get(self._key("_reset"), None)
        drawn, zero = self._draw(), torch.zeros(*self.batch_size, 1, device=self.device)
        if mask is None:
            self.point, self.time = drawn, zero
        else:
            self.point = torch.where(mask, drawn, self.point)
            self.time = torch.where(mask, zero, self.time)
        no = torch.zeros(*self.batch_size, 1, dtype=torch.bool, device=self.device)
        return self._given({**self._seen(), "done": no, "terminated": no, "truncated": no})

    def _step(self, tensordict):
        action = tensordict.get(self._key("action"))
        reward = action * self.point[..., :1].sign()
        self.point, self.time = self._draw(), self.time + 1
        cut = self.time >= self.steps
        no = torch.zeros_like(cut)
        return self._given(
            {**self._seen(), "reward": reward, "done": cut, "terminated": no, "truncated": cut}
        )

    def _seen(self):
        return {"observation": self.point, "hint": self.point[..., :1].sign()}

    def _key(self, name):
        return ("agent", name) if self.nested else name

    def _set_seed(self, seed):
        self.generator.manual_seed(seed)


def lanes(num_envs=4, **options):
    """A factory that makes as many as it is told."""
    return Lanes(num_envs=num_envs, **options)


def six_lanes():
    """A factory of one fixed batch."""
    return Lanes(num_envs=6)


def nested_lanes(num_envs=4, **options):
    """The same with every entry below ``agent``."""
    return Lanes(num_envs=num_envs, nested=True, **options)
