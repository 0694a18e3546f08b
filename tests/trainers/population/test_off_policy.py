"""SAC members of a population: each learns what it learns alone."""

from __future__ import annotations

import pytest
from population_cases import differences, members_of, trials_of

from torchrl_elegant.algorithms import DDPGConfig, ModSACConfig, SACConfig
from torchrl_elegant.config.text import UsageError
from torchrl_elegant.trainers.population.off_policy import OffPolicyMembers

RUN = {"num_envs": 4, "frames_per_batch": 16, "total_frames": 640}
COMMON = {"num_cells": (16, 16), "batch_size": 32, "warmup": 40, "compile": False}
# What members may have of their own: rates, discounts, steps of targets, temperatures.
CONFIGS = [
    SACConfig(**COMMON),
    SACConfig(**COMMON, actor_lr=1e-3, critic_lr=(2e-3, 0.0), alpha_lr=1e-2, alpha=0.3),
    SACConfig(**COMMON, gamma=0.9, tau=0.05, target_entropy=-1.0),
]


def assert_equal_to_solo(configs, rounds):
    together, alone = trials_of(configs, **RUN), trials_of(configs, **RUN)
    members = members_of(OffPolicyMembers, together)
    for _ in range(rounds):
        members.round()
    for one, other in zip(together, alone, strict=True):
        other.train(frames=rounds * RUN["frames_per_batch"])
        assert one.ledger.updates == other.ledger.updates >= 50
        found = differences(one.learner, other.learner)
        assert max(found.values()) < 1e-4, found


def test_each_member_learns_what_it_learns_alone():
    assert_equal_to_solo(CONFIGS, rounds=7)


def test_scales_and_a_slower_actor_are_as_alone():
    # More rows than the buffer holds: the oldest make room.
    more = {"normalize_observation": True, "actor_period": 2, "reward_scale": 2.0}
    common = COMMON | more | {"buffer_size": 64}
    configs = [SACConfig(**common), SACConfig(**common, temperature="fixed", alpha=0.2)]
    with pytest.raises(UsageError, match="`temperature` must be the same for all members"):
        members_of(OffPolicyMembers, trials_of(configs, **RUN))
    assert_equal_to_solo([configs[1], SACConfig(**common | {"temperature": "fixed"})], rounds=7)


@pytest.mark.parametrize(
    ("config", "said"),
    [
        (SACConfig(**COMMON, n_steps=3), "`n_steps` must be 1"),
        (SACConfig(**COMMON, priority_alpha=0.6), "`priority_alpha` must be none"),
        (SACConfig(**COMMON, normalize_value=True), "`normalize_value` must be False"),
        (DDPGConfig(**COMMON), "`algorithm` must have an actor that samples"),
        (ModSACConfig(**COMMON), "a rule that decides by `critic_error`"),
    ],
)
def test_what_members_cannot_do_together_is_refused(config, said):
    with pytest.raises(UsageError, match=said):
        members_of(OffPolicyMembers, trials_of([config], **RUN))
