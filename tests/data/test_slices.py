"""Slices against a walk through each environment, whatever the batches steps come in."""

from __future__ import annotations

import copy
from typing import NamedTuple

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tensordict import TensorDict

from torchrl_elegant.data.slices import Carry, SliceCutter

MOST = 1000


class Stream(NamedTuple):
    """One long stream ``[*envs, time]`` and the times at which it is cut into batches."""

    steps: TensorDict
    cuts: list[int]
    horizon: int

    @property
    def rows(self) -> TensorDict:
        *envs, time = self.steps.shape
        return self.steps.reshape(torch.Size(envs).numel(), time)

    @property
    def batches(self) -> list[TensorDict]:
        ends = zip([0, *self.cuts], [*self.cuts, self.steps.shape[-1]], strict=True)
        return [self.steps[..., start:stop] for start, stop in ends]


def numbered(envs: tuple[int, ...], time: int, done: list[bool]) -> TensorDict:
    """Steps that tell who made them: environment times ``MOST``, and time."""
    count = torch.Size(envs).numel()
    number = (torch.arange(count)[:, None] * MOST + torch.arange(time)).reshape(*envs, time)
    flags = torch.tensor(done, dtype=torch.bool).reshape(*envs, time, 1)
    after = {
        "done": flags,
        "terminated": flags & (number % 2 == 0).unsqueeze(-1),
        "reward": number.unsqueeze(-1) / 7,
    }
    now = {"number": number, "agent": {"seen": number.unsqueeze(-1).double() + torch.rand(3)}}
    return TensorDict({**now, "next": after}, [*envs, time])


@st.composite
def streams(draw) -> Stream:
    envs = draw(st.sampled_from([(), (1,), (3,), (2, 2)]))
    time = draw(st.integers(0, 24))
    count = torch.Size(envs).numel() * time
    # How often an episode ends: never, now and then, at every step.
    often = draw(st.integers(0, 10))
    ends = st.integers(0, 9).map(lambda x: x < often)
    done = draw(st.lists(ends, min_size=count, max_size=count))
    cuts = sorted(draw(st.lists(st.integers(0, time), max_size=8)))
    return Stream(numbered(envs, time, done), cuts, draw(st.integers(1, 9)))


def by_hand(stream: Stream, start: int, stop: int) -> list[list[int]]:
    """Numbers of the steps of each slice that ends between two times, one step at a time."""
    found, rows = [], stream.rows
    for env in range(rows.shape[0]):
        piece: list[int] = []
        for t in range(stop):
            piece.append(rows["number"][env, t].item())
            if rows["next", "done"][env, t].item() or len(piece) == stream.horizon:
                if t >= start:
                    found.append(piece)
                piece = []
    return found


def told(slices: TensorDict) -> list[list[int]]:
    return [
        row["number"][row["mask"]].tolist() if row["mask"].any() else [] for row in slices.unbind(0)
    ]


KEYS = ["number", ("agent", "seen"), ("next", "reward"), ("next", "terminated")]


@settings(max_examples=300, deadline=None)
@given(streams())
def test_any_batches_give_the_slices_of_a_walk_in_their_order(stream):
    cutter, at = SliceCutter(stream.horizon, keys=KEYS), 0
    for batch in stream.batches:
        slices = cutter(batch)
        assert slices.shape[1:] == (stream.horizon,)
        # A slice comes with its last step, not before and not after.
        assert told(slices) == by_hand(stream, at, at + batch.shape[-1])
        at += batch.shape[-1]


