"""PPO members of a population: each learns what it learns alone."""

from __future__ import annotations

from dataclasses import replace

from population_cases import differences, members_of, trials_of

from torchrl_elegant.algorithms import A2CConfig, PPOConfig
from torchrl_elegant.trainers.population.on_policy import OnPolicyMembers

RUN = {"num_envs": 4, "frames_per_batch": 128, "total_frames": 1280}
COMMON = {"num_cells": (16, 16), "batch_size": 32, "epochs": 5, "compile": False}
# What members may have of their own: rates, weights, bounds, discounts, scales.
CONFIGS = [
    PPOConfig(**COMMON),
    PPOConfig(**COMMON, lr=3e-3, entropy_coeff=0.01, clip_epsilon=0.1),
    PPOConfig(**COMMON, gamma=0.9, lmbda=0.8, critic_coeff=1.0, reward_scale=0.5),
    PPOConfig(**COMMON, lr=(1e-3, 0.0), entropy_coeff=(0.02, 0.0), log_std=-0.5),
]


def assert_equal_to_solo(configs, rounds, **run):
    run = {**RUN, **run}
    together, alone = trials_of(configs, **run), trials_of(configs, **run)
    members = members_of(OnPolicyMembers, together)
    for _ in range(rounds):
        members.round()
    for one, other in zip(together, alone, strict=True):
        other.train(frames=rounds * run["frames_per_batch"])
        assert one.ledger.updates == other.ledger.updates >= 50
        assert one.ledger.frames == other.ledger.frames
        found = differences(one.learner, other.learner)
        assert max(found.values()) < 1e-4, found


def test_each_member_learns_what_it_learns_alone():
    assert_equal_to_solo(CONFIGS, rounds=3)


def test_scales_and_clipped_values_are_each_members_own():
    scaled = {"normalize_observation": True, "normalize_value": True, "clip_value": 0.1}
    # 24 rows are left behind the whole batches of 40; that is one more batch.
    common = COMMON | scaled | {"batch_size": 40, "max_grad_norm": 0.05}
    configs = [PPOConfig(**common), PPOConfig(**common, lr=3e-3, gamma=0.9)]
    assert_equal_to_solo(configs, rounds=4, frames_per_batch=144)


def test_discrete_actions_are_drawn_as_alone():
    common = COMMON | {"normalize_advantage": False}
    configs = [PPOConfig(**common), PPOConfig(**common, entropy_coeff=0.1)]
    run = {"env_kwargs": {"discrete": True}}
    assert_equal_to_solo(configs, rounds=3, **run)


def test_a2c_members_learn_what_they_learn_alone():
    common = COMMON | {"epochs": 4}
    configs = [A2CConfig(**common), A2CConfig(**common, lr=3e-3, entropy_coeff=0.01)]
    assert_equal_to_solo(configs, rounds=4)


def test_compiled_updates_are_the_same():
    configs = [replace(config, compile=True) for config in CONFIGS[:2]]
    together, alone = trials_of(configs, **RUN), trials_of(CONFIGS[:2], **RUN)
    members = members_of(OnPolicyMembers, together)
    for _ in range(3):
        members.round()
    for one, other in zip(together, alone, strict=True):
        other.train(frames=3 * RUN["frames_per_batch"])
        assert one.ledger.updates == other.ledger.updates == 60
        assert max(differences(one.learner, other.learner).values()) < 1e-4


def test_without_the_kernel_a_step_is_the_same(monkeypatch):
    monkeypatch.setattr("torchrl_elegant.trainers.population.adam.kernels", lambda: None)
    assert_equal_to_solo(CONFIGS[:2], rounds=3)
