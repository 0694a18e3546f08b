"""Evaluation of a team by VMAS alone: the same episodes for each library."""

from __future__ import annotations

from collections.abc import Callable

import torch
import vmas
from torch import Tensor
from vmas.simulator.environment import Environment

from contenders.teams.setting import STEPS, Setting

SEED = 50_000
#: Actions ``[episodes, agents, size]`` of observations ``[episodes, agents, features]``.
Policy = Callable[[Tensor], Tensor]


@torch.no_grad()
def play(policy: Policy, setting: Setting, episodes: int) -> float:
    """Mean return over episodes and agents. An episode ends by itself or after 100 steps."""
    # VMAS has one random stream for a process, that of training.
    stream = list(Environment.vmas_random_state)
    env = vmas.make_env(
        setting.task,
        num_envs=episodes,
        continuous_actions=not setting.discrete,
        clamp_actions=True,
        seed=SEED,
        **setting.scenario,
    )
    seen = torch.stack(env.reset(), 1)
    total, running = torch.zeros(seen.shape[:2]), torch.ones(episodes, 1)
    for _ in range(STEPS):
        action = policy(seen)
        if setting.discrete:
            action = action.unsqueeze(-1)
        observations, rewards, done, _ = env.step(list(action.unbind(1)))
        total += running * torch.stack(rewards, 1)
        running *= (~done).unsqueeze(-1)
        seen = torch.stack(observations, 1)
    Environment.vmas_random_state[:] = stream
    return total.mean().item()
