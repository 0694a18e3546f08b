"""Targets of values, over one step or several."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import pad


def soft_value(value: Tensor, alpha: Tensor | float, log_prob: Tensor) -> Tensor:
    """V(s) = Q(s, a) - alpha log pi(a|s), with a drawn from pi (Haarnoja et al. 2018, eq. 3).

    >>> import torch
    >>> soft_value(torch.tensor(1.0), 0.5, torch.tensor(-2.0)).item()
    2.0
    """
    return value - alpha * log_prob  # [*B]


def bellman_target(
    reward: Tensor, terminated: Tensor, next_value: Tensor, discount: Tensor | float
) -> Tensor:
    """y = r + discount (1 - terminated) V(s').

    Only termination cuts the bootstrap. A truncated step has a future that was not observed, so
    ``truncated`` and ``done`` are no arguments of this function.

    >>> import torch
    >>> r, v = torch.tensor([1.0, 1.0]), torch.tensor([10.0, 10.0])
    >>> bellman_target(r, torch.tensor([False, True]), v, 0.5).tolist()
    [6.0, 1.0]
    """
    return reward + discount * next_value.masked_fill(terminated, 0.0)  # [*B]


class Spans(NamedTuple):
    """Sums over the steps t, t + 1, ... that belong together, for every t, ``[*B, T]``."""

    reward: Tensor  # discounted sum
    steps: Tensor  # how many
    complete: Tensor  # whether the rows given reach to the last of them


def spans(reward: Tensor, done: Tensor, *, gamma: float, n_steps: int) -> Spans:
    """``R_t = sum_{k < m} gamma^k r_{t+k}``, ``m = min(n, steps to the episode's end)``.

    The last dimension is time. An episode ends where ``done`` holds, by termination or truncation.
    A target adds ``gamma^m V(s_{t+m})`` to the sum.

    >>> done = torch.tensor([False, False, True, False])
    >>> reward, steps, complete = spans(torch.ones(4), done, gamma=0.5, n_steps=2)
    >>> reward.tolist(), steps.tolist(), complete.tolist()
    ([1.5, 1.5, 1.0, 1.0], [2, 2, 1, 1], [True, True, True, False])
    """
    length, ahead = reward.shape[-1], n_steps - 1
    left = length - torch.arange(length, device=reward.device)  # rows from t to the last
    rewards = pad(reward, (0, ahead)).unfold(-1, n_steps, 1)  # [*B, T, n]
    ends = pad(done.to(torch.int64), (0, ahead)).unfold(-1, n_steps, 1)
    # Step t + k counts as long as no step before it was the last of its episode.
    counts = (ends.cumsum(-1) - ends) == 0
    decay = gamma ** torch.arange(n_steps, device=reward.device, dtype=reward.dtype)
    total = (rewards * counts * decay).sum(-1)
    return Spans(total, counts.sum(-1).minimum(left), ends.any(-1) | (left >= n_steps))
