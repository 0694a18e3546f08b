"""Folding single steps into longer ones, whatever the batches they come in."""

from __future__ import annotations

import pytest
import torch
from tensordict import TensorDict
from torchrl.envs import MultiStepTransform

from torchrl_elegant.data import MultiStepFold

GAMMA, ENVS, TIME = 0.9, 3, 40


def episodes(seed: int, envs: int = ENVS, time: int = TIME) -> TensorDict:
    """Random steps ``[envs, time]``, numbered, of which some end an episode in either way."""
    torch.manual_seed(seed)
    number = torch.arange(envs * time, dtype=torch.float32).reshape(envs, time, 1)
    terminated = torch.rand(envs, time, 1) < 0.1
    truncated = (torch.rand(envs, time, 1) < 0.1) & ~terminated
    after = {
        # Not the next row's observation where an episode ended: the true final one.
        "observation": number + 0.5,
        "reward": torch.randn(envs, time, 1),
        "terminated": terminated,
        "done": terminated | truncated,
    }
    return TensorDict({"observation": number, "next": after}, [envs, time])


def by_hand(steps: TensorDict, n: int) -> dict[float, tuple[float, int, float, bool, bool]]:
    """By number of its first step: reward, steps, last observation and flags of each span."""
    found = {}
    for env in steps.unbind(0):
        for t in range(env.shape[0]):
            total, k = 0.0, 0
            while t + k < env.shape[0]:
                after = env[t + k]["next"]
                total += GAMMA**k * after["reward"].item()
                k += 1
                if after["done"] or k == n:
                    found[env[t]["observation"].item()] = (
                        pytest.approx(total, abs=1e-5),
                        k,
                        after["observation"].item(),
                        after["terminated"].item(),
                        after["done"].item(),
                    )
                    break
    return found


def told(rows: TensorDict, after: str, steps: torch.Tensor) -> dict:
    ends = rows[after]
    columns = (
        ends["reward"].flatten(),
        steps,
        ends["observation"].flatten(),
        ends["terminated"].flatten(),
        ends["done"].flatten(),
    )
    values = zip(*(column.tolist() for column in columns), strict=True)
    return dict(zip(rows["observation"].flatten().tolist(), values, strict=True))


def in_parts(fold: MultiStepFold, steps: TensorDict, most: int) -> TensorDict:
    rows, start = [], 0
    while start < steps.shape[1]:
        stop = start + int(torch.randint(1, most + 1, ()))
        rows.append(fold(steps[:, start:stop]))
        start = stop
    return torch.cat(rows)


@pytest.mark.parametrize("most", [1, 4, 40])
@pytest.mark.parametrize("n", [1, 2, 5])
def test_every_row_once_and_right_in_any_parts(n, most):
    for seed in range(5):
        steps = episodes(seed)
        fold = MultiStepFold(gamma=GAMMA, n_steps=n)
        rows = in_parts(fold, steps, most)
        expected = by_hand(steps, n)
        assert len(rows) == len(expected)
        assert told(rows, "next", rows["steps_to_next_obs"]) == expected
        assert fold.held == steps.numel() - len(expected) <= ENVS * (n - 1)


@pytest.mark.parametrize(("n", "ahead"), [(1, 6), (3, 6), (4, 2)])
def test_a_second_length_beside_the_first(n, ahead):
    steps = episodes(1)
    rows = in_parts(MultiStepFold(gamma=GAMMA, n_steps=n, ahead_steps=ahead), steps, 3)
    near, far = by_hand(steps, n), by_hand(steps, ahead)
    known = near.keys() & far.keys()  # a row waits for the longer of its two
    assert told(rows, "next", rows["steps_to_next_obs"]) == {key: near[key] for key in known}
    found = told(rows, "ahead", rows["ahead", "steps_to_next_obs"])
    assert found == {key: far[key] for key in known}


@pytest.mark.parametrize("n", [1, 2, 5])
def test_against_torchrl(n):
    for seed in range(5):
        steps = episodes(seed)
        steps["next", "truncated"] = steps["next", "done"] & ~steps["next", "terminated"]
        theirs, rows = MultiStepTransform(n_steps=n, gamma=GAMMA), []
        for part in steps.split(8, 1):
            # It gives nothing back as long as it holds everything.
            if (out := theirs.inv(part.clone())) is not None:
                rows.append(out.reshape(-1))
        theirs_rows = torch.cat(rows)
        expected = told(theirs_rows, "next", theirs_rows["steps_to_next_obs"])
        ours = in_parts(MultiStepFold(gamma=GAMMA, n_steps=n), steps, 8)
        found = told(ours, "next", ours["steps_to_next_obs"])
        assert expected.keys() <= found.keys()
        for key, (reward, count, last, *flags) in expected.items():
            assert found[key][:3] == (pytest.approx(reward, abs=1e-5), count, last)
            # Its flags are those of the first step of a span, ours of the last.
            if count == 1:
                assert list(found[key][3:]) == flags


def test_the_end_of_an_episode_is_known_at_once_and_not_crossed():
    flags = torch.tensor([False, True, False])[:, None]
    after = {"reward": torch.tensor([[1.0], [10.0], [100.0]]), "done": flags, "terminated": flags}
    rows = MultiStepFold(gamma=0.5, n_steps=3)(
        TensorDict({"t": torch.arange(3), "next": after}, [3])
    )
    assert rows["t"].tolist() == [0, 1]
    assert rows["next", "reward"].flatten().tolist() == [6.0, 10.0]
    assert rows["next", "terminated"].all()


def test_an_environment_without_a_batch_and_nested_entries():
    after = {
        "reward": torch.ones(4, 1),
        "done": torch.zeros(4, 1).bool(),
        "a": {"b": torch.ones(4)},
    }
    batch = TensorDict({"a": {"b": torch.arange(4.0)}, "next": after}, [4])
    rows = MultiStepFold(gamma=1.0, n_steps=2)(batch)
    assert rows["a", "b"].tolist() == [0.0, 1.0, 2.0]
    assert rows["next", "a", "b"].tolist() == [1.0] * 3


def test_what_was_given_is_left_as_it_was():
    steps = episodes(0)
    kept = steps.clone()
    MultiStepFold(gamma=GAMMA, n_steps=3)(steps)
    assert (steps == kept).all()


@pytest.mark.parametrize(("name", "value"), [("n_steps", 0), ("ahead_steps", -1)])
def test_refusals(name, value):
    with pytest.raises(ValueError, match=f"`{name}` must .*, got `{value}`"):
        MultiStepFold(**{"gamma": GAMMA, "n_steps": 2, name: value})
