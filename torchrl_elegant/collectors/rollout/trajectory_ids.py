"""Trajectory ids of a whole batch at once, and a pool of ids that counts on a device."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor


def trajectory_ids(ends: Tensor, *, running: Tensor, first: int | Tensor) -> tuple[Tensor, Tensor]:
    """Numbers the frames of a batch, and the trajectories that go on, without waiting for a device.

    Args:
        ends: [time, envs] bool, whether a trajectory ended with the frame.
        running: [envs] ids at the start of the batch.
        first: id of the next new trajectory; ids are handed out in time, then row by row.

    >>> ends = torch.tensor([[0, 1], [1, 1], [0, 0]]).bool()
    >>> ids, running = trajectory_ids(ends, running=torch.tensor([0, 1]), first=2)
    >>> ids.tolist(), running.tolist()
    ([[0, 1], [0, 2], [3, 4]], [3, 4])
    """
    new = ends.flatten().cumsum(0).view_as(ends) + (first - 1)
    # Ids grow with time: the newest of a column is the largest.
    newest = torch.where(ends, new, -1).cummax(0).values
    after = torch.where(newest < 0, running, newest)
    return torch.cat([running.unsqueeze(0), after[:-1]]), after[-1]


class DeferredPool:
    """A pool of trajectory ids that keeps its count on the device until it is asked for.

    TorchRL's pool counts on the host, which would wait for the device at every batch to learn how
    many trajectories ended.

    Args:
        pool: TorchRL's pool.

    >>> from torchrl.collectors.utils import _TrajectoryPool
    >>> pool = DeferredPool(_TrajectoryPool())
    >>> pool.take(torch.tensor(3)).item(), pool.take(torch.tensor(2)).item()
    (0, 3)
    >>> pool.get_traj_and_increment(2).tolist()
    [5, 6]
    """

    def __init__(self, pool: Any) -> None:
        self._pool = pool
        self._base = int(pool.state_dict()["traj_id"])
        self._taken: Tensor | None = None

    def take(self, count: Tensor) -> Tensor:
        """Takes `count` ids and returns the first; both stay where `count` is."""
        taken = torch.zeros_like(count) if self._taken is None else self._taken
        self._taken = taken + count
        return taken + self._base

    def get_traj_and_increment(
        self, n: int = 1, device: torch.device | str | None = None
    ) -> Tensor:
        """The next `n` ids, as TorchRL's pool gives them."""
        self._settle()
        ids = self._pool.get_traj_and_increment(n, device=device)
        self._base += int(n)
        return ids

    def state_dict(self) -> dict[str, Tensor]:
        """As TorchRL's pool."""
        self._settle()
        return self._pool.state_dict()

    def load_state_dict(self, state_dict: dict[str, Tensor]) -> None:
        """As TorchRL's pool."""
        self._taken = None
        self._pool.load_state_dict(state_dict)
        self._base = int(state_dict["traj_id"])

    def _settle(self) -> None:
        taken, self._taken = 0 if self._taken is None else int(self._taken), None
        if taken:
            self._pool.get_traj_and_increment(taken)
            self._base += taken
