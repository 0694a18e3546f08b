"""torchrl_elegant's collectors, over its own environments or over TorchRL's."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torchrl.envs import EnvBase, ExplorationType

from contenders.case import CollectionCase
from contenders.collection.rounds import handed_out
from contenders.torchrl_parts import gym_envs
from torchrl_elegant.collectors import ParallelCollector, SyncCollector
from torchrl_elegant.envs import make_env
from torchrl_elegant.modules import build_stochastic_actor

PACKAGES = ("torchrl_elegant", "torchrl", "tensordict", "torch", "gymnasium")


def make(case: CollectionCase) -> Callable[[int], int]:
    torch.set_num_threads(case.threads)
    torch.manual_seed(case.seed)
    return handed_out(collector(case))


def collector(case: CollectionCase) -> Any:
    options: dict[str, Any] = {
        "frames_per_batch": case.frames,
        "total_frames": -1,
        "exploration_type": ExplorationType.RANDOM,
        "auto_register_policy_transforms": False,
    }
    if not case.workers:
        env = environments(case)
        return SyncCollector(env, build_stochastic_actor(env), **options)
    return ParallelCollector(
        partial(environments, case),
        build_stochastic_actor(environments(case)),
        num_workers=case.workers,
        seed=case.seed,
        threads_per_worker=case.threads,
        **options,
    )


def environments(case: CollectionCase) -> EnvBase:
    """Those of one process."""
    count = case.envs // max(case.workers, 1)
    if case.source == "torchrl":
        return gym_envs(case.env, count, threads=case.threads)
    return make_env(case.env, count, seed=case.seed)
