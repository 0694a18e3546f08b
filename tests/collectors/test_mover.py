"""The thread that moves rows: what it keeps for those who ask what is new."""

from __future__ import annotations

import pytest
import torch
from tensordict import TensorDict

from torchrl_elegant.collectors.mover import RowMover
from torchrl_elegant.data import make_buffer


class Stage:
    """Hands over what was put into it."""

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
    assert mover().newest() is None
    assert mover(3, 2).newest()["x"].tolist() == [0, 1, 2, 3, 4]
    assert mover().newest() is None
    assert mover(1).newest()["x"].tolist() == [5]


@pytest.mark.parametrize("sizes", [(600, 600, 600), (3_000,), (1,) * 1_030, (1_024, 1)])
def test_no_more_than_the_last_rows_are_kept(mover, sizes):
    moved = mover(*sizes)
    assert sum(map(len, moved._new)) < 1_024 + max(sizes)
    assert moved.newest()["x"].tolist() == list(range(sum(sizes)))[-1_024:]


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
