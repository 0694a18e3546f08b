"""The pure equations."""

from __future__ import annotations

import math

import pytest
import torch

from torchrl_elegant.functional import (
    actor_ratio,
    bellman_target,
    critic_trust,
    draw_members,
    reduce_members,
    soft_value,
)


def test_soft_value_rewards_entropy():
    value = soft_value(torch.tensor([1.0, 1.0]), 0.5, torch.tensor([-2.0, 3.0]))
    assert value.tolist() == [2.0, -0.5]


def test_bellman_target():
    ended = torch.tensor([False, True])
    target = bellman_target(torch.tensor([1.0, 2.0]), ended, torch.tensor([10.0, 10.0]), 0.5)
    assert target.tolist() == [6.0, 2.0]


def test_value_of_a_terminal_state_is_never_read():
    nan = torch.tensor([float("nan")])
    assert bellman_target(torch.ones(1), torch.tensor([True]), nan, 0.9).item() == 1.0


def test_discount_per_row():
    no = torch.zeros(2, dtype=torch.bool)
    target = bellman_target(torch.zeros(2), no, torch.ones(2), torch.tensor([0.9, 0.81]))
    torch.testing.assert_close(target, torch.tensor([0.9, 0.81]))


@pytest.mark.parametrize("members", [1, 2, 3, 5])
def test_reductions(members):
    values = torch.randn(members, 4, 3)
    assert torch.equal(reduce_members(values, "min"), values.min(0).values)
    torch.testing.assert_close(reduce_members(values, "mean"), values.sum(0) / members)


@pytest.mark.parametrize("members", [None, 5])
def test_all_members(members):
    assert draw_members(5, members) is None


def test_subset_without_repetition():
    for _ in range(50):
        drawn = draw_members(5, 3).tolist()
        assert len(set(drawn)) == 3
        assert set(drawn) <= set(range(5))


def test_subsets_are_equally_likely():
    pairs = [tuple(sorted(draw_members(4, 2).tolist())) for _ in range(1200)]
    counts = [pairs.count(pair) for pair in set(pairs)]
    assert len(counts) == 6
    # 200 expected; four standard deviations of a binomial with p = 1/6
    assert max(abs(count - 200) for count in counts) < 4 * math.sqrt(1200 * 5 / 36)


@pytest.mark.parametrize("c", [0.0, 0.5, 1.0, 3.0])
def test_trust(c):
    assert critic_trust(c) == critic_trust(-c) == pytest.approx(math.exp(-c * c))
    assert actor_ratio(critic_trust(c)) == pytest.approx(1 / (2 - math.exp(-c * c)))


def test_trust_at_its_ends():
    assert actor_ratio(critic_trust(0.0)) == 1.0
    assert actor_ratio(critic_trust(1e3)) == 0.5
