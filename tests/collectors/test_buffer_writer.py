"""The thread that moves rows: what it keeps for those who ask what is new."""

from __future__ import annotations

import pytest
import torch
from tensordict import TensorDict

from torchrl_elegant.collectors.workers.buffer_writer import BufferWriter
from torchrl_elegant.data import make_buffer


class Rings:
    """Hands over what was put into it."""

    rows_per_slot = 1

    def __init__(self) -> None:
        self.ready: list[TensorDict] = []

    def take(self, worker: int):
        return (self.ready.pop(0) if self.ready else None), []


@pytest.fixture
def writer():
    rings = Rings()
    made = BufferWriter(rings, make_buffer(size=10_000), workers=1)

    def move(*sizes: int) -> BufferWriter:
        for size in sizes:
            first = made.frames
            rings.ready.append(TensorDict({"x": torch.arange(first, first + size)}, [size]))
            made._move()
        return made

    return move


def test_new_rows_are_handed_over_once(writer):
    assert writer().arrivals() == []
    arrived = writer(3, 2).arrivals()
    assert [(worker, rows["x"].tolist()) for worker, rows in arrived] == [
        (0, [[0, 1, 2]]),
        (0, [[3, 4]]),
    ]
    assert writer().arrivals() == []
    assert writer(1).arrivals()[0][1]["x"].tolist() == [[5]]


@pytest.mark.parametrize("sizes", [(600, 600, 600), (3_000,), (1,) * 1_030, (1_024, 1)])
def test_no_more_than_the_last_rows_are_kept(writer, sizes):
    moved = writer(*sizes)
    kept = torch.cat([rows["x"][0] for _, rows in moved.arrivals()])
    assert 1_024 <= len(kept) < 1_024 + max(sizes)
    assert kept.tolist() == list(range(sum(sizes)))[-len(kept) :]


def test_all_rows_are_kept_for_who_wants_all():
    rings = Rings()
    rings.ready = [TensorDict({"x": torch.zeros(600)}, [600]) for _ in range(4)]
    writer = BufferWriter(rings, make_buffer(size=10), workers=1, keep=None)
    for _ in range(4):
        writer._move()
    assert sum(rows.numel() for _, rows in writer.arrivals()) == 2_400


def test_batches_are_put_back_in_time_and_folded_by_worker():
    rings, buffer, seen = Rings(), make_buffer(size=100), ([], [])
    rings.rows_per_slot = 6  # 2 environments, 3 steps

    def fold(worker: int):
        def keep_the_last(batch):
            seen[worker].append(batch["x"].tolist())
            return batch[:, -1:].reshape(-1)

        return keep_the_last

    writer = BufferWriter(rings, buffer, workers=2, envs=2, folds=[fold(0), fold(1)])
    # Two whole batches and a cut one of the first worker, then a cut one alone of the second.
    rings.ready = [
        TensorDict({"x": torch.arange(14)}, [14]),
        TensorDict({"x": torch.arange(4)}, [4]),
    ]
    writer._move()
    assert seen == ([[[0, 1, 2, 6, 7, 8], [3, 4, 5, 9, 10, 11]]], [])
    assert buffer[:]["x"].tolist() == [8, 11]
    assert writer.frames == 18
    assert [(worker, rows.shape) for worker, rows in writer.arrivals()] == [(0, (2, 6))]


def test_rows_need_a_buffer():
    with pytest.raises(TypeError, match="`replay_buffer` must be a ReplayBuffer, got dict"):
        BufferWriter(Rings(), {}, workers=1)


def test_episodes_that_nobody_asks_for_do_not_pile_up():
    rings = Rings()
    rings.take = lambda worker: (None, [(float(number), 1) for number in range(6_000)])
    writer = BufferWriter(rings, make_buffer(size=10), workers=2)
    writer._move()
    kept = writer.episodes()
    assert len(kept) == 10_000
    assert [kept[0][0], kept[-1][0]] == [2_000.0, 5_999.0]
    assert writer.episodes() == []
