"""Policies and environments with which two collectors are compared, row for row."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import torch
from gymnasium import spaces
from tensordict.nn import TensorDictModuleBase
from torch import nn
from torchrl.collectors import Collector
from torchrl.data import OneHot
from torchrl.envs import EnvBase
from torchrl.envs.utils import ExplorationType, exploration_type

from torchrl_elegant.collectors import SyncCollector


class Actor(TensorDictModuleBase):
    """A linear policy for any of the environments here, with `act` for those who look for it."""

    writes = ("action",)

    def __init__(self, env: EnvBase, in_keys=("observation",)) -> None:
        super().__init__()
        self.in_keys, self.out_keys = [*in_keys], [*self.writes]
        spec = env.full_action_spec["action"]
        self.kinds = spec.shape[-1] if isinstance(spec, OneHot) else 0
        self.shape = spec.shape[env.batch_dims :]
        self.action_dtype = spec.dtype
        torch.manual_seed(0)
        size = sum(env.full_observation_spec[key].shape[-1] for key in in_keys)
        self.net = nn.Linear(size, max(1, self.shape.numel()), dtype=torch.float64)
        self.acted = 0

    def act(self, *observations):
        self.acted += 1
        return self._sample(torch.cat([x.double() for x in observations], -1))

    def _sample(self, observation):
        out = self.net(observation)
        if exploration_type() is ExplorationType.RANDOM:
            out = out + torch.randn_like(out)
        if self.kinds:
            return nn.functional.one_hot(out.argmax(-1), self.kinds).to(self.action_dtype)
        if not self.action_dtype.is_floating_point:
            return (out[..., 0] > 0).to(self.action_dtype)
        return out.tanh().to(self.action_dtype)

    def forward(self, tensordict):
        action = self._sample(torch.cat([tensordict[key].double() for key in self.in_keys], -1))
        return tensordict.set("action", action)


class Gaussian(Actor):
    """Writes more than its action."""

    writes = ("loc", "action", "action_log_prob")

    def act(self, *observations):
        self.acted += 1
        return self._all(torch.cat([x.double() for x in observations], -1))

    def _all(self, observation):
        loc = self.net(observation)
        noise = torch.randn_like(loc)
        action = (loc + noise).tanh().to(self.action_dtype)
        return loc, action, -0.5 * noise.square().sum(-1)

    def forward(self, tensordict):
        values = self._all(torch.cat([tensordict[key].double() for key in self.in_keys], -1))
        for key, value in zip(self.out_keys, values, strict=True):
            tensordict.set(key, value)
        return tensordict


class Timetable(gymnasium.Env):
    """Observes [instance, episode, step, all steps]; episodes of random length end in either way.

    The reward is a fraction that single precision rounds, so that the order of a sum shows.
    """

    observation_space = spaces.Box(-np.inf, np.inf, (4,), np.float64)
    action_space = spaces.Box(-1, 1, (2,), np.float32)

    def __init__(self, instance: int = 0, longest: int = 4) -> None:
        self.longest, self.now = longest, np.array([instance, 0, 0, 0], np.float64)

    def reset(self, *, seed: int | None = None, options: dict | None = None):
        super().reset(seed=seed)
        self.length = int(self.np_random.integers(1, self.longest + 1))
        self.ends = int(self.np_random.integers(3))
        self.now[1:3] += (1, -self.now[2])
        return self.now.copy(), {}

    def step(self, action: np.ndarray):
        self.now[2:] += 1
        over = self.now[2] >= self.length
        reward = float(np.sum(action)) / 3 + self.now[3] / 7
        terminated, truncated = over and self.ends != 1, over and self.ends != 0
        return self.now.copy(), reward, bool(terminated), bool(truncated), {}


class Coded(Timetable):
    """Discrete observations and actions."""

    observation_space = spaces.Discrete(5)
    action_space = spaces.Discrete(3)

    def reset(self, **kwargs: Any):
        super().reset(**kwargs)
        return int(self.now[2]), {}

    def step(self, action: int):
        assert type(action) is int
        _, _, *rest = super().step(np.zeros(2))
        # Rewards of minus zero among them.
        return min(4, int(self.now[2])), -float(action), *rest


class Nested(Timetable):
    """Observations in dicts, of several dtypes."""

    observation_space = spaces.Dict(
        arm=spaces.Dict(angle=spaces.Box(-np.inf, np.inf, (2,), np.float64)),
        room=spaces.Discrete(5),
        image=spaces.Box(0, 255, (2, 2, 1), np.uint8),
    )

    def _observe(self):
        return {
            "arm": {"angle": self.now[2:].copy()},
            "room": int(self.now[2]) % 5,
            "image": np.full((2, 2, 1), self.now[3], np.uint8),
        }

    def reset(self, **kwargs: Any):
        super().reset(**kwargs)
        return self._observe(), {}

    def step(self, action: np.ndarray):
        _, *rest = super().step(action)
        return self._observe(), *rest


def collected(cls: type[Collector], env: EnvBase, policy: Any = Actor, *, seed: int = 3, **kwargs):
    """All batches of a collector over a fresh environment, and the collector."""
    kwargs = {"frames_per_batch": 20, "total_frames": 100, **kwargs}
    collector = cls(env, policy and policy(env), **kwargs)
    if cls is SyncCollector:
        assert collector.is_lean
    torch.manual_seed(seed)
    return [batch.clone() for batch in collector], collector


def assert_identical(ours, theirs) -> None:
    """The same keys, shapes, dtypes, devices, names and values, to the last bit."""
    assert len(ours) == len(theirs) > 0
    for a, b in zip(ours, theirs, strict=True):
        assert set(a.keys(True, True)) == set(b.keys(True, True))
        for key in {(), *a.keys(True)} - {*a.keys(True, True)}:
            x, y = (a, b) if key == () else (a[key], b[key])
            assert (x.batch_size, x.names, x.device) == (y.batch_size, y.names, y.device), key
        for key in a.keys(True, True):
            x, y = a[key], b[key]
            assert (x.shape, x.dtype, x.device) == (y.shape, y.dtype, y.device), key
            assert torch.equal(x, y), (key, (x != y).nonzero()[:3], x, y)
            if x.is_floating_point():
                assert torch.equal(x.signbit(), y.signbit()), key
            assert x.is_contiguous(), key
            assert not x.is_inference(), key
            assert not x.requires_grad, key
