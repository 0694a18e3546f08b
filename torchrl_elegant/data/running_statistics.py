"""Running statistics: moments of observations, and the scale of returns."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import torch
from torch import Tensor

from torchrl_elegant.functional import discounted_sum

#: Gives the parts of all processes, the own one included, in an order that is theirs in common.
Gather: TypeAlias = Callable[[Tensor], Sequence[Tensor]]


def alone(part: Tensor) -> list[Tensor]:
    """The ``Gather`` of a single process.

    >>> alone(torch.ones(()))
    [tensor(1.)]
    """
    return [part]


class Moments:
    """Count, mean and sum of squared deviations, in float64.

    Parts are merged by Chan, Golub and LeVeque 1983, eq. 2.1: with ``d`` the difference of the
    means, ``M2 = M2_a + M2_b + d^2 n_a n_b / n``. No square of a value is ever summed up, so a
    large offset costs no digits.

    Args:
        shape: of one value.

    >>> moments = Moments(())
    >>> moments.add(torch.tensor([1.0, 2.0])), moments.add(torch.tensor([6.0]))
    (None, None)
    >>> moments.count, moments.mean.item(), round(moments.variance.item(), 3)
    (3, 3.0, 4.667)
    """

    def __init__(self, shape: tuple[int, ...] | torch.Size) -> None:
        self.count = 0
        self.mean = torch.zeros(shape, dtype=torch.float64)
        self.squares = torch.zeros(shape, dtype=torch.float64)

    @property
    def variance(self) -> Tensor:
        """Over all values, not corrected for their number; zero without any."""
        return self.squares / max(1, self.count)

    def add(self, values: Tensor, gather: Gather = alone) -> None:
        """Take in values ``[*B, *shape]``, and what ``gather`` brings of other processes'."""
        rows = values.detach().to("cpu", torch.float64).reshape(-1, *self.mean.shape)
        mean = rows.mean(0) if len(rows) else torch.zeros_like(self.mean)
        squares = (rows - mean).square().sum(0)
        count = torch.tensor([float(len(rows))], dtype=torch.float64)
        for part in gather(torch.cat([count, mean.reshape(-1), squares.reshape(-1)])):
            left, right = part[1:].chunk(2)
            self.merge(int(part[0]), left.reshape(mean.shape), right.reshape(mean.shape))

    def merge(self, count: int, mean: Tensor, squares: Tensor) -> None:
        """Take in what ``count`` other values came to."""
        if not count:
            return
        total = self.count + count
        apart = mean - self.mean
        self.mean = self.mean + apart * (count / total)
        self.squares = self.squares + squares + apart.square() * (self.count * count / total)
        self.count = total

    def state_dict(self) -> dict[str, Any]:
        return {"count": self.count, "mean": self.mean, "squares": self.squares}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        for name, value in state_dict.items():
            setattr(self, name, value)


class ReturnScale:
    """``1 / std(G)``, with ``G_t = gamma (1 - done_{t-1}) G_{t-1} + r_t`` over all steps so far.

    Rewards times this scale give values of about unit spread (Engstrom et al. 2020,
    arXiv:2005.12729, section 3). They are not centred, which would change what is best, and not
    clipped.

    Args:
        gamma: discount factor.

    >>> scale = ReturnScale(gamma=0.0)
    >>> reward, never = torch.tensor([[3.0, -3.0]]), torch.zeros(1, 2, dtype=torch.bool)
    >>> scale.observe(reward, never)
    >>> round(scale.scale, 4)
    0.3333
    """

    def __init__(self, *, gamma: float) -> None:
        self.gamma, self.moments = gamma, Moments(())
        self._last: dict[int, Tensor] = {}  # G of each stream's environments, 0 after an end

    @property
    def scale(self) -> float:
        """What to multiply rewards by; 1 as long as no two returns have differed."""
        variance = self.moments.variance.item()
        return variance**-0.5 if variance > 0.0 else 1.0

    def observe(
        self, reward: Tensor, done: Tensor, *, stream: int = 0, gather: Gather = alone
    ) -> None:
        """Take in the next steps ``[envs, time]`` of the environments of ``stream``."""
        rewards, ends = reward.detach().to("cpu", torch.float64), done.to("cpu")
        carried = self._last.get(stream)
        if carried is None or carried.shape != rewards[:, 0].shape:
            carried = torch.zeros_like(rewards[:, 0])
        first = (rewards[:, 0] + self.gamma * carried).unsqueeze(1)
        rewards = torch.cat([first, rewards[:, 1:]], 1)
        # Backwards in time it is the sum that advantages are made of.
        begins = torch.cat([torch.zeros_like(ends[:, :1]), ends[:, :-1]], 1)
        decay = torch.full_like(rewards, self.gamma).masked_fill(begins, 0.0)
        returns = discounted_sum(rewards.flip(1), decay.flip(1), dim=1).flip(1)
        self._last[stream] = returns[:, -1].masked_fill(ends[:, -1], 0.0)
        self.moments.add(returns, gather)

    def state_dict(self) -> dict[str, Any]:
        """What was seen; episodes under way are not part of it, as environments start anew."""
        return self.moments.state_dict()

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        self.moments.load_state_dict(state_dict)
        self._last.clear()
