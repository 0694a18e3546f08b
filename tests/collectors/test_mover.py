"""The thread that moves rows: what it keeps for those who ask what is new."""

from __future__ import annotations

import pytest
import torch
from tensordict import TensorDict

from torchrl_elegant.collectors.workers.mover import RowMover
from torchrl_elegant.data import make_buffer


class Stage:
    """Hands over what was put into it."""

    rows_per_slot = 1

    def __init__(self) -> None:
        self.ready: list[TensorDict] = []

    def take(self, worker: int):
        return (self.ready.pop(0) if self.ready else None), []


@pytest.fixture
def mover():
    stage = Stage()
    made = RowMover(stage, make_buffer(size=10_000), workers=1)

    def move(*sizes: int) -> RowMover:
        for size in sizes:
            first = made.frames
            stage.ready.append(TensorDict({"x": torch.arange(first, first + size)}, [size]))
            made._move()
        return made

    return move


def test_new_rows_are_handed_over_once(mover):
    assert mover().arrivals() == []
    arrived = mover(3, 2).arrivals()
    assert [(worker, rows["x"].tolist()) for worker, rows in arrived] == [
        (0, [[0, 1, 2]]),
        (0, [[3, 4]]),
    ]
    assert mover().arrivals() == []
    assert mover(1).arrivals()[0][1]["x"].tolist() == [[5]]


@pytest.mark.parametrize("sizes", [(600, 600, 600), (3_000,), (1,) * 1_030, (1_024, 1)])
def test_no_more_than_the_last_rows_are_kept(mover, sizes):
    moved = mover(*sizes)
    kept = torch.cat([rows["x"][0] for _, rows in moved.arrivals()])
    assert 1_024 <= len(kept) < 1_024 + max(sizes)
    assert kept.tolist() == list(range(sum(sizes)))[-len(kept) :]


def test_all_rows_are_kept_for_who_wants_all():
    stage = Stage()
    stage.ready = [TensorDict({"x": torch.zeros(600)}, [600]) for _ in range(4)]
    mover = RowMover(stage, make_buffer(size=10), workers=1, keep=None)
    for _ in range(4):
        mover._move()
    assert sum(rows.numel() for _, rows in mover.arrivals()) == 2_400


def test_batches_are_put_back_in_time_and_folded_by_worker():
    stage, buffer, seen = Stage(), make_buffer(size=100), ([], [])
    stage.rows_per_slot = 6  # 2 environments, 3 steps

    def fold(worker: int):
        def keep_the_last(batch):
            seen[worker].append(batch["x"].tolist())
            return batch[:, -1:].reshape(-1)

        return keep_the_last

    mover = RowMover(stage, buffer, workers=2, envs=2, folds=[fold(0), fold(1)])
    # Two whole batches and a cut one of the first worker, then a cut one alone of the second.
    stage.ready = [
        TensorDict({"x": torch.arange(14)}, [14]),
        TensorDict({"x": torch.arange(4)}, [4]),
    ]
    mover._move()
    assert seen == ([[[0, 1, 2, 6, 7, 8], [3, 4, 5, 9, 10, 11]]], [])
    assert buffer[:]["x"].tolist() == [8, 11]
    assert mover.frames == 18
    assert [(worker, rows.shape) for worker, rows in mover.arrivals()] == [(0, (2, 6))]


def test_rows_need_a_buffer():
    with pytest.raises(TypeError, match="`replay_buffer` must be a ReplayBuffer, got dict"):
        RowMover(Stage(), {}, workers=1)


def test_episodes_that_nobody_asks_for_do_not_pile_up():
    stage = Stage()
    stage.take = lambda worker: (None, [(float(number), 1) for number in range(6_000)])
    mover = RowMover(stage, make_buffer(size=10), workers=2)
    mover._move()
    kept = mover.episodes()
    assert len(kept) == 10_000
    assert [kept[0][0], kept[-1][0]] == [2_000.0, 5_999.0]
    assert mover.episodes() == []
