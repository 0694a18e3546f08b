"""SBX's SAC: Stable-Baselines3's loop around an update that JAX compiles.

A group of updates runs inside one compiled loop. The compilation falls into the warm-up, since
the number of updates per call never changes.
"""

from __future__ import annotations

from collections.abc import Callable

import jax
import torch
from sbx import SAC

from contenders.case import SACCase
from contenders.sac.sb3 import build, serve

PACKAGES = ("sbx-rl", "jax")


def make(case: SACCase) -> Callable[[int], int]:
    torch.set_num_threads(case.threads)
    model = build(SAC, case, {})
    run = serve(model, case)

    def finished(count: int) -> int:
        done = run(count)
        # JAX returns before it has computed.
        jax.block_until_ready(model.policy.qf_state.params)
        return done

    return finished
