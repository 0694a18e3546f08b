"""A rollout in shuffled parts."""

from __future__ import annotations

import pytest
import torch
from tensordict import TensorDict

from torchrl_elegant.data import minibatches


def numbered(count: int) -> TensorDict:
    row = torch.arange(count)
    return TensorDict({"row": row, "deep": {"twice": 2 * row}}, [count])


@pytest.mark.parametrize(("count", "size"), [(12, 4), (10, 4), (3, 8), (4, 4), (5, 1)])
def test_every_row_comes_once(count, size):
    batches = list(minibatches(numbered(count), size))
    assert [batch.shape[0] for batch in batches[:-1]] == [size] * (-(-count // size) - 1)
    rows = torch.cat([batch["row"] for batch in batches])
    assert rows.sort().values.tolist() == list(range(count))
    assert torch.equal(torch.cat([batch["deep", "twice"] for batch in batches]), 2 * rows)


def test_the_order_is_new_each_time_and_follows_the_seed():
    def order(seed=None):
        if seed is not None:
            torch.manual_seed(seed)
        return torch.cat([batch["row"] for batch in minibatches(numbered(100), 7)]).tolist()

    first = order(1)
    assert first != list(range(100))
    assert order() != first
    assert order(1) == first


def test_what_is_done_to_a_batch_stays_there():
    rows = numbered(8)
    for batch in minibatches(rows, 4):
        batch["row"].zero_()
    assert rows["row"].tolist() == list(range(8))
