"""Folding single steps into longer ones, whatever the batches they come in."""

from __future__ import annotations

import pytest
import torch
from no_sync import NoSync
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


def waited_for(steps: TensorDict, n: int) -> set[float]:
    """The numbers of the rows that `n - 1` more steps follow."""
    return {*steps["observation"][:, : steps.shape[1] - n + 1].flatten().tolist()}


@pytest.mark.parametrize("most", [1, 4, 40])
@pytest.mark.parametrize("n", [1, 2, 5])
def test_every_row_once_and_right_in_any_parts(n, most):
    for seed in range(5):
        steps = episodes(seed)
        fold = MultiStepFold(gamma=GAMMA, n_steps=n)
        rows = in_parts(fold, steps, most)
        spans, known = by_hand(steps, n), waited_for(steps, n)
        expected = {key: spans[key] for key in known}
        assert len(rows) == len(expected)
        assert told(rows, "next", rows["steps_to_next_obs"]) == expected
        assert fold.held == steps.numel() - len(expected) == ENVS * (n - 1)


@pytest.mark.parametrize(("n", "ahead"), [(1, 6), (3, 6), (4, 2)])
def test_a_second_length_beside_the_first(n, ahead):
    steps = episodes(1)
    rows = in_parts(MultiStepFold(gamma=GAMMA, n_steps=n, ahead_steps=ahead), steps, 3)
    near, far = by_hand(steps, n), by_hand(steps, ahead)
    known = waited_for(steps, max(n, ahead))  # a row waits for the longer of its two
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
        # TorchRL gives out at once what an episode ended with; ours waits for n - 1 more steps.
        expected = {key: expected[key] for key in expected if key in waited_for(steps, n)}
        assert expected.keys() <= found.keys()
        for key, (reward, count, last, *flags) in expected.items():
            assert found[key][:3] == (pytest.approx(reward, abs=1e-5), count, last)
            # Its flags are those of the first step of a span, ours of the last.
            if count == 1:
                assert list(found[key][3:]) == flags


def test_the_end_of_an_episode_waits_for_later_steps_and_is_not_crossed():
    flags = torch.tensor([False, True, False, False])[:, None]
    reward = torch.tensor([[1.0], [10.0], [100.0], [1000.0]])
    after = {"reward": reward, "done": flags, "terminated": flags}
    steps = TensorDict({"t": torch.arange(4), "next": after}, [4])
    fold = MultiStepFold(gamma=0.5, n_steps=3)
    assert (len(fold(steps[:2])), fold.held) == (0, 2)
    rows = fold(steps[2:])
    assert fold.held == 2
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


def test_nested_reward_and_done_keys():
    flat, keys = episodes(2), {"reward_key": ("team", "gain"), "done_key": ("team", "over")}
    after = flat["next"]
    team = {"gain": after["reward"], "over": after["done"]}
    nested = TensorDict(
        {"observation": flat["observation"], "next": {"team": team, "seen": after["observation"]}},
        flat.shape,
    )
    ours = MultiStepFold(gamma=GAMMA, n_steps=3, ahead_steps=5, **keys)(nested)
    plain = MultiStepFold(gamma=GAMMA, n_steps=3, ahead_steps=5)(flat)
    for at in ("next", "ahead"):
        for key, other in (("reward", "gain"), ("done", "over")):
            assert torch.equal(ours[at, "team", other], plain[at, key])
        assert torch.equal(ours[at, "seen"], plain[at, "observation"])
    assert torch.equal(ours["steps_to_next_obs"], plain["steps_to_next_obs"])


def test_nothing_waits_for_a_device():
    fold, steps = MultiStepFold(gamma=GAMMA, n_steps=3, ahead_steps=5), episodes(0)
    with NoSync():
        rows = [fold(part) for part in steps.split(7, 1)]
    # Without values there is no number of rows that could depend on them.
    empty = MultiStepFold(gamma=GAMMA, n_steps=3, ahead_steps=5)
    for part, row in zip(steps.split(7, 1), rows, strict=True):
        told = empty(part.to("meta"))
        assert [value.shape for value in told.values(True, True)] == [
            value.shape for value in row.values(True, True)
        ]


def test_what_was_given_is_left_as_it_was():
    steps = episodes(0)
    kept = steps.clone()
    MultiStepFold(gamma=GAMMA, n_steps=3)(steps)
    assert (steps == kept).all()


@pytest.mark.parametrize(("name", "value"), [("n_steps", 0), ("ahead_steps", -1)])
def test_refusals(name, value):
    with pytest.raises(ValueError, match=f"`{name}` must .*, got `{value}`"):
        MultiStepFold(**{"gamma": GAMMA, "n_steps": 2, name: value})
