"""When the actor is updated."""

from __future__ import annotations

import math
import random

import pytest
import torch

from torchrl_elegant.algorithms import CriticTrust, EveryUpdate, Ramp
from torchrl_elegant.algorithms.adam import LeanAdam
from torchrl_elegant.algorithms.schedules import KLRate


def run(schedule, errors):
    """The schedule's decision at each update."""
    decisions = []
    for error in errors:
        decisions.append(schedule.due())
        terms = {"critic_error": torch.tensor(error)}
        schedule.observe({**terms, "loss_actor": torch.zeros(())} if decisions[-1] else terms)
    return decisions


def rule(errors, decay, window, refresh):
    """The rule as it is written down, with plain numbers."""
    c, critic, actor, ratio, decisions = 1.0, 0, 0, 1 / (2 - math.exp(-1)), []
    for error in errors:
        decisions.append(actor / (critic + 1) < ratio)
        critic, actor = critic + 1, actor + decisions[-1]
        c = decay * c + (1 - decay) * error
        if critic % refresh == 0 or critic == window:
            ratio = 1 / (2 - math.exp(-c * c))
        if critic == window:
            critic = actor = 0
    return decisions


@pytest.mark.parametrize(
    ("decay", "window", "refresh"), [(0.995, 1000, 16), (0.9, 50, 1), (0.5, 7, 3), (0.9, 10, 16)]
)
def test_sequence(decay, window, refresh):
    draw = random.Random(0)
    errors = [draw.expovariate(1.0) * (3.0 if i < 600 else 0.1) for i in range(1200)]
    schedule = CriticTrust(decay=decay, window=window, refresh=refresh)
    decisions = run(schedule, errors)
    assert decisions == rule(errors, decay, window, refresh)
    assert 0 < sum(decisions) < len(decisions)


@pytest.mark.parametrize(
    ("error", "share"), [(0.0, 1.0), (1e3, 0.5), (1.0, 1 / (2 - math.exp(-1)))]
)
def test_share_of_updates(error, share):
    schedule = CriticTrust(decay=0.9, window=500, refresh=1)
    run(schedule, [error] * 500)
    decisions = run(schedule, [error] * 1000)
    assert sum(decisions) / 1000 == pytest.approx(share, abs=0.005)
    assert schedule.ratio == pytest.approx(share, abs=1e-4)


def test_small_windows_are_followed_too():
    schedule = CriticTrust(decay=0.5, window=4, refresh=16)
    run(schedule, [100.0] * 40)
    assert schedule.ratio == pytest.approx(0.5)


def test_a_smaller_window_than_was_counted_begins_anew():
    before, after = CriticTrust(window=100), CriticTrust(window=5)
    run(before, [1.0] * 50)
    after.load_state_dict(before.state_dict())
    run(after, [1.0])
    assert after.critic_updates == 0


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_running_error(dtype):
    schedule = CriticTrust(decay=0.1)
    schedule.observe({"critic_error": torch.tensor(3.0, dtype=dtype)})
    assert schedule.running_error.item() == pytest.approx(0.1 + 0.9 * 3.0)


def test_state_continues_the_sequence():
    draw = random.Random(1)
    errors = [draw.expovariate(1.0) for _ in range(200)]
    whole = run(CriticTrust(window=30, refresh=4, decay=0.9), errors)
    first = CriticTrust(window=30, refresh=4, decay=0.9)
    begun = run(first, errors[:77])
    second = CriticTrust(window=30, refresh=4, decay=0.9)
    second.load_state_dict(first.state_dict())
    kept = first.state_dict()
    assert begun + run(second, errors[77:]) == whole
    assert kept["running_error"].item() != second.running_error.item()


def test_needs_a_critic_error():
    with pytest.raises(KeyError, match=r"CriticTrust needs `critic_error`.*use ModSACLoss"):
        CriticTrust().observe({"loss_actor": torch.zeros(())})


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"decay": 1.0}, r"`decay` must lie in \[0, 1\), got `1.0`"),
        ({"window": 0}, "`window` must be at least 1, got `0`"),
        ({"refresh": 0}, "`refresh` must be at least 1, got `0`"),
    ],
)
def test_refusals(options, message):
    with pytest.raises(ValueError, match=message):
        CriticTrust(**options)


