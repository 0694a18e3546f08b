"""TorchRL's collectors over ``GymEnv``, and over ``SerialEnv`` where there are several."""

from __future__ import annotations

import atexit
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torchrl.collectors import Collector, MultiSyncCollector
from torchrl.envs import ExplorationType

from contenders.case import CollectionCase
from contenders.collection.rounds import handed_out
from contenders.torchrl_parts import actor, gym_envs

PACKAGES = ("torchrl", "tensordict", "torch", "gymnasium")


def make(case: CollectionCase) -> Callable[[int], int]:
    torch.set_num_threads(case.threads)
    torch.manual_seed(case.seed)
    return handed_out(collector(case))


def collector(case: CollectionCase) -> Collector | MultiSyncCollector:
    count = case.envs // max(case.workers, 1)
    environments = partial(gym_envs, case.env, count, threads=case.threads)
    options: dict[str, Any] = {
        "frames_per_batch": case.frames,
        "total_frames": -1,
        "exploration_type": ExplorationType.RANDOM,
        "auto_register_policy_transforms": False,
    }
    env = environments()
    if not case.workers:
        return Collector(env, actor(env), compile_policy=case.compiled, **options)
    several = MultiSyncCollector(
        [environments] * case.workers,
        actor(env),
        num_threads=case.threads,
        num_sub_threads=case.threads,
        **options,
    )
    # A collector that still has workers keeps its process from ending.
    atexit.register(several.shutdown)
    return several
