"""torchrl_elegant's SAC, built as its training builds it."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch
from tensordict import TensorDict
from torchrl.data import ReplayBuffer
from torchrl.envs.utils import ExplorationType

from contenders.case import SACCase
from contenders.sac.torchrl import stored
from torchrl_elegant.algorithms import SACConfig
from torchrl_elegant.collectors import SyncCollector
from torchrl_elegant.data import make_buffer
from torchrl_elegant.envs import make_env
from torchrl_elegant.trainers.learner import Learner
from torchrl_elegant.trainers.loop import draw
from torchrl_elegant.trainers.memory import keep_freed_blocks

PACKAGES = ("torchrl_elegant", "torchrl", "tensordict", "torch")


def make(case: SACCase) -> Callable[[int], int]:
    torch.set_num_threads(case.threads)
    keep_freed_blocks()  # as `train` does
    torch.manual_seed(case.seed)
    env = make_env(case.env, 1, seed=case.seed)
    config = SACConfig(
        num_cells=(case.width, case.width),
        actor_lr=case.learning_rate,
        critic_lr=case.learning_rate,
        alpha_lr=case.learning_rate,
        gamma=case.gamma,
        tau=case.tau,
    )
    learner = Learner(config.build(env))
    buffer = make_buffer(size=case.buffer)
    if case.kind == "update":
        buffer.extend(stored(case))

        def updates(count: int) -> int:
            rounds = -(-count // case.group)
            for _ in range(rounds):
                for batch in draw(buffer, case.batch, case.group):
                    learner.update(batch)
            return rounds * case.group

        return updates

    collector = SyncCollector(
        env,
        learner.policy,
        frames_per_batch=case.group,
        total_frames=-1,
        exploration_type=ExplorationType.RANDOM,
        auto_register_policy_transforms=False,
    )
    return looper(case, iter(collector), buffer, learner)


def looper(
    case: SACCase, batches: Iterator[TensorDict], buffer: ReplayBuffer, learner: Learner
) -> Callable[[int], int]:
    def collect() -> int:
        frames = next(batches).reshape(-1)
        buffer.extend(frames.select(*learner.loss.in_keys))
        return frames.numel()

    warm = 0
    while warm < 1000:
        warm += collect()

    def frames(count: int) -> int:
        done = 0
        while done < count:
            collected = collect()
            for batch in draw(buffer, case.batch, collected * case.ratio):
                learner.update(batch)
            done += collected
        return done

    return frames
