"""Environments that write again into what they have returned."""

from __future__ import annotations

import warnings

import pytest
import torch
from tensordict import TensorDict, TensorDictBase
from torchrl.data import Bounded, Composite, Unbounded
from torchrl.envs import EnvBase

from torchrl_elegant.collectors import SyncCollector
from torchrl_elegant.collectors.rollout.own_tensors import WATCHED_STEPS


class Buffers(EnvBase):
    """Counts its steps in `buffers` buffers that take turns; 0 gives new memory each time."""

    def __init__(self, buffers: int) -> None:
        super().__init__(device="cpu", batch_size=[2])
        self.observation_spec = Composite(observation=Unbounded((2, 1)), shape=(2,))
        self.action_spec = Bounded(-1.0, 1.0, (2, 1))
        self.reward_spec = Unbounded((2, 1))
        self.turns = [torch.zeros(2, 2, 1) for _ in range(buffers)]
        self.count = 0

    def _set_seed(self, seed: int | None) -> None: ...

    def _out(self) -> TensorDict:
        new = self.turns[self.count % len(self.turns)] if self.turns else torch.zeros(2, 2, 1)
        new.fill_(self.count)
        never = torch.zeros(2, 1, dtype=torch.bool)
        return TensorDict({"observation": new[0], "reward": new[1], "done": never}, [2])

    def _reset(self, tensordict: TensorDictBase | None = None, **kwargs: object) -> TensorDict:
        self.count = 0
        return self._out().exclude("reward")

    def _step(self, tensordict: TensorDictBase) -> TensorDict:
        self.count += 1
        return self._out()


class Unusual(Buffers):
    """One that no direct rollout takes: it has a `step` of its own."""

    def step(self, tensordict: TensorDictBase) -> TensorDictBase:
        return super().step(tensordict)


@pytest.mark.parametrize("kind", [Buffers, Unusual])
@pytest.mark.parametrize("buffers", [0, 1, 3])
@pytest.mark.parametrize("frames", [2, 24])
def test_every_step_keeps_its_own_numbers(kind: type[Buffers], buffers: int, frames: int) -> None:
    env = kind(buffers)
    collector = SyncCollector(env, None, frames_per_batch=frames, total_frames=48)
    assert collector.is_lean == (kind is Buffers)
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        batches = torch.cat([batch.clone() for batch in collector], -1)
    told = [str(one.message) for one in told if "writes again" in str(one.message)]
    assert len(told) == (buffers > 0)
    assert all(f"`{kind.__name__}`" in line and "'reward'" in line for line in told)
    steps = torch.arange(24.0).expand(2, 24)
    assert torch.equal(batches["observation"][..., 0], steps)
    assert torch.equal(batches["next", "observation"][..., 0], steps + 1)
    assert torch.equal(batches["next", "reward"][..., 0], steps + 1)
    # Who needs no copies is left alone after the first steps.
    assert ("_step" in vars(env)) == (buffers > 0)
    assert WATCHED_STEPS < 24
