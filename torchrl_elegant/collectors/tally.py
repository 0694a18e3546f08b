"""Returns and lengths of the episodes that pass through a stream of rollouts."""

from __future__ import annotations

import numpy as np
from tensordict import TensorDictBase


class EpisodeTally:
    """Returns and lengths of episodes that run on from one rollout into the next.

    Counted here rather than read from the rows, because any environment has a reward and a done
    flag while its own counters may be absent, or left out of the keys that are stored.

    >>> import torch
    >>> from tensordict import TensorDict
    >>> tally = EpisodeTally(envs=1)
    >>> batch = TensorDict(
    ...     {"next": {"reward": torch.ones(3, 1), "done": torch.tensor([[0], [1], [0]]).bool()}},
    ...     [3],
    ... )
    >>> tally.add(batch, rows=3), tally.add(batch, rows=3)
    ([(2.0, 2)], [(3.0, 3)])
    """

    def __init__(self, *, envs: int) -> None:
        self._returns = np.zeros(envs)
        self._lengths = np.zeros(envs, dtype=np.int64)

    def clear(self) -> None:
        """Forgets the episodes in progress, as when all environments are reset."""
        self._returns[:], self._lengths[:] = 0.0, 0

    def add(self, batch: TensorDictBase, *, rows: int) -> list[tuple[float, int]]:
        """Episodes that ended within the first `rows` rows of a rollout [*envs, time]."""
        reward, done = batch.get(("next", "reward"), None), batch.get(("next", "done"), None)
        if reward is None or done is None:
            return []
        time = batch.shape[-1]
        rewards = reward.reshape(len(self._returns), time, -1).double().sum(-1).cpu().numpy()
        dones = done.reshape(*rewards.shape, -1).any(-1).cpu().numpy()
        finished: list[tuple[float, int]] = []
        for env in np.flatnonzero(dones.any(1)):
            begin = 0
            for end in (np.flatnonzero(dones[env]) + 1).tolist():
                total = float(self._returns[env] + rewards[env, begin:end].sum())
                length = int(self._lengths[env] + end - begin)
                if env * time + end <= rows:
                    finished.append((total, length))
                self._returns[env], self._lengths[env], begin = 0.0, 0, end
            self._returns[env] = rewards[env, begin:].sum()
            self._lengths[env] = time - begin
        running = ~dones.any(1)
        self._returns[running] += rewards[running].sum(1)
        self._lengths[running] += time
        return finished
