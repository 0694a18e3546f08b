"""How large discounted returns are, for rewards of a scale that nobody knows beforehand."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from torchrl_elegant.data.moments import Gather, Moments, alone
from torchrl_elegant.functional import discounted_sum


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
