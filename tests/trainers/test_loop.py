"""The loop: what it tells the clock, and how it draws its batches."""

from __future__ import annotations

import importlib
from types import SimpleNamespace

import pytest
import torch
from tensordict import TensorDict

from torchrl_elegant.data import make_buffer
from torchrl_elegant.trainers.clock import Clock
from torchrl_elegant.trainers.off_policy import draw, train_off_policy

loop = importlib.import_module("torchrl_elegant.trainers.off_policy")


@pytest.fixture
def buffer():
    buffer = make_buffer(size=100)
    rows = torch.arange(100.0)
    buffer.extend(TensorDict({"x": rows, "next": {"y": -rows}}, [100]))
    return buffer


@pytest.mark.parametrize("count", [0, 1, 2, 7])
def test_batches(buffer, count):
    drawn = list(draw(buffer, 16, count))
    assert [rows.shape for rows in drawn] == [(16 * count,)] * (count > 0)
    assert all(torch.equal(rows["x"], -rows["next", "y"]) for rows in drawn)


def test_batches_differ(buffer):
    (rows,) = draw(buffer, 32, 2)
    first, second = rows.split(32)
    assert not torch.equal(first["x"], second["x"])


def test_one_sample_serves_all(buffer):
    sizes, sample = [], buffer.sample

    def watched(size):
        sizes.append(size)
        return sample(size)

    buffer.sample = watched
    list(draw(buffer, 8, 5))
    list(draw(buffer, 8, 1))
    assert sizes == [40, 8]


ROW = 4 + 4 + 8  # x, next y and the index that the buffer adds, in bytes


@pytest.mark.parametrize(
    ("room", "drawn"),
    [
        (8 * 5 * ROW, [40]),
        (8 * 5 * ROW - 1, [32, 8]),
        (8 * 2 * ROW, [16, 16, 8]),
        (1, [8] * 5),  # one batch has to be held, whatever it takes
    ],
)
def test_what_is_drawn_at_once_is_bounded(buffer, monkeypatch, room, drawn):
    monkeypatch.setattr(loop, "_BYTES", room)
    sizes, sample = [], buffer.sample

    def watched(size):
        sizes.append(size)
        return sample(size)

    buffer.sample = watched
    found = list(draw(buffer, 8, 5))
    assert sizes == drawn == [rows.shape[0] for rows in found]


def test_usual_rounds_are_drawn_in_one_go(monkeypatch):
    # 64 batches of 256 Humanoid transitions.
    buffer = make_buffer(size=2)
    state, flag = torch.zeros(2, 348), torch.zeros(2, 1, dtype=torch.bool)
    after = {"observation": state, "reward": torch.zeros(2, 1), "done": flag, "terminated": flag}
    row = TensorDict({"observation": state, "action": torch.zeros(2, 17), "next": after}, [2])
    buffer.extend(row)
    sizes, sample = [], buffer.sample
    monkeypatch.setattr(buffer, "sample", lambda size: sizes.append(size) or sample(size))
    assert len(list(draw(buffer, 256, 64))) == 1
    assert sizes == [64 * 256]


class Played:
    """Stands in for all that a loop works with; each part takes its own number of seconds."""

    activity = "wait"
    sampler = None

    def __init__(self, hand):
        self.hand, self.clock = hand, Clock()
        self.noted = self.finished = 0

    def __iter__(self):
        for due in (0, 2, 3):
            self.hand.turn(1)
            yield due

    def sample(self, size):
        self.hand.turn(10)
        return torch.zeros(size)

    def __getitem__(self, index):
        return SimpleNamespace(bytes=lambda: 1)

    def learn(self, rows, batch_size):
        for _ in rows.split(batch_size):
            self.hand.turn(100)
            yield {}

    def note(self, metrics):
        self.noted += 1
        self.hand.turn(1_000)

    def push(self, due):
        self.hand.turn(10_000)

    def after(self, source):
        self.hand.turn(100_000)
        return True

    def finish(self, source):
        self.finished += 1


def test_the_clock_is_told_what_the_loop_does(hand):
    run = Played(hand)
    train_off_policy(run, run, run, run, batch_size=4)
    assert (run.noted, run.finished) == (5, 1)
    seconds = {name: count for name, count in run.clock.seconds().items() if count}
    assert seconds == {"wait": 3, "sample": 20, "learn": 500, "other": 335_000}
