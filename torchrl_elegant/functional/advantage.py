"""Advantages from rewards and values, without a loop over time."""

from __future__ import annotations

import torch
from torch import Tensor


def discounted_sum(x: Tensor, decay: Tensor, *, dim: int) -> Tensor:
    """y_t = x_t + decay_t y_{t+1} along ``dim``, with y = 0 past the end.

    By doubling (Hillis and Steele 1986): after k rounds y_t holds the terms of 2^k steps, so a
    rollout of 256 steps takes 8 rounds of whole-tensor arithmetic on any device.

    >>> import torch
    >>> discounted_sum(torch.ones(3), torch.full((3,), 0.5), dim=0).tolist()
    [1.75, 1.5, 1.0]
    """
    steps, total, stride = x.shape[dim], x, 1
    while stride < steps:
        left = steps - stride
        near, far = total.narrow(dim, 0, left), total.narrow(dim, stride, left)
        reach = decay.narrow(dim, 0, left)
        total = torch.cat([torch.addcmul(near, reach, far), total.narrow(dim, left, stride)], dim)
        # What reaches past the end meets zeros there, so its decay no longer matters.
        decay = torch.cat(
            [reach * decay.narrow(dim, stride, left), decay.narrow(dim, left, stride)], dim
        )
        stride *= 2
    return total


def gae(
    reward: Tensor,
    value: Tensor,
    next_value: Tensor,
    terminated: Tensor,
    done: Tensor,
    *,
    gamma: Tensor | float,
    lmbda: Tensor | float,
    dim: int,
) -> Tensor:
    """Generalised advantage estimation (Schulman et al. 2016, arXiv:1506.02438, eq. 16).

    ``delta_t = r_t + gamma (1 - terminated_t) V(s_{t+1}) - V(s_t)``
    ``A_t = delta_t + gamma lambda (1 - done_t) A_{t+1}``

    A truncated step keeps its bootstrap and ends the sum: the row after it is another episode's.
    All five tensors have one shape.

    >>> import torch
    >>> one, zero = torch.ones(2), torch.zeros(2)
    >>> never, last = torch.tensor([False, False]), torch.tensor([False, True])
    >>> gae(one, zero, 2 * one, never, last, gamma=0.5, lmbda=1.0, dim=0).tolist()
    [3.0, 2.0]
    >>> gae(one, zero, 2 * one, last, last, gamma=0.5, lmbda=1.0, dim=0).tolist()
    [2.5, 1.0]
    """
    shapes = {tuple(x.shape) for x in (reward, value, next_value, terminated, done)}
    if len(shapes) > 1:
        raise ValueError(
            f"`reward`, values and flags must have one shape, got `{sorted(shapes)}`; a missing "
            "last dimension would pair every step with every other"
        )
    delta = reward + gamma * next_value.masked_fill(terminated, 0.0) - value
    decay = (gamma * lmbda * torch.ones_like(delta)).masked_fill(done, 0.0)
    return discounted_sum(delta, decay, dim=dim)


def standardised(advantage: Tensor) -> Tensor:
    """Advantages less their mean, in units of their spread; a single one stays as it is.

    >>> import torch
    >>> standardised(torch.tensor([1.0, 2.0, 3.0])).tolist()
    [-1.0, 0.0, 1.0]
    """
    if advantage.numel() < 2:
        return advantage
    # TorchRL's own floor under the spread.
    spread = advantage.std().clamp_min(torch.finfo(torch.float32).resolution)
    return (advantage - advantage.mean()) / spread
