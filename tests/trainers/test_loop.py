"""How the loop draws its batches."""

from __future__ import annotations

import pytest
import torch
from tensordict import TensorDict

from torchrl_elegant.data import make_buffer
from torchrl_elegant.trainers.loop import draw


@pytest.fixture
def buffer():
    buffer = make_buffer(size=100)
    rows = torch.arange(100.0)
    buffer.extend(TensorDict({"x": rows, "next": {"y": -rows}}, [100]))
    return buffer


@pytest.mark.parametrize("count", [0, 1, 2, 7])
def test_batches(buffer, count):
    batches = list(draw(buffer, 16, count))
    assert [batch.shape for batch in batches] == [(16,)] * count
    assert all(torch.equal(batch["x"], -batch["next", "y"]) for batch in batches)


def test_batches_differ(buffer):
    first, second = draw(buffer, 32, 2)
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


def test_writing_into_one_batch_leaves_the_others(buffer):
    batches = list(draw(buffer, 8, 3))
    kept = [batch["x"].clone() for batch in batches[1:]]
    batches[0]["x"].fill_(-1.0)
    batches[0]["td_error"] = torch.ones(8)
    assert all(torch.equal(batch["x"], x) for batch, x in zip(batches[1:], kept, strict=True))
    assert "td_error" not in batches[1]
