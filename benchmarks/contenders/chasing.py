"""Rows of `ChasingEnv`, stepped alone or under a policy."""

from __future__ import annotations

from collections.abc import Callable

import torch
from tensordict import TensorDict
from torch import Tensor
from torchrl.collectors import Collector
from torchrl.envs import EnvBase

from contenders.case import ChasingCase
from contenders.collection.rounds import handed_out
from torchrl_elegant.collectors import SyncCollector
from torchrl_elegant.envs import make_env
from torchrl_elegant.modules import build_stochastic_actor

PACKAGES = ("torchrl_elegant", "torchrl", "tensordict", "torch")
COLLECTORS = {"ours": SyncCollector, "torchrl": Collector}


def make(case: ChasingCase) -> Callable[[int], int]:
    torch.set_num_threads(case.threads)
    torch.manual_seed(case.seed)
    options = {"discrete": case.discrete}
    env = make_env("elegant/chasing", case.envs, seed=case.seed, env_kwargs=options)
    if case.kind == "policy" and case.way in COLLECTORS:
        return handed_out(
            COLLECTORS[case.way](
                env,
                build_stochastic_actor(env),
                frames_per_batch=case.least,
                total_frames=-1,
                auto_register_policy_transforms=False,
            )
        )
    if case.way == "torchrl":
        return through_torchrl(env, case)
    return alone(env, case)


def alone(env: EnvBase, case: ChasingCase) -> Callable[[int], int]:
    """`_step`, `_reset` under the mask of rows that are done, and the policy where there is one."""
    if case.kind == "policy":
        act = build_stochastic_actor(env).act
    else:
        actions = env.action_spec.rand(), None

        def act(_: Tensor) -> tuple[Tensor, None]:
            return actions

    @torch.no_grad()
    def steps(count: int) -> int:
        seen, rows = env._reset().get("observation"), [case.envs]
        for _ in range(rounds := -(-count // case.envs)):
            after = env._step(TensorDict({"action": act(seen)[0]}, rows))
            seen = env._reset(TensorDict({"_reset": after.get("done")}, rows)).get("observation")
        return rounds * case.envs

    return steps


def through_torchrl(env: EnvBase, case: ChasingCase) -> Callable[[int], int]:
    """TorchRL's own way to step and reset."""
    action = env.action_spec.rand()

    @torch.no_grad()
    def steps(count: int) -> int:
        data = env.reset()
        for _ in range(rounds := -(-count // case.envs)):
            _, data = env.step_and_maybe_reset(data.set("action", action))
        return rounds * case.envs

    return steps
