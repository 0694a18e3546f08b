"""An environment that numbers everything it does, for counting rows after the fact."""

from __future__ import annotations

import torch
from tensordict import TensorDict, TensorDictBase
from tensordict.nn import TensorDictModule
from torch import nn
from torchrl.data import Bounded, Composite, Unbounded
from torchrl.envs import EnvBase

RANDOM_BELOW = 1.0  # random actions lie in [0, 1), the policy's are whole numbers above


class NumberedEnv(EnvBase):
    """`envs` environments; an observation is (tag, env, episode, step, seed, threads).

    Environment i ends its episodes after `length + i` steps, and pays 1 a step.
    """

    def __init__(self, tag: int, envs: int = 2, length: int = 5, fail_at: int | None = None):
        super().__init__(device="cpu", batch_size=[envs])
        self.tag, self.length, self.fail_at, self.seed_given = tag, length, fail_at, 0
        shape = (envs, 1)
        self.observation_spec = Composite(
            observation=Unbounded((envs, 6), dtype=torch.float64), shape=[envs]
        )
        self.action_spec = Bounded(0.0, 1.0, shape, dtype=torch.float32)
        self.reward_spec = Unbounded(shape, dtype=torch.float32)
        self.full_done_spec = Composite(
            {name: Bounded(0, 1, shape, dtype=torch.bool) for name in ("done", "terminated")},
            shape=[envs],
        )
        self.episode = torch.zeros(envs, dtype=torch.float64)
        self.step_number = torch.zeros(envs, dtype=torch.float64)
        self.calls = 0

    def _set_seed(self, seed: int | None) -> None:
        self.seed_given = seed

    def _observe(self) -> torch.Tensor:
        envs = self.batch_size[0]
        columns = [self.tag, torch.arange(envs), self.episode, self.step_number]
        columns += [self.seed_given, torch.get_num_threads()]
        full = [torch.as_tensor(column).double().expand(envs) for column in columns]
        return torch.stack(full, -1)

    def _reset(self, tensordict: TensorDictBase | None = None, **kwargs) -> TensorDict:
        chosen = torch.ones(self.batch_size, dtype=torch.bool)
        if tensordict is not None and "_reset" in tensordict:
            chosen = tensordict["_reset"].reshape(self.batch_size)
        self.episode[chosen] += 1
        self.step_number[chosen] = 0
        done = torch.zeros(*self.batch_size, 1, dtype=torch.bool)
        return TensorDict(
            {"observation": self._observe(), "done": done, "terminated": done.clone()},
            self.batch_size,
        )

    def _step(self, tensordict: TensorDictBase) -> TensorDict:
        self.calls += 1
        if self.fail_at is not None and self.calls >= self.fail_at:
            raise ArithmeticError(f"simulator {self.tag} fell over")
        self.step_number += 1
        lengths = self.length + torch.arange(self.batch_size[0])
        done = (self.step_number >= lengths).unsqueeze(-1)
        return TensorDict(
            {
                "observation": self._observe(),
                "reward": torch.ones(*self.batch_size, 1),
                "done": done,
                "terminated": done.clone(),
            },
            self.batch_size,
        )


class Versioned(nn.Module):
    """Acts with its version, and says whether parameter and buffer are of the same one."""

    def __init__(self, size: int = 50_000) -> None:
        super().__init__()
        self.parameter = nn.Parameter(torch.full((size,), 2.0))
        self.register_buffer("opposite", torch.full((size,), -2.0))

    def set_version(self, version: float) -> None:
        with torch.no_grad():
            self.parameter.fill_(version)
            self.opposite.fill_(-version)

    def forward(self, observation: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        shape = (*observation.shape[:-1], 1)
        torn = (self.parameter + self.opposite).abs().max()
        return self.parameter[0].expand(shape), torn.expand(shape), torch.randn(shape)


def versioned_policy() -> TensorDictModule:
    return TensorDictModule(
        Versioned(), in_keys=["observation"], out_keys=["action", "torn", "noise"]
    )
