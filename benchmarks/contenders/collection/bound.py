"""What no collector can beat: simulators stepped in a plain loop, and the policy's forward pass.

The environments are those of ``gymnasium.make``, the policy is ours in its shortest form, with the
noise of a whole batch drawn at once, and nothing is kept.
"""

from __future__ import annotations

from collections.abc import Callable

import gymnasium
import numpy as np
import torch

from contenders.case import CollectionCase
from torchrl_elegant.envs import make_env
from torchrl_elegant.modules import build_stochastic_actor

PACKAGES = ("gymnasium", "torch")


def make(case: CollectionCase) -> Callable[[int], int]:
    torch.set_num_threads(case.threads)
    torch.manual_seed(case.seed)
    policy = build_stochastic_actor(make_env(case.env, 1))
    envs = [gymnasium.make(case.env) for _ in range(case.envs)]
    observations = np.stack([env.reset(seed=n)[0] for n, env in enumerate(envs)], dtype=np.float32)
    seen = torch.from_numpy(observations)
    discrete = isinstance(envs[0].action_space, gymnasium.spaces.Discrete)

    length = -(-case.frames // case.envs)

    @torch.inference_mode()
    def frames(count: int) -> int:
        steps = -(-count // case.envs)
        for step in range(steps):
            if step % length == 0:
                plan = policy.rollout(frames=length, count=case.envs)
            action = plan.act(step % length, seen)
            chosen = action.argmax(-1).tolist() if discrete else action.numpy()
            for row, env in enumerate(envs):
                observation, _, terminated, truncated, _ = env.step(chosen[row])
                if terminated or truncated:
                    observation, _ = env.reset()
                observations[row] = observation
        return steps * case.envs

    return frames
