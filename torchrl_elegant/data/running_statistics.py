"""Running statistics: moments of observations, and the scale of returns."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import torch
from torch import Tensor

from torchrl_elegant.functional import discounted_sum

#: Collects one part from each process, this one's included, in the same order everywhere.
Gather: TypeAlias = Callable[[Tensor], Sequence[Tensor]]


def alone(part: Tensor) -> list[Tensor]:
    """``Gather`` of a single process.

    >>> alone(torch.ones(()))
    [tensor(1.)]
    """
    return [part]


class Moments:
    """Count, mean and sum of squared deviations, on the device of the values.

    They are float64 where the device has it. Parts are merged by Chan, Golub and LeVeque 1983, eq.
    2.1: with ``d`` the difference of the means, ``M2 = M2_a + M2_b + d^2 n_a n_b / n``. No square
    of a value is ever summed up, so a large offset costs no digits.

    Args:
        shape: of one value.

    >>> moments = Moments(())
    >>> moments.add(torch.tensor([1.0, 2.0])), moments.add(torch.tensor([6.0]))
    (None, None)
    >>> moments.count.item(), moments.mean.item(), round(moments.variance.item(), 3)
    (3.0, 3.0, 4.667)
    """

    def __init__(self, shape: tuple[int, ...] | torch.Size) -> None:
        self.count = torch.zeros((), dtype=torch.float64)
        self.mean = torch.zeros(shape, dtype=torch.float64)
        self.squares = torch.zeros(shape, dtype=torch.float64)

    @property
    def variance(self) -> Tensor:
        """Over all values, not corrected for their number; zero without any."""
        return self.squares / self.count.clamp(min=1)

    def add(self, values: Tensor, gather: Gather = alone, *, without: Tensor | None = None) -> None:
        """Take in values ``[*B, *shape]``, and the parts of other processes that ``gather``
        brings; ``without``, ``[*B]``, flags values that do not count."""
        rows = widened(values.detach()).reshape(-1, *self.mean.shape)
        count = rows.new_full((1,), len(rows))
        if without is None:
            mean = rows.mean(0) if len(rows) else rows.new_zeros(self.mean.shape)
            squares = (rows - mean).square().sum(0)
        else:
            left_out = without.reshape(-1, *[1] * self.mean.ndim)
            count = count - without.sum()
            mean = rows.masked_fill(left_out, 0.0).sum(0) / count.clamp(min=1).squeeze(0)
            squares = (rows - mean).masked_fill(left_out, 0.0).square().sum(0)
        if self.mean.device != rows.device:
            self.load_state_dict({k: v.to(rows) for k, v in self.state_dict().items()})
        for part in gather(torch.cat([count, mean.reshape(-1), squares.reshape(-1)])):
            left, right = part[1:].to(rows).chunk(2)
            self.merge(part[0].to(rows), left.reshape(mean.shape), right.reshape(mean.shape))

    def merge(self, count: Tensor, mean: Tensor, squares: Tensor) -> None:
        """Take in the moments of ``count`` other values, none allowed."""
        total = self.count + count
        some = total.clamp(min=1)
        apart = mean - self.mean
        self.mean = self.mean + apart * (count / some)
        self.squares = self.squares + squares + apart.square() * (self.count * count / some)
        self.count = total

    def state_dict(self) -> dict[str, Any]:
        return {"count": self.count, "mean": self.mean, "squares": self.squares}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        self.count, self.mean = state_dict["count"], state_dict["mean"]
        self.squares = state_dict["squares"]


def widened(values: Tensor) -> Tensor:
    """Casts to float64 where the device has it, to float32 elsewhere.

    >>> widened(torch.ones(2, dtype=torch.uint8)).dtype
    torch.float64
    """
    return values.to(torch.float32 if values.device.type == "mps" else torch.float64)


class ReturnScale:
    """``1 / std(G)``, with ``G_t = gamma (1 - done_{t-1}) G_{t-1} + r_t`` over all steps so far.

    Rewards times this scale give values of about unit spread (Engstrom et al. 2020,
    arXiv:2005.12729, section 3). Rewards are not centered, which would change the best policy, and
    not clipped.

    Args:
        gamma: discount factor.

    >>> scale = ReturnScale(gamma=0.0)
    >>> reward, never = torch.tensor([[3.0, -3.0]]), torch.zeros(1, 2, dtype=torch.bool)
    >>> scale.observe(reward, never)
    >>> round(scale.scale.item(), 4)
    0.3333
    """

    def __init__(self, *, gamma: float) -> None:
        self.gamma, self.moments = gamma, Moments(())
        self._last: dict[int, Tensor] = {}  # last G of each stream, 0 after an episode's end

    @property
    def scale(self) -> Tensor:
        """Factor of the rewards, a tensor ``[]``; 1 as long as no two returns have differed."""
        variance = self.moments.variance
        return torch.where(variance > 0.0, variance, 1.0).pow(-0.5)

    def restart(self) -> None:
        """Begin all returns at 0: the steps that come next begin new episodes."""
        self._last.clear()

    def observe(
        self,
        reward: Tensor,
        done: Tensor,
        *,
        stream: int = 0,
        gather: Gather = alone,
        without: Tensor | None = None,
    ) -> None:
        """Take in the next steps ``[envs, time]`` of the environments of ``stream``; ``without``
        flags steps that are no part of an episode."""
        rewards = widened(reward.detach())
        carried = self._last.get(stream)
        if carried is None or carried.shape != rewards[:, 0].shape:
            carried = torch.zeros_like(rewards[:, 0])
        first = (rewards[:, 0] + self.gamma * carried.to(rewards)).unsqueeze(1)
        rewards = torch.cat([first, rewards[:, 1:]], 1)
        # Backwards in time it is the discounted sum of advantages.
        begins = torch.cat([torch.zeros_like(done[:, :1]), done[:, :-1]], 1)
        decay = torch.full_like(rewards, self.gamma).masked_fill(begins, 0.0)
        returns = discounted_sum(rewards.flip(1), decay.flip(1), dim=1).flip(1)
        self._last[stream] = returns[:, -1].masked_fill(done[:, -1], 0.0)
        self.moments.add(returns, gather, without=without)

    def state_dict(self) -> dict[str, Any]:
        """Moments of the returns; episodes under way are left out, as environments start anew."""
        return self.moments.state_dict()

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        self.moments.load_state_dict(state_dict)
        self._last.clear()
