"""Replay buffers, and shuffled minibatches of a rollout."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from tensordict import TensorDictBase
from torchrl.data import LazyTensorStorage, TensorDictReplayBuffer

from torchrl_elegant.data.prioritized import Priority, left_out
from torchrl_elegant.functional import devices


def make_buffer(
    *, size: int, device: torch.device | str = "cpu", priority: Priority | None = None
) -> TensorDictReplayBuffer:
    """Makes a buffer of transitions, sampled with replacement, uniformly or by ``priority``.

    The batch size is given with each ``sample``: a learner that owes several updates draws all
    their rows at once. On another device than the CPU neither writing nor drawing waits for it.

    >>> import torch
    >>> from tensordict import TensorDict
    >>> buffer = make_buffer(size=10)
    >>> _ = buffer.extend(TensorDict({"observation": torch.zeros(4, 3)}, [4]))
    >>> buffer.sample(6).shape
    torch.Size([6])
    >>> buffer = make_buffer(size=10, priority=Priority(alpha=0.6, beta=0.4))
    >>> _ = buffer.extend(TensorDict({"observation": torch.zeros(4, 3)}, [4]))
    >>> batch = buffer.sample(6).set("td_error", torch.ones(6))
    >>> buffer.update_tensordict_priority(batch)
    >>> batch["priority_weight"]
    tensor([1., 1., 1., 1., 1., 1.])
    """
    if size < 1:
        raise ValueError(f"`size` must be at least 1, got `{size}`")
    # A storage that can be compiled leaves its cursor on the device; any other reads it back.
    away = not devices.reads_at_once(device)
    storage = _Storage(size, device=device, compilable=away)
    if priority is None:
        return TensorDictReplayBuffer(storage=storage)
    return TensorDictReplayBuffer(
        storage=storage, sampler=priority.make_sampler(size), priority_key=priority.key
    )


class _Storage(LazyTensorStorage):
    """Storage that does not put a line into the log when its memory is taken."""

    def _init(self, data: TensorDictBase) -> None:
        with left_out("Initialized LazyTensorStorage"):
            super()._init(data)


def shuffled(rows: TensorDictBase) -> TensorDictBase:
    """Copy of ``rows`` in random order.

    >>> import torch
    >>> from tensordict import TensorDict
    >>> sorted(shuffled(TensorDict({"x": torch.arange(3)}, [3]))["x"].tolist())
    [0, 1, 2]
    """
    return rows[torch.randperm(rows.shape[0], device=rows.device)]


def minibatches(rows: TensorDictBase, batch_size: int) -> Iterator[TensorDictBase]:
    """Splits ``rows`` in random order into batches of ``batch_size``; the last may be smaller.

    The rows are gathered once for all batches, which are views of that one copy: a fifth of what
    TorchRL's ``SamplerWithoutReplacement`` takes, which gathers each batch by itself.

    >>> import torch
    >>> from tensordict import TensorDict
    >>> rows = TensorDict({"x": torch.arange(5)}, [5])
    >>> batches = [batch["x"].tolist() for batch in minibatches(rows, 2)]
    >>> [len(batch) for batch in batches], sorted(sum(batches, []))
    ([2, 2, 1], [0, 1, 2, 3, 4])
    """
    yield from shuffled(rows).split(batch_size)
