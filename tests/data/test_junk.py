"""Flagged transitions are left out of rows, slices, sequences and statistics."""

from __future__ import annotations

import pytest
import torch
from junk_toys import NextStep
from tensordict import TensorDict

from torchrl_elegant.data import (
    BestSlices,
    Moments,
    MultiStepFold,
    ReturnScale,
    SequenceFold,
    SliceCutter,
    cut_rollout,
    refilled,
    without_junk,
)
from torchrl_elegant.functional import junk_of


@pytest.fixture
def batches():
    """Two batches ``[3, 8]`` that follow each other."""
    env = NextStep()
    steps = env.rollout(16, auto_reset=True, break_when_any_done=False)
    assert junk_of(steps).sum() == 5 + 4 + 3
    return steps[:, :8], steps[:, 8:]


def same_episode(before, after):
    """The rows and episodes of two observations agree."""
    return bool((before[..., :2] == after[..., :2]).all())


def test_rows_without_the_flag_stay_as_they_are():
    rows = TensorDict({"x": torch.arange(3)}, [3])
    assert without_junk(rows) is rows
    assert refilled(rows) is rows


def test_junk_spans_a_reset_and_nothing_else_does(batches):
    for batch in batches:
        junk = junk_of(batch)
        before, after = batch["observation"], batch["next", "observation"]
        assert not (before[junk][:, 1] == after[junk][:, 1]).any()
        rows = without_junk(batch)
        assert len(rows) == (~junk).sum()
        assert "junk" not in rows
        assert same_episode(rows["observation"], rows["next", "observation"])


def test_places_are_refilled_evenly():
    flags = torch.tensor([0, 1, 0, 1, 1, 0, 1, 1]).bool().unsqueeze(-1)
    rows = TensorDict({"x": torch.arange(8), "junk": flags}, [8])
    found = torch.stack([refilled(rows)["x"] for _ in range(600)])
    assert found[:, [0, 2, 5]].unique(dim=0).tolist() == [[0, 2, 5]]
    counts = found.flatten().bincount(minlength=8) / 600
    assert counts[[1, 3, 4, 6, 7]].sum() == 0
    assert (counts[[0, 2, 5]] - 8 / 3).abs().max() < 0.2


@pytest.mark.parametrize("n_steps", [1, 3])
def test_folds_do_not_bridge_it(batches, n_steps):
    fold = MultiStepFold(gamma=0.5, n_steps=n_steps, ahead_steps=4)
    rows = torch.cat([without_junk(fold(batch)) for batch in batches])
    assert same_episode(rows["observation"], rows["next", "observation"])
    assert same_episode(rows["observation"], rows["ahead", "observation"])
    # Row i's episodes have i + 2 steps.
    left = rows["observation"][:, 0] + 2 - rows["observation"][:, 2]
    steps = left.clamp(max=n_steps)
    assert torch.equal(rows["steps_to_next_obs"].float(), steps)
    assert torch.allclose(rows["next", "reward"][:, 0], 2 - 0.5 ** (steps - 1))


def test_slices_leave_it_out(batches):
    cutter = SliceCutter(3, keys=["observation", ("next", "observation")])
    for slices in map(cutter, batches):
        assert "junk" not in slices
        assert same_episode(slices["observation"][:, :1], slices["next", "observation"])
        assert (slices["observation"][:, 0, 2] % 3 == 0).all()
        # The slice of a junk step would begin where an episode has ended.
        seen = slices["observation"][:, 0]
        assert (seen[:, 2] < seen[:, 0] + 2).all()


def test_the_best_slices_are_played(batches):
    store = BestSlices(horizon=2, max_age=1000, keys=["observation"])
    for batch in batches:
        store.extend(batch)
    slices = store.sample(64)
    assert (slices["next", "reward"] == 1.0).all()


def test_sequences_mask_it(batches):
    fold = SequenceFold(length=4, burn_in=2, state_keys=["action"])
    both = torch.cat(batches, -1)
    for batch in batches:
        rows = fold(batch)
        assert "junk" not in rows
        assert torch.equal(rows["mask"], rows["next", "reward"][..., 0] == 1.0)
    rows = cut_rollout(both, 5)
    real = (torch.arange(20) < 16).view(4, 5).repeat(3, 1)
    assert torch.equal(rows["mask"], real & (rows["next", "reward"][..., 0] == 1.0))


def test_statistics_do_not_count_it(batches):
    batch = batches[0]
    masked, alone = Moments((3,)), Moments((3,))
    masked.add(batch["observation"], without=junk_of(batch))
    alone.add(without_junk(batch)["observation"])
    assert masked.count == alone.count
    assert torch.allclose(masked.mean, alone.mean)
    assert torch.allclose(masked.squares, alone.squares)
    masked.add(batch["observation"], without=torch.ones_like(junk_of(batch)))
    assert masked.count == alone.count
    assert torch.allclose(masked.mean, alone.mean)


def test_returns_are_scaled_as_if_it_were_not_there(batches):
    reward, done = (batches[0]["next", key].squeeze(-1) for key in ("reward", "done"))
    junk = junk_of(batches[0])
    masked, alone = ReturnScale(gamma=0.9), ReturnScale(gamma=0.9)
    masked.observe(reward, done, without=junk)
    for row in range(3):
        keep = ~junk[row]
        alone.observe(reward[row, keep][None], done[row, keep][None], stream=row)
    assert masked.moments.count == alone.moments.count
    assert torch.allclose(masked.scale, alone.scale)
