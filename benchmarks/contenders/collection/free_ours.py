"""torchrl_elegant's asynchronous collector, with nobody learning."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch
from torchrl.envs import ExplorationType

from contenders.case import CollectionCase
from contenders.collection.ours import PACKAGES, environments
from contenders.collection.rounds import ROOM, free_running, stop_before_exit
from torchrl_elegant.collectors import AsyncCollector
from torchrl_elegant.data import make_buffer
from torchrl_elegant.modules import build_stochastic_actor

__all__ = ["PACKAGES", "make"]


def make(case: CollectionCase) -> Callable[[int], int]:
    torch.set_num_threads(case.threads)
    collector = AsyncCollector(
        partial(environments, case),
        build_stochastic_actor(environments(case)),
        num_workers=case.workers,
        replay_buffer=make_buffer(size=ROOM),
        frames_per_batch=case.frames,
        exploration_type=ExplorationType.RANDOM,
        auto_register_policy_transforms=False,
        seed=case.seed,
        threads_per_worker=case.threads,
    )
    pids = [process.pid for process in collector.procs]
    stop_before_exit(pids, partial(collector.shutdown, raise_on_error=False))
    collector.start()
    return free_running(pids, lambda: collector.frames)
