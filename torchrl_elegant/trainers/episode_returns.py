"""Training episodes that ended: their mean return, and on request each of them."""

from __future__ import annotations

from operator import attrgetter
from typing import NamedTuple

import torch
from tensordict import TensorDictBase
from torch import Tensor

from torchrl_elegant.collectors.workers.worker import EpisodeLog
from torchrl_elegant.envs import Outcome
from torchrl_elegant.functional import junk_of


class Episode(NamedTuple):
    """Finished training episode; ``frame`` is the run's count of frames at its end."""

    frame: int
    value: float
    length: int


class EpisodeReturns:
    """Sums of ended episodes' returns; nothing waits for a device before ``take``.

    Where the environment counts returns itself (``episode_reward``), they are read. Elsewhere
    rewards are added up: over the ends in a row of time the sums telescope, so that one cumulative
    sum gives them all.

    Args:
        outcome: entries of a step below ``next``.
        each: keep each episode for ``take_each``. It is counted on the host, so that every batch
            that lies on a GPU is waited for.

    >>> from tensordict import TensorDict
    >>> returns = EpisodeReturns()
    >>> reward, done = torch.ones(1, 4, 1), torch.tensor([[[0], [1], [0], [1]]]).bool()
    >>> for _ in range(2):
    ...     returns.add(TensorDict({"next": {"reward": reward, "done": done}}, [1, 4]))
    >>> returns.take(), returns.take()
    (2.0, None)
    """

    def __init__(
        self,
        *,
        outcome: Outcome = Outcome(),  # noqa: B008 - it cannot be changed
        each: bool = False,
    ) -> None:
        self._outcome, self._each = outcome, each
        self._running: Tensor | None = None  # return so far of each environment's episode
        self._total: Tensor | None = None  # sum of returns, number of episodes
        self._log: EpisodeLog | None = None
        self._ended: list[Episode] = []

    def restart(self) -> None:
        """Forget the episodes that are under way."""
        self._running = self._log = None

    def add(self, batch: TensorDictBase, *, frames: int = 0, ranks: int = 1) -> None:
        """Take in a batch ``[*envs, time]`` that follows the one before it.

        ``frames`` are those of the run before it; ``ranks`` collect as many at the same time.
        """
        after, shape = batch.get("next"), (-1, batch.shape[-1])
        if not batch.shape.numel():
            return
        if self._each:
            self._list(batch, frames, ranks)
        done, junk = after.get(self._outcome.done).reshape(shape), junk_of(batch)
        if junk is not None:
            done = done & ~junk.reshape(shape)
        known = after.get("episode_reward", None)
        if known is None:
            total = self._sum_rewards(self._outcome.reward(after).reshape(shape), done)
        else:
            total = known.reshape(shape).double().masked_fill(~done, 0.0).sum()
        ended = torch.stack([total, done.sum().to(total)])
        self._total = ended if self._total is None else self._total + ended

    def take(self) -> float | None:
        """The mean over the episodes that ended since the last call; None without one."""
        total, self._total = self._total, None
        if total is None:
            return None
        returns, count = total.tolist()
        return returns / count if count else None

    def take_each(self) -> list[Episode]:
        """Episodes that ended since the last call, in the order of time; none without ``each``."""
        ended, self._ended = self._ended, []
        return sorted(ended, key=attrgetter("frame"))

    def _list(self, batch: TensorDictBase, frames: int, ranks: int) -> None:
        envs = batch.shape[:-1].numel()
        if self._log is None:
            keys = self._outcome
            self._log = EpisodeLog(envs=envs, reward_keys=keys.rewards, done_keys=[keys.done])
        for steps, value, length in self._log.add(batch, rows=batch.numel()):
            self._ended.append(Episode(frames + steps * envs * ranks, value, length))

    def _sum_rewards(self, reward: Tensor, done: Tensor) -> Tensor:
        sums = reward.double().cumsum(1)
        if self._running is not None:
            sums = sums + self._running.unsqueeze(1)
        # The last end of each environment has all the returns before it in its sum.
        steps = torch.arange(1, done.shape[1] + 1, device=done.device)
        last = (steps * done).amax(1, keepdim=True)
        at_end = sums.gather(1, (last - 1).clamp_min(0)) * (last > 0)
        self._running = sums[:, -1] - at_end.squeeze(1)
        return at_end.sum()
