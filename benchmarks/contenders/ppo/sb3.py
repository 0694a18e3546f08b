"""Stable-Baselines3's PPO over its ``DummyVecEnv``."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from stable_baselines3 import PPO
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.logger import Logger

from contenders.case import PPOCase

PACKAGES = ("stable-baselines3", "torch", "gymnasium")


def make(case: PPOCase) -> Callable[[int], int]:
    torch.set_num_threads(case.threads)
    return serve(build(PPO, case, {}, device="cpu"))


def build(algorithm: type, case: PPOCase, policy_options: Mapping[str, Any], **options: Any) -> Any:
    return algorithm(
        "MlpPolicy",
        make_vec_env(case.env, case.envs, seed=case.seed),
        learning_rate=case.learning_rate,
        n_steps=case.steps,
        batch_size=case.minibatch,
        n_epochs=case.epochs,
        gamma=case.gamma,
        gae_lambda=case.lmbda,
        clip_range=case.clip,
        ent_coef=case.entropy,
        vf_coef=case.value,
        max_grad_norm=case.max_grad_norm,
        # Its activation is tanh unless told otherwise.
        policy_kwargs={"net_arch": [64, 64], **policy_options},
        seed=case.seed,
        **options,
    )


def serve(model: Any) -> Callable[[int], int]:
    # A logger without outputs: what is recorded goes nowhere.
    model.set_logger(Logger(folder=None, output_formats=[]))

    def frames(count: int) -> int:
        before = model.num_timesteps
        model.learn(count, reset_num_timesteps=False, log_interval=None)
        return model.num_timesteps - before

    return frames
