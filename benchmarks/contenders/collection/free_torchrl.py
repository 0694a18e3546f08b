"""TorchRL's ``MultiAsyncCollector`` over ``SerialEnv``, with nobody learning."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch
from torchrl.collectors import MultiAsyncCollector
from torchrl.data import LazyTensorStorage, TensorDictReplayBuffer
from torchrl.envs import ExplorationType
from torchrl.envs.transforms.transforms import FlattenTensorDict

from contenders.case import CollectionCase
from contenders.collection.rounds import ROOM, free_running, stop_before_exit
from contenders.torchrl_parts import actor, gym_envs

PACKAGES = ("torchrl", "tensordict", "torch", "gymnasium")


def make(case: CollectionCase) -> Callable[[int], int]:
    torch.set_num_threads(case.threads)
    environments = partial(gym_envs, case.env, case.envs // case.workers, threads=case.threads)
    buffer = TensorDictReplayBuffer(storage=LazyTensorStorage(ROOM), batch_size=256, shared=True)
    # Before the collector is made: workers take the buffer as it is then.
    buffer.append_transform(FlattenTensorDict(), invert=False)
    collector = MultiAsyncCollector(
        [environments] * case.workers,
        actor(environments()),
        replay_buffer=buffer,
        frames_per_batch=case.frames,
        total_frames=-1,
        exploration_type=ExplorationType.RANDOM,
        auto_register_policy_transforms=False,
        num_threads=case.threads,
        num_sub_threads=case.threads,
    )
    pids = [process.pid for process in collector.procs]
    stop_before_exit(pids, partial(collector.shutdown, raise_on_error=False))
    collector.start()
    return free_running(pids, lambda: buffer.write_count)
