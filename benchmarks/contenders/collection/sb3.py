"""Stable-Baselines3's rollouts for PPO over its ``DummyVecEnv``, without the training.

They also evaluate the critic at every step and compute advantages at the end.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from stable_baselines3 import PPO
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.logger import Logger

from contenders.case import CollectionCase

PACKAGES = ("stable-baselines3", "torch", "gymnasium")


def make(case: CollectionCase) -> Callable[[int], int]:
    return serve(build(case))


def build(case: CollectionCase) -> PPO:
    torch.set_num_threads(case.threads)
    return PPO(
        "MlpPolicy",
        make_vec_env(case.env, case.envs, seed=case.seed),
        n_steps=case.frames // case.envs,
        policy_kwargs={"net_arch": [64, 64]},
        seed=case.seed,
        device="cpu",
    )


def serve(model: PPO) -> Callable[[int], int]:
    # A logger without outputs: what is recorded goes nowhere.
    model.set_logger(Logger(folder=None, output_formats=[]))
    _, callback = model._setup_learn(total_timesteps=1)

    def frames(count: int) -> int:
        before = model.num_timesteps
        while model.num_timesteps - before < count:
            model.collect_rollouts(
                model.env, callback, model.rollout_buffer, n_rollout_steps=model.n_steps
            )
        return model.num_timesteps - before

    return frames