@pytest.mark.parametrize("period", [1, 2, 5])
def test_every_update(period):
    schedule = EveryUpdate(period=period)
    expected = [(i + 1) % period == 0 for i in range(20)]
    begun = run(schedule, [0.0] * 7)
    other = EveryUpdate(period=period)
    other.load_state_dict(schedule.state_dict())
    assert begun + run(other, [0.0] * 13) == expected


def test_period_must_be_positive():
    with pytest.raises(ValueError, match="`period` must be at least 1, got `0`"):
        EveryUpdate(period=0)


def test_a_ramp_arrives_when_it_says_and_stays():
    seen = []
    ramp = Ramp(rate=(2.0, 4.0), until=0.5, apply=seen.append)
    for progress in (0.0, 0.25, 0.5, 0.9, 1.2):
        ramp.at(progress)
    assert seen == [2.0, 3.0, 4.0, 4.0, 4.0]


@pytest.mark.parametrize(
    ("divergence", "factor"),
    [
        *((0.021, 1 / 1.5), (0.02, 1.0), (0.006, 1.0), (0.005, 1.0), (0.0049, 1.5)),
        *((0.0, 1.0), (float("inf"), 1 / 1.5), (float("nan"), 1.0)),
    ],
)
def test_a_learning_rate_follows_the_divergence(divergence, factor):
    """rsl_rl's rule, number by number."""
    groups = [{"params": [torch.nn.Parameter(torch.ones(1))]} for _ in range(2)]
    optimizer = LeanAdam(groups, lr=1e-3)
    rate = KLRate(optimizer, target=0.01)
    rate.follow(torch.tensor(divergence))
    assert [group["lr"].item() for group in optimizer.param_groups] == pytest.approx(
        [1e-3 * factor] * 2
    )


@pytest.mark.parametrize(("divergence", "bound"), [(1.0, 1e-5), (1e-6, 1e-2)])
def test_a_learning_rate_that_follows_stays_in_its_bounds(divergence, bound):
    optimizer = LeanAdam([torch.nn.Parameter(torch.ones(1))], lr=1e-3)
    rate = KLRate(optimizer, target=0.01)
    for _ in range(30):
        rate.follow(torch.tensor(divergence))
    assert rate.lr.item() == pytest.approx(bound)


def test_a_step_is_made_at_the_rate_that_follows():
    param = torch.nn.Parameter(torch.ones(1))
    rate = KLRate(optimizer := LeanAdam([param], lr=9e-3), target=0.01)
    moved = []
    for divergence in (1.0, 1.0, 0.01):
        before, param.grad = param.item(), torch.ones(1)
        optimizer.step()
        moved.append(before - param.item())
        rate.follow(torch.tensor(divergence))
    assert moved == pytest.approx([9e-3, 6e-3, 4e-3], rel=1e-3)


def test_a_loaded_rate_reaches_the_optimizer():
    first, second = (
        KLRate(LeanAdam([torch.nn.Parameter(torch.ones(1))], lr=lr), target=0.01)
        for lr in (1e-3, 5e-3)
    )
    first.follow(torch.tensor(1.0))
    # Which makes new groups.
    second.optimizer.load_state_dict(second.optimizer.state_dict())
    second.load_state_dict(first.state_dict())
    second.follow(torch.tensor(1.0))
    assert second.optimizer.param_groups[0]["lr"].item() == pytest.approx(1e-3 / 1.5**2)


@pytest.mark.parametrize("until", [0.0, -0.1, 1.1])
def test_a_ramp_arrives_within_the_run(until):
    with pytest.raises(ValueError, match="`until` must lie in"):
        Ramp(rate=(0.0, 1.0), until=until, apply=print)
