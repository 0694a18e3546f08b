"""SBX's PPO: Stable-Baselines3's loop around minibatch updates that JAX compiles."""

from __future__ import annotations

from collections.abc import Callable

import jax
import torch
from sbx import PPO

from contenders.case import PPOCase
from contenders.ppo.sb3 import build, serve

PACKAGES = ("sbx-rl", "jax", "gymnasium")


def make(case: PPOCase) -> Callable[[int], int]:
    torch.set_num_threads(case.threads)
    model = build(PPO, case, {})
    run = serve(model)

    def finished(count: int) -> int:
        done = run(count)
        # JAX returns before it has computed.
        jax.block_until_ready(model.policy.actor_state.params)
        return done

    return finished
