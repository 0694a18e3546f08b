"""Rows of sequences: what they hold, in any division into batches."""

from __future__ import annotations

import pytest
import torch
from tensordict import TensorDict

from torchrl_elegant.data import SequenceFold, cut_rollout
from torchrl_elegant.modules import GRU


def stream(envs: int, time: int) -> TensorDict:
    """Steps that say where they are from; the state of a step is its number."""
    number = torch.arange(envs * time).view(envs, time, 1).float()
    after = {"reward": number, "done": torch.rand(envs, time, 1) < 0.2}
    values = {"x": number.expand(-1, -1, 3), "agents": {"state": number}, "next": after}
    return TensorDict(values, [envs, time])


def folded(steps: TensorDict, fold: SequenceFold, sizes: list[int]) -> TensorDict:
    return torch.cat([fold(part) for part in steps.split(sizes, 1)])


@pytest.mark.parametrize("burn_in", [0, 2])
def test_each_step_is_learned_from_once_behind_its_burn_in(burn_in: int) -> None:
    steps = stream(2, 17)
    fold = SequenceFold(length=3, burn_in=burn_in, state_keys=[("agents", "state")])
    rows = fold(steps)
    learned = rows["next", "reward"][:, burn_in:].flatten().sort().values
    expected = steps["next", "reward"][:, burn_in : 17 - fold.held + burn_in].flatten()
    torch.testing.assert_close(learned, expected)
    torch.testing.assert_close(rows["agents", "state"], rows["x"][:, 0, :1])
    assert rows["x"].shape[1:] == (3 + burn_in, 3)
    assert (rows["x"].diff(dim=1) == 1).all()


@pytest.mark.parametrize("sizes", [[1] * 17, [5, 12], [16, 1], [3, 3, 11]])
def test_batches_of_any_size_give_the_same_rows(sizes: list[int]) -> None:
    steps, options = stream(3, 17), {"length": 4, "burn_in": 3, "state_keys": [("agents", "state")]}
    whole, parts = SequenceFold(**options)(steps), folded(steps, SequenceFold(**options), sizes)
    order = [rows["x"][:, 0, 0].argsort() for rows in (whole, parts)]
    for key in whole.keys(True, True):
        torch.testing.assert_close(whole[key][order[0]], parts[key][order[1]])


def test_a_restart_joins_nothing_across_it() -> None:
    fold = SequenceFold(length=3)
    assert len(fold(stream(1, 2))) == 0
    assert fold.held == 2
    fold.restart()
    assert fold(stream(1, 3))["x"][0, :, 0].tolist() == [0, 1, 2]


def test_a_rollout_is_cut_into_whole_rows_or_masked_ones() -> None:
    steps = stream(2, 8)
    assert "mask" not in cut_rollout(steps, 4)
    rows = cut_rollout(steps, 3, state_keys=[("agents", "state")])
    assert rows.shape == (6,)
    assert rows["mask"].sum() == 16
    torch.testing.assert_close(rows["x"][rows["mask"]][:, 0], torch.arange(16.0))
    assert cut_rollout(steps, 100)["x"].shape == (2, 8, 3)


@pytest.mark.parametrize("seed", range(3))
def test_states_of_rows_are_those_of_one_episode_at_a_time(seed: int) -> None:
    """The state at each learned step, with random ends, against a loop over single steps."""
    torch.manual_seed(seed)
    gru, steps = GRU(in_features=3, hidden_size=4), stream(2, 23)
    steps["x"] = torch.randn(2, 23, 3)
    before, after = torch.zeros(2, 23, 4), torch.zeros(2, 23, 4)
    for env in range(2):
        state = torch.zeros(1, 4)
        for t in range(23):
            before[env, t] = state
            state = gru.step(steps["x"][env, t : t + 1], state)
            after[env, t] = state
            if steps["next", "done"][env, t]:
                state = torch.zeros(1, 4)
    steps["agents", "state"], steps["after"] = before, after
    rows = SequenceFold(length=4, burn_in=2, state_keys=[("agents", "state")])(steps)
    done = rows["next", "done"].squeeze(-1)
    begins = torch.cat([torch.zeros_like(done[:, :1]), done[:, :-1]], 1)
    states = gru.unroll(rows["x"], rows["agents", "state"], begins)
    torch.testing.assert_close(states, rows["after"])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"length": 0}, "`length` must be at least 1, got `0`"),
        ({"length": 1, "burn_in": -1}, "`burn_in` must be 0 or more, got `-1`"),
    ],
)
def test_impossible_sizes_are_refused(options: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        SequenceFold(**options)
