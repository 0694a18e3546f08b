"""RLlib's PPO on its new API stack, a learner in this process."""

from __future__ import annotations

import atexit
import logging
from collections.abc import Callable

import ray
import torch
from ray.rllib.algorithms.ppo import PPOConfig
from ray.rllib.core.rl_module.default_model_config import DefaultModelConfig

from contenders.case import PPOCase

PACKAGES = ("ray", "torch", "gymnasium")


def make(case: PPOCase) -> Callable[[int], int]:
    torch.set_num_threads(case.threads)
    ray.init(
        # One of its own, whoever else runs one on this machine.
        address="local",
        num_cpus=max(case.processors, case.runners + 1),
        include_dashboard=False,
        logging_level=logging.ERROR,
        log_to_driver=False,
    )
    atexit.register(ray.shutdown)
    algorithm = config(case).build_algo()

    def frames(count: int) -> int:
        done = 0
        while done < count:
            done += algorithm.train()["env_runners"]["num_env_steps_sampled"]
        return int(done)

    return frames


def config(case: PPOCase) -> PPOConfig:
    return (
        PPOConfig()
        .environment(case.env)
        .framework("torch")
        .env_runners(
            num_env_runners=case.runners,
            num_envs_per_env_runner=case.envs // max(case.runners, 1),
            rollout_fragment_length="auto",
        )
        .learners(num_learners=0)
        .rl_module(
            model_config=DefaultModelConfig(
                fcnet_hiddens=[64, 64], fcnet_activation="tanh", vf_share_layers=False
            )
        )
        .training(
            lr=case.learning_rate,
            gamma=case.gamma,
            lambda_=case.lmbda,
            train_batch_size_per_learner=case.frames,
            minibatch_size=case.minibatch,
            num_epochs=case.epochs,
            clip_param=case.clip,
            entropy_coeff=case.entropy,
            vf_loss_coeff=case.value,
            vf_clip_param=float("inf"),
            use_kl_loss=False,
            grad_clip=case.max_grad_norm,
            grad_clip_by="global_norm",
        )
        .reporting(min_time_s_per_iteration=0)
        .debugging(seed=case.seed, log_level="ERROR")
    )
