"""Rewards of slices, plain or beyond what a critic expected, by hand."""

from __future__ import annotations

import math

import pytest
import torch
from hamiltonian_cases import F64, after_steps
from tensordict import TensorDict

from torchrl_elegant.functional import gae
from torchrl_elegant.objectives.common.keys import HamiltonianKeys
from torchrl_elegant.objectives.hamiltonian.loss import as_slices, slice_rewards

KEYS = HamiltonianKeys()


def slices_of(value, next_value, **after) -> TensorDict:
    """Slices ``[L, K]`` from nested lists."""
    value, next_value = (torch.tensor(x).unsqueeze(-1) for x in (value, next_value))
    after = {**after_steps(**after), "state_value": next_value}
    return TensorDict({"state_value": value, "next": after}, value.shape[:2])


def rewards_of(slices, baseline="value", keys=KEYS, gamma=0.5):
    return slice_rewards(slices, keys=keys, gamma=gamma, baseline=baseline)


ONE = {"value": [[1.0, 2.0, 4.0]], "next_value": [[8.0, 16.0, 32.0]]}
REWARD = [[1.0, -1.0, 5.0]]
YES, NO = True, False


@pytest.mark.parametrize(
    ("ends", "expected"),
    [
        ({}, [1 + 4 - 1, -1 + 8 - 2, 5 + 16 - 4]),
        # Only a termination says that nothing comes.
        ({"terminated": [[NO, NO, YES]]}, [4, 5, 5 - 4]),
        ({"done": [[NO, NO, YES]]}, [4, 5, 17]),
        ({"terminated": [[NO, YES, NO]]}, [4, -1 - 2, 17]),
    ],
)
def test_td_errors_by_hand(ends, expected):
    found = rewards_of(slices_of(reward=REWARD, **ONE, **ends))
    assert found.tolist() == [expected]


@pytest.mark.parametrize("gamma", [0.0, 0.9, 1.0])
def test_td_errors_are_those_that_advantages_are_made_of(gamma):
    slices = TensorDict({"state_value": torch.randn(5, 7, 1, dtype=F64)}, [5, 7])
    terminated = torch.rand(5, 7, 1) < 0.3
    done = terminated | (torch.rand(5, 7, 1) < 0.2)
    after = {name: torch.randn(5, 7, 1, dtype=F64) for name in ("reward", "state_value")}
    slices["next"] = {**after, "terminated": terminated, "done": done}
    value, (reward, next_value) = slices["state_value"], after.values()
    flags = (terminated, done)
    expected = gae(reward, value, next_value, *flags, gamma=gamma, lmbda=0.0, dim=1)
    found = rewards_of(slices, gamma=gamma)
    assert found.shape == (5, 7)
    torch.testing.assert_close(found, expected.squeeze(-1))


@pytest.mark.parametrize("junk", [1e9, math.inf, math.nan])
def test_what_a_state_after_the_end_is_worth_is_of_no_consequence(junk):
    given = {"reward": [[2.0]], "terminated": [[True]], "value": [[0.5]]}
    assert rewards_of(slices_of(next_value=[[junk]], **given)).tolist() == [[1.5]]


@pytest.mark.parametrize("baseline", ["mean", "zero"])
def test_other_baselines_leave_rewards_as_they_are_and_ask_for_no_values(baseline):
    slices = slices_of(reward=REWARD, **ONE)
    assert rewards_of(slices, baseline).tolist() == REWARD
    for key in ("state_value", ("next", "state_value")):
        slices.pop(key)
    assert rewards_of(slices, baseline).tolist() == REWARD


@pytest.mark.parametrize("absent", ["state_value", ("next", "state_value")])
def test_a_value_that_is_not_there_is_named_with_the_way_out(absent):
    slices = slices_of(reward=REWARD, **ONE)
    slices.pop(absent)
    told = (
        "slices must hold `state_value`, in `next` too, for baseline='value'; have a value "
        "estimator write them, or take baseline='mean'"
    )
    with pytest.raises(KeyError, match=told):
        rewards_of(slices)


def test_nested_and_renamed_keys():
    slices = slices_of(reward=REWARD, terminated=[[NO, YES, NO]], **ONE)
    names = {"reward": ("team", "r"), "terminated": "dead", "value": ("team", "v")}
    after = slices["next"]
    renamed = TensorDict(
        {
            "team": {"v": slices["state_value"]},
            "next": {
                "team": {"v": after["state_value"], "r": after["reward"]},
                "dead": after["terminated"],
            },
        },
        slices.shape,
    )
    found = rewards_of(renamed, keys=HamiltonianKeys(**names))
    assert torch.equal(found, rewards_of(slices))
    with pytest.raises(KeyError, match=r"slices must hold `\('team', 'v'\)`"):
        rewards_of(renamed.exclude(("team", "v")), keys=HamiltonianKeys(**names))


def test_what_is_given_is_left_as_it_was():
    slices = slices_of(reward=REWARD, **ONE)
    kept = slices.clone()
    rewards_of(slices).fill_(7.0)
    assert (slices == kept).all()


def test_slices_keep_their_shape_and_single_tensors_are_given_theirs():
    done = torch.zeros(5, 3, 1, dtype=torch.bool)
    for key, after in (("done", {"done": done}), (("team", "over"), {"team": {"over": done}})):
        for shape in ((), (5,)):
            given = TensorDict({"next": after}, shape)
            assert as_slices(given, key).shape == (5, 3)
            assert given.shape == shape
        whole = TensorDict({"next": after}, [5, 3])
        assert as_slices(whole, key) is whole


@pytest.mark.parametrize("shape", [(6,), (2, 3, 1), ()])
def test_what_is_no_slices_is_refused(shape):
    rows = TensorDict({"next": {"done": torch.zeros(*shape, 1, dtype=torch.bool)}}, shape)
    told = rf"must have the shape \[slices, steps\], got `\{list(shape)}`; reshape the batch"
    with pytest.raises(ValueError, match=told.replace("]`", r"\]`")):
        as_slices(rows, "done")
