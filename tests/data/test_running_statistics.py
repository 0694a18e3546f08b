"""Moments and the scale of returns: exact in any parts, far from zero, over several processes."""

from __future__ import annotations

import pytest
import torch
from no_sync import NoSync

from torchrl_elegant.data import Moments, ReturnScale


@pytest.mark.parametrize("offset", [0.0, 1e4, 1e8])
def test_moments_in_parts_are_those_of_the_whole(offset):
    values = torch.randn(1_000, 3, dtype=torch.float64) * torch.tensor([1.0, 1e-2, 1e2]) + offset
    moments = Moments((3,))
    for part in values.split([1, 0, 2, 500, 497]):
        moments.add(part)
    assert moments.count == 1_000
    torch.testing.assert_close(moments.mean, values.mean(0), rtol=1e-12, atol=0)
    expected = values.var(0, correction=0)
    torch.testing.assert_close(moments.variance, expected, rtol=1e-5, atol=0)


def test_an_offset_in_single_precision_costs_no_spread():
    # One pass over squares in float32 would find no spread here, or a negative one.
    values = (torch.randn(10_000) * 3 + 1e5).float()
    moments = Moments(())
    for part in values.split(100):
        moments.add(part)
    assert moments.variance.item() ** 0.5 == pytest.approx(values.double().std().item(), rel=1e-3)


def test_moments_of_other_processes_are_merged_in():
    mine, other = torch.randn(10, 2), torch.randn(5, 2) + 3
    theirs: list[torch.Tensor] = []
    Moments((2,)).add(other, lambda part: theirs.append(part) or [])
    moments = Moments((2,))
    moments.add(mine, lambda part: [part, *theirs])
    whole = torch.cat([mine, other]).double()
    assert moments.count == 15
    torch.testing.assert_close(moments.mean, whole.mean(0))
    torch.testing.assert_close(moments.variance, whole.var(0, correction=0))


def test_moments_are_stored():
    one, other = Moments((2,)), Moments((2,))
    one.add(torch.randn(4, 2))
    state = one.state_dict()
    other.load_state_dict(state)
    one.add(torch.randn(4, 2))
    assert other.count == 4
    assert torch.equal(other.mean, state["mean"])


def by_hand(reward, done, gamma):
    returns = []
    for env in range(reward.shape[0]):
        total = 0.0
        for r, d in zip(reward[env].tolist(), done[env].tolist(), strict=True):
            total = gamma * total + r
            returns.append(total)
            total = 0.0 if d else total
    return torch.tensor(returns, dtype=torch.float64)


@pytest.mark.parametrize("sizes", [[30], [1] * 30, [7, 16, 7]])
def test_returns_run_on_through_batches_and_end_with_episodes(sizes):
    reward, done = torch.randn(3, 30), torch.rand(3, 30) < 0.15
    scale = ReturnScale(gamma=0.9)
    for part, ends in zip(reward.split(sizes, 1), done.split(sizes, 1), strict=True):
        scale.observe(part, ends)
    expected = by_hand(reward, done, 0.9)
    assert scale.moments.count == 90
    assert scale.moments.mean.item() == pytest.approx(expected.mean().item())
    assert scale.scale.item() == pytest.approx(1 / expected.std(correction=0).item())


def test_streams_are_kept_apart():
    reward, never = torch.randn(2, 1, 12), torch.zeros(1, 3).bool()
    together = ReturnScale(gamma=0.9)
    for t in range(0, 12, 3):
        for stream in (0, 1):
            together.observe(reward[stream, :, t : t + 3], never, stream=stream)
    expected = by_hand(reward[:, 0], torch.zeros(2, 12).bool(), 0.9)
    assert together.scale.item() == pytest.approx(1 / expected.std(correction=0).item())


def test_nothing_is_scaled_before_anything_has_varied():
    scale = ReturnScale(gamma=0.9)
    assert scale.scale == 1.0
    scale.observe(torch.zeros(1, 5), torch.zeros(1, 5).bool())
    assert scale.scale == 1.0


def test_what_is_stored_holds_no_episode_under_way():
    one, other = ReturnScale(gamma=0.9), ReturnScale(gamma=0.9)
    one.observe(torch.ones(1, 5), torch.zeros(1, 5).bool())
    other.observe(torch.full((1, 5), 100.0), torch.zeros(1, 5).bool())
    other.load_state_dict(one.state_dict())
    assert other.scale == one.scale
    other.observe(torch.ones(1, 1), torch.zeros(1, 1).bool())
    assert other.moments.mean.item() == pytest.approx((5 * one.moments.mean.item() + 1) / 6)


def test_statistics_stay_on_the_device_of_what_they_see():
    moments, scale = Moments((3,)), ReturnScale(gamma=0.9)
    values, reward, done = torch.randn(8, 3), torch.randn(2, 4), torch.zeros(2, 4).bool()
    with NoSync():
        for _ in range(2):
            moments.add(values)
            scale.observe(reward, done)
        scaled = reward * scale.scale
    assert scaled.dtype == torch.float32
    meta = torch.device("meta")  # where every look at a value is an error
    moments.add(values.to(meta))
    scale.observe(reward.to(meta), done.to(meta))
    told = [*moments.state_dict().values(), *scale.state_dict().values(), scale.scale]
    assert {value.device for value in told} == {meta}
    # What was stored elsewhere follows the values again.
    moments.load_state_dict(Moments((3,)).state_dict())
    moments.add(values.to(meta))
    assert moments.variance.device == meta
