"""The check for numbers that are not finite: at once on the CPU, later on a device."""

from __future__ import annotations

import pytest
import torch
from batched_toys import Drift, Team
from tensordict import TensorDict

from torchrl_elegant.collectors.rollout.finite_check import CheckLater, CheckNow, finite_check

CPU = torch.device("cpu")


def batch(value: float = 0.0, key: tuple[str, ...] = ("next", "reward")) -> TensorDict:
    values = torch.zeros(2, 3, 1)
    values[1, 2] = value
    return TensorDict({}, [2, 3]).set(key, values)


def test_only_on_the_cpu_are_values_looked_at():
    env = Drift(2)
    assert isinstance(finite_check(env, None), CheckNow)
    assert isinstance(finite_check(env, CPU), CheckNow)
    assert isinstance(finite_check(env, torch.device("meta")), CheckLater)


def test_nested_rewards_and_observations_are_checked():
    check = finite_check(Team(2), CPU)
    for key in (
        ("next", "agents", "reward"),
        ("next", "agents", "observation"),
        ("agents", "observation"),
    ):
        check(batch(key=key), frames=0)
        with pytest.raises(FloatingPointError, match=r"got `nan` from sub environment 1 at frame"):
            check(batch(torch.nan, key), frames=0)


@pytest.mark.parametrize("value", [torch.nan, torch.inf, -torch.inf])
def test_a_later_batch_raises_for_the_first_that_was_not_finite(value):
    check = CheckLater([("next", "agents", "reward"), ("next", "reward")], device=CPU)
    check(batch(3e38), frames=0)
    check(batch(), frames=6)
    check(batch(value), frames=12)
    with pytest.raises(
        FloatingPointError,
        match=r"`reward` must be finite, got a non-finite value .* frame 18; mend",
    ):
        check(batch(), frames=18)


def test_what_has_not_arrived_is_told_of_later():
    check = CheckLater([("next", "reward")], device=CPU)
    check(batch(torch.nan), frames=0)
    check._read[:] = 0  # as if the copy were still under way
    check(batch(), frames=6)
    with pytest.raises(FloatingPointError, match="up to frame 6;"):
        check(batch(torch.nan), frames=12)


def test_nested_keys_are_named_whole():
    key = ("next", "agents", "reward")
    check = CheckLater([key], device=CPU)
    check(batch(torch.nan, key), frames=0)
    with pytest.raises(FloatingPointError, match=r"`\('agents', 'reward'\)` must be finite"):
        check(batch(0.0, key), frames=6)
