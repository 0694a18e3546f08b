"""Rings of shared memory: workers leave finished rows there until the parent process takes them.

Workers that write into the replay buffer themselves share its locks with the sampler: one that is
killed while it writes leaves the learner waiting for ever, or with half a row. Here every worker
has a ring of its own, and one process alone touches the buffer. So the buffer may be of any kind
(prioritized, on an accelerator, with n-step transforms) and need not live in /dev/shm.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from tensordict import NestedKey, TensorDictBase
from torch import Tensor
from torchrl._utils import _get_mp_ctx

_NAP = 0.1  # seconds between two looks at whether to give up waiting

_ROWS, _EPISODES = 0, 1


class RowRings:
    """One ring of slots per worker; a slot holds the rows of one rollout.

    Semaphores carry the counts, so that a row is seen only once it is complete.

    Args:
        example: one row, batch size [], with the keys to keep; nested batch sizes are kept.
        workers: number of rings.
        rows: rows in a slot, the size of one rollout.
        slots: slots in a ring.

    >>> from tensordict import TensorDict
    >>> rings = RowRings(TensorDict({"x": torch.zeros(1)}), workers=1, rows=2, slots=2)
    >>> writer = rings.writer(0)
    >>> writer.reserve(lambda: False)
    True
    >>> writer.commit(TensorDict({"x": torch.tensor([[3.0], [4.0]])}, [2]), rows=2, episodes=[])
    >>> rings.take(0)[0]["x"].tolist()
    [[3.0], [4.0]]
    """

    # TorchRL's collectors with workers ask a buffer whether its storage has been set up.
    _storage = None

    def __init__(self, example: TensorDictBase, *, workers: int, rows: int, slots: int) -> None:
        if slots < 1:
            raise ValueError(f"`slots` must be at least 1, got {slots}")
        context = _get_mp_ctx()
        self.rows_per_slot, self._slots = rows, slots
        table = example.expand(workers, slots * rows).clone().zero_()
        self._table = table.clear_device_().share_memory_()
        # A slot of n rows ends n episodes at most: there is room for every episode.
        self._episodes = torch.zeros(workers, slots, rows, 2, dtype=torch.float64)
        self._episodes.share_memory_()
        self._counts = torch.zeros(workers, slots, 2, dtype=torch.int64).share_memory_()
        self._free = [context.Semaphore(slots) for _ in range(workers)]
        self._filled = [context.Semaphore(0) for _ in range(workers)]
        self._next = [0] * workers
        self.bell = context.Semaphore(0)

    def writer(self, worker: int) -> RingWriter:
        """The end of ring number `worker` to which its process writes."""
        return RingWriter(self, worker)

    def take(self, worker: int) -> tuple[TensorDictBase | None, list[tuple[float, int]]]:
        """Takes out what the worker has finished: its rows, if any, and its episodes."""
        first = self._next[worker]
        last, episodes = first, []
        filled = self._filled[worker]
        while last < self._slots and filled.acquire(block=False):
            rows, ended = self._counts[worker, last].tolist()
            for total, length in self._episodes[worker, last, :ended].tolist():
                episodes.append((total, int(length)))
            last += 1
            if rows < self.rows_per_slot:
                break
        if last == first:
            return None, episodes
        size = self.rows_per_slot
        # Copied, because a buffer or its transforms may keep what they are given.
        taken = self._table[worker, first * size : (last - 1) * size + rows].clone()
        self._next[worker] = last % self._slots
        for _ in range(last - first):
            self._free[worker].release()
        return taken, episodes


class RingWriter:
    """A worker's end of its ring: reserve a slot, collect, commit."""

    def __init__(self, rings: RowRings, worker: int) -> None:
        self._free, self._filled = rings._free[worker], rings._filled[worker]
        self._bell = rings.bell
        self._counts, self._episodes = rings._counts[worker], rings._episodes[worker]
        size = rings.rows_per_slot
        columns = [(key, value[worker]) for key, value in rings._table.items(True, True)]
        self._slots: list[list[tuple[NestedKey, Tensor]]] = [
            [(key, column[slot * size : (slot + 1) * size]) for key, column in columns]
            for slot in range(rings._slots)
        ]
        self._cursor = 0
        self._reserved = False

    def reserve(self, give_up: Callable[[], bool]) -> bool:
        """Waits for a free slot until `give_up()` holds; a reserved slot stays reserved."""
        while not self._reserved and not give_up():
            self._reserved = self._free.acquire(timeout=_NAP)
        return self._reserved

    def commit(
        self, batch: TensorDictBase, *, rows: int, episodes: Sequence[tuple[float, int]]
    ) -> None:
        """Writes the first `rows` rows of `batch`, flattened, and hands the slot over."""
        for key, column in self._slots[self._cursor]:
            value = batch.get(key)
            column[:rows].copy_(value.reshape(-1, *column.shape[1:])[:rows])
        if episodes:
            ended = torch.tensor(episodes, dtype=torch.float64)
            self._episodes[self._cursor, : len(episodes)].copy_(ended)
        self._counts[self._cursor, _ROWS] = rows
        self._counts[self._cursor, _EPISODES] = len(episodes)
        self._cursor = (self._cursor + 1) % len(self._slots)
        self._reserved = False
        self._filled.release()
        self._bell.release()
