"""SBX: Stable-Baselines3's loop around an update that JAX compiles.

A group of updates runs inside one compiled loop. The compilation falls into the warm-up, since
the number of updates per call never changes. It has no REDQ; its SAC with as many critics and as
rare an actor comes near, but each of its targets is a minimum over all critics.
"""

from __future__ import annotations

from collections.abc import Callable

import jax
import sbx
import torch

from contenders.case import OffPolicyCase
from contenders.off_policy.sb3 import build, serve

PACKAGES = ("sbx-rl", "jax")


def make(case: OffPolicyCase) -> Callable[[int], int]:
    torch.set_num_threads(case.threads)
    if case.algorithm == "redq":
        critics = {"n_critics": case.critics}
        model = build(sbx.SAC, case, critics, policy_delay=case.actor_period)
    else:
        model = build(getattr(sbx, case.algorithm.upper()), case, {})
    run = serve(model, case)

    def finished(count: int) -> int:
        done = run(count)
        # JAX returns before it has computed.
        jax.block_until_ready(model.policy.qf_state.params)
        return done

    return finished