@settings(max_examples=100, deadline=None)
@given(streams())
def test_what_slices_hold(stream):
    cutter = SliceCutter(stream.horizon, keys=KEYS)
    slices = torch.cat([cutter(batch) for batch in stream.batches])
    mask, number = slices["mask"], slices["number"]
    rows = stream.rows
    # Padding comes last, is the last step again, and is there for nothing but the episode's end.
    size = mask.sum(1)
    steps = torch.arange(stream.horizon)
    assert torch.equal(mask, steps < size.unsqueeze(1))
    assert (size >= 1).all()
    last = number.gather(1, size.unsqueeze(1) - 1)
    assert torch.equal(number, torch.where(mask, number, last))
    done = slices["next", "done"].squeeze(-1)
    assert done.gather(1, size.unsqueeze(1) - 1)[size < stream.horizon].all()
    # Steps follow each other, and no slice goes on after an end.
    assert ((number.diff(dim=1) == 1) == mask[:, 1:]).all()
    assert not (done[:, :-1] & mask[:, 1:]).any()
    # No step twice, and none lost but those that wait: fewer than a slice, of an open episode.
    seen = number[mask].tolist()
    assert len(seen) == len(set(seen))
    waiting = set(rows["number"].flatten().tolist()) - set(seen)
    for env in range(rows.shape[0]):
        late = sorted(x for x in waiting if x // MOST == env)
        assert len(late) < stream.horizon
        assert late == rows["number"][env, rows.shape[1] - len(late) :].tolist()
        assert not rows["next", "done"][env, rows.shape[1] - len(late) :].any()
    # Every entry is of the step that it says.
    for key in (*KEYS, ("next", "done")):
        expected = rows.get(key)[number // MOST, number % MOST]
        assert torch.equal(slices.get(key), expected), key
        assert slices.get(key).dtype == stream.steps.get(key).dtype


def test_by_hand():
    done = [False, True, False, False, False, False, False, True, False]
    cutter = SliceCutter(3, keys=["number"])
    stream = numbered((1,), 9, done)
    found = [told(cutter(part)) for part in stream.split(2, 1)]
    assert found == [[[0, 1]], [], [[2, 3, 4]], [[5, 6, 7]], []]


def test_one_step_is_a_slice_at_once():
    cutter = SliceCutter(1, keys=["number"])
    slices = cutter(numbered((2,), 3, [False] * 6))
    assert slices["number"].tolist() == [[0], [1], [2], [MOST], [MOST + 1], [MOST + 2]]
    assert slices["mask"].all()


def test_batches_without_a_step():
    for horizon in (1, 3):
        cutter = SliceCutter(horizon, keys=KEYS)
        nothing, two = numbered((2,), 0, []), numbered((2,), 2, [False] * 4)
        assert cutter(nothing).shape == (0, horizon)
        cutter(two)
        assert cutter(nothing).shape == (0, horizon)
        assert len(cutter(numbered((2,), 1, [True] * 2))) == 2


def test_what_is_held_stays_bounded():
    cutter = SliceCutter(4, keys=["number"])
    for _ in range(20):
        cutter(numbered((2,), 7, [False] * 14))
    assert max(rows.shape[1] for rows in cutter._carry._rows.values()) == 3


def test_a_copy_goes_on_by_itself():
    stream = numbered((2,), 6, [False] * 12)
    cutter = SliceCutter(4, keys=["number"])
    cutter(stream[:, :3])
    other = copy.deepcopy(cutter)
    assert told(cutter(stream[:, 3:])) == told(other(stream[:, 3:]))


def test_what_was_given_is_left_as_it_was_and_not_shared():
    stream = numbered((2,), 6, [False] * 12)
    kept = stream.clone()
    slices = SliceCutter(2, keys=KEYS)(stream)
    slices["number"].zero_()
    assert (stream == kept).all()


def test_an_end_under_another_name():
    steps = numbered((), 4, [False, True, False, False])
    after = {"agent": {"over": steps["next", "done"]}}
    steps = TensorDict({"number": steps["number"], "next": after}, [4])
    cutter = SliceCutter(3, keys=["number"], done_key=("agent", "over"))
    slices = cutter(steps)
    assert told(slices) == [[0, 1]]
    assert slices["next", "agent", "over"].flatten().tolist() == [False, True, True]


def test_refusals():
    with pytest.raises(ValueError, match="`horizon` must be at least 1, got `0`"):
        SliceCutter(0, keys=[])
    # It would be overwritten without a word.
    with pytest.raises(ValueError, match="`keys` must not hold `mask`"):
        SliceCutter(2, keys=["number", "mask"])
    with pytest.raises(KeyError, match="missing"):
        SliceCutter(2, keys=["missing"])(numbered((), 1, [False]))


def test_the_carry_keeps_what_it_is_told():
    carry, row = Carry(), TensorDict({"a": {"b": torch.arange(6).reshape(2, 3)}}, [2, 3])
    assert carry.join(row)["a", "b"].tolist() == [[0, 1, 2], [3, 4, 5]]
    carry.keep(carry.join(row), 2)
    assert carry.join(row[:, :1])["a", "b"].tolist() == [[1, 2, 0], [4, 5, 3]]
    carry.keep(carry.join(row), 0)
    assert carry.join(row)["a", "b"].tolist() == [[0, 1, 2], [3, 4, 5]]
    carry.keep(carry.join(row[:, :1]), 9)  # more than there are
    assert carry.join(row[:, :1])["a", "b"].tolist() == [[0, 0], [3, 3]]
