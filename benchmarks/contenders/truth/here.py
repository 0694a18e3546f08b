"""Scripted tasks of Gymnasium and VMAS, which are installed beside this package."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import torch

from contenders.truth.schedule import LIMIT, ROWS, played
from torchrl_elegant.collectors import SyncCollector
from torchrl_elegant.envs import make_env


class ScriptedGym(gymnasium.Env):
    """The scripted task."""

    observation_space = gymnasium.spaces.Box(-1e3, 1e3, (2,), np.float32)
    action_space = gymnasium.spaces.Box(-1.0, 1.0, (1,), np.float32)

    def __init__(self, render_mode: str | None = None) -> None:
        self.render_mode = render_mode

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        """Begins an episode."""
        super().reset(seed=seed)
        self._seen = np.array([self.np_random.random(), 0.0], np.float32)
        return self._seen.copy(), {}

    def step(self, action: Any) -> Any:
        """Counts, and falls if told to."""
        self._seen[1] += 1
        fell = bool(action[0] > 0.5)
        reward = 1 + float(self._seen[1]) + 10.0 * fell
        return self._seen.copy(), reward, fell, bool(self._seen[1] >= LIMIT), {}


gymnasium.register("Scripted-v0", ScriptedGym)


def gymnasium_rows() -> dict[str, Any]:
    """Ours and TorchRL's, over the same task."""
    from torchrl.envs import GymEnv

    # Gymnasium's worker processes import the module before the colon, which registers the id.
    name = f"{__name__}:Scripted-v0"
    return {
        "ours": played(make_env(name, ROWS, seed=0), collector=SyncCollector),
        "torchrl": played(GymEnv(name, num_envs=ROWS)),
    }


def vmas_rows() -> dict[str, Any]:
    """Ours and TorchRL's, over the same scenario."""
    from torchrl.envs import VmasEnv
    from vmas.simulator.core import Agent, World
    from vmas.simulator.scenario import BaseScenario

    class Scenario(BaseScenario):
        def make_world(self, batch_dim: int, device: torch.device, **kwargs: Any) -> World:
            world = World(batch_dim, device)
            world.add_agent(Agent("walker"))
            self.seen = torch.zeros(batch_dim, 2, device=device)
            return world

        def reset_world_at(self, env_index: int | None = None) -> None:
            rows = slice(None) if env_index is None else env_index
            self.seen = self.seen.clone()
            self.seen[rows, 0] = torch.rand_like(self.seen[rows, 0])
            self.seen[rows, 1] = 0.0

        def pre_step(self) -> None:
            self.seen = self.seen + torch.tensor([0.0, 1.0], device=self.seen.device)

        def fell(self) -> torch.Tensor:
            return self.world.agents[0].action.u[:, 0] > 0.5

        def observation(self, agent: Agent) -> torch.Tensor:
            return self.seen

        def reward(self, agent: Agent) -> torch.Tensor:
            return 1 + self.seen[:, 1] + 10.0 * self.fell()

        def done(self) -> torch.Tensor:
            if self.world.agents[0].action.u is None:
                return torch.zeros(self.world.batch_dim, dtype=torch.bool)
            return self.fell() & (self.seen[:, 1] > 0)

    from torchrl_elegant.envs import VmasTeams

    ours = VmasTeams(Scenario(), num_envs=ROWS, max_steps=LIMIT, seed=0)
    theirs = VmasEnv(Scenario(), num_envs=ROWS, max_steps=LIMIT, seed=0)
    (group,) = ours.groups
    (other,) = theirs.group_map
    return {
        "ours": played(ours, group=group, collector=SyncCollector),
        "torchrl": played(theirs, group=other),
    }
