"""Stable-Baselines3's algorithms, with their defaults where the case does not say otherwise."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import stable_baselines3
import torch
from stable_baselines3.common.logger import Logger
from stable_baselines3.common.noise import NormalActionNoise

from contenders.case import OffPolicyCase
from contenders.transitions import random_transitions

PACKAGES = ("stable-baselines3", "torch")


def make(case: OffPolicyCase) -> Callable[[int], int]:
    torch.set_num_threads(case.threads)
    algorithm = getattr(stable_baselines3, case.algorithm.upper())
    # Fused Adam is what it takes when told to and not by itself.
    policy = {"optimizer_kwargs": {"fused": True}} if case.fused else {}
    return serve(build(algorithm, case, policy, device="cpu"), case)


def build(
    algorithm: type, case: OffPolicyCase, policy_options: Mapping[str, Any], **options: Any
) -> Any:
    if case.algorithm in ("ddpg", "td3"):
        size = case.actions
        options["action_noise"] = NormalActionNoise(np.zeros(size), np.full(size, case.noise))
    if case.algorithm == "dqn":
        options |= {
            "exploration_initial_eps": case.noise,
            "exploration_final_eps": case.noise,
            "target_update_interval": 1,
        }
    return algorithm(
        "MlpPolicy",
        case.env,
        learning_rate=case.learning_rate,
        buffer_size=case.buffer,
        learning_starts=1000,
        batch_size=case.batch,
        tau=case.tau,
        gamma=case.gamma,
        train_freq=case.group,
        gradient_steps=case.group * case.ratio,
        policy_kwargs={"net_arch": [case.width, case.width], **policy_options},
        seed=case.seed,
        **options,
    )


def serve(model: Any, case: OffPolicyCase) -> Callable[[int], int]:
    # A logger without outputs: what is recorded goes nowhere.
    model.set_logger(Logger(folder=None, output_formats=[]))
    if case.kind == "loop":
        model.learn(1200, log_interval=None)

        def frames(count: int) -> int:
            before = model.num_timesteps
            model.learn(count, reset_num_timesteps=False, log_interval=None)
            return model.num_timesteps - before

        return frames

    data = random_transitions(case)
    for row in range(case.filled):
        columns = {name: column[row : row + 1] for name, column in data.items()}
        model.replay_buffer.add(
            columns["observation"],
            columns["next_observation"],
            columns["action"],
            columns["reward"],
            columns["terminated"],
            [{}],
        )

    def updates(count: int) -> int:
        calls = -(-count // case.group)
        for _ in range(calls):
            model.train(gradient_steps=case.group, batch_size=case.batch)
        return calls * case.group

    return updates
