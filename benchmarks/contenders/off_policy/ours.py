"""torchrl_elegant's algorithms, built as its training builds them."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

import torch
from tensordict import TensorDict
from torchrl.data import ReplayBuffer
from torchrl.envs.utils import ExplorationType

from contenders.case import OffPolicyCase
from contenders.off_policy.torchrl import stored
from torchrl_elegant.algorithms import ALGORITHMS, OffPolicyConfig
from torchrl_elegant.cli.training import keep_freed_blocks
from torchrl_elegant.collectors import SyncCollector
from torchrl_elegant.data import make_buffer
from torchrl_elegant.envs import make_env
from torchrl_elegant.trainers.learner import Learner
from torchrl_elegant.trainers.off_policy import draw, row_keys

PACKAGES = ("torchrl_elegant", "torchrl", "tensordict", "torch")


def make(case: OffPolicyCase) -> Callable[[int], int]:
    torch.set_num_threads(case.threads)
    keep_freed_blocks()  # as `train` does
    torch.manual_seed(case.seed)
    env = make_env(case.env, 1, seed=case.seed)
    config = config_of(case)
    learner = Learner(config.assemble(env), compile=case.compiled)
    buffer = make_buffer(size=case.buffer)
    if case.kind == "update":
        buffer.extend(stored(case, env))

        def updates(count: int) -> int:
            rounds = -(-count // case.group)
            for _ in range(rounds):
                for rows in draw(buffer, case.batch, case.group):
                    deque(learner.learn(rows, case.batch), maxlen=0)
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


def config_of(case: OffPolicyCase) -> OffPolicyConfig:
    rate = case.learning_rate
    options: dict[str, Any] = {
        "num_cells": (case.width, case.width),
        "gamma": case.gamma,
        "tau": case.tau,
    }
    if case.algorithm == "dqn":
        return ALGORITHMS["dqn"](lr=rate, epsilon=case.noise, **options)
    options |= {"actor_lr": rate, "critic_lr": rate}
    if case.algorithm in ("ddpg", "td3"):
        return ALGORITHMS[case.algorithm](noise_std=case.noise, **options)
    options["alpha_lr"] = rate
    if case.algorithm == "sac":
        return ALGORITHMS["sac"](**options)
    options |= {"num_critics": case.critics, "target_members": case.members}
    if case.actor_period == 1:
        return ALGORITHMS["sac"](actor_q="mean", **options)
    return ALGORITHMS["redq"](updates_per_frame=case.actor_period, **options)


def looper(
    case: OffPolicyCase, batches: Iterator[TensorDict], buffer: ReplayBuffer, learner: Learner
) -> Callable[[int], int]:
    keys = row_keys(learner)

    def collect() -> int:
        frames = next(batches).reshape(-1)
        buffer.extend(frames.select(*keys))
        return frames.numel()

    warm = 0
    while warm < 1000:
        warm += collect()

    def frames(count: int) -> int:
        done = 0
        while done < count:
            collected = collect()
            for rows in draw(buffer, case.batch, collected * case.ratio):
                deque(learner.learn(rows, case.batch), maxlen=0)
            done += collected
        return done

    return frames
