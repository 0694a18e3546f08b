"""Advantages and value targets of rollouts: GAE and V-trace."""

from __future__ import annotations

from typing import NamedTuple

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
    """Generalized advantage estimation (Schulman et al. 2016, arXiv:1506.02438, eq. 16).

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


def standardized(advantage: Tensor) -> Tensor:
    """Advantages minus their mean, divided by their spread; a single one stays as it is.

    >>> import torch
    >>> standardized(torch.tensor([1.0, 2.0, 3.0])).tolist()
    [-1.0, 0.0, 1.0]
    """
    if advantage.numel() < 2:
        return advantage
    # TorchRL's own floor under the spread.
    spread = advantage.std().clamp_min(torch.finfo(torch.float32).resolution)
    return (advantage - advantage.mean()) / spread


class VTraceEstimate(NamedTuple):
    """``advantage`` of each action, ``target`` of each value, ``weight`` of each step."""

    advantage: Tensor
    target: Tensor
    weight: Tensor


def vtrace(
    log_ratio: Tensor,
    reward: Tensor,
    value: Tensor,
    next_value: Tensor,
    terminated: Tensor,
    done: Tensor,
    *,
    gamma: Tensor | float,
    lmbda: Tensor | float,
    rho_max: Tensor | float,
    c_max: Tensor | float,
    dim: int,
) -> VTraceEstimate:
    """Targets and advantages under pi of steps of mu (Espeholt et al. 2018, arXiv:1802.01561).

    Equation 1, remark 2 and section 4.2:

    ``rho_t = min(rho_max, pi/mu)``, ``c_t = lambda min(c_max, pi/mu)``
    ``delta_t = rho_t (r_t + gamma (1 - terminated_t) V(s_{t+1}) - V(s_t))``
    ``v_t - V(s_t) = delta_t + gamma (1 - done_t) c_t (v_{t+1} - V(s_{t+1}))``
    ``A_t = r_t + gamma (1 - terminated_t) [lambda v_{t+1} + (1 - lambda) V(s_{t+1})] - V(s_t)``

    ``log_ratio`` is log pi - log mu; a policy gradient takes ``rho_t A_t``. A truncated step
    bootstraps from V(s_{t+1}): the row after it is another episode's. All tensors have one shape.

    The targets are the paper's for every lambda. The advantage is the paper's, with v_{t+1} alone,
    at lambda = 1. Below 1 the paper leaves v_{t+1} in it; here it is mixed with V(s_{t+1}), so that
    where pi is mu and both bounds are 1 or more, ``A`` is GAE's of the same lambda.

    >>> import torch
    >>> one, zero = torch.ones(2), torch.zeros(2)
    >>> flags = torch.tensor([False, False]), torch.tensor([False, True])
    >>> bounds = {"rho_max": 1.0, "c_max": 1.0}
    >>> more = torch.tensor([0.5, 2.0]).log(), one, zero, zero, *flags
    >>> found = vtrace(*more, gamma=0.5, lmbda=1.0, **bounds, dim=0)
    >>> found.target.tolist(), found.advantage.tolist(), found.weight.tolist()
    ([0.75, 1.0], [1.5, 1.0], [0.5, 1.0])
    """
    tensors = (log_ratio, reward, value, next_value, terminated, done)
    if len(shapes := {tuple(x.shape) for x in tensors}) > 1:
        raise ValueError(
            "`log_ratio`, `reward`, values and flags must have one shape, got "
            f"`{sorted(shapes)}`; a missing last dimension would pair every step with every other"
        )
    ratio = log_ratio.exp()
    rho, c = ratio.clamp(max=rho_max), lmbda * ratio.clamp(max=c_max)
    ahead = gamma * torch.ones_like(value).masked_fill(terminated, 0.0)
    delta = rho * (reward + ahead * next_value - value)
    decay = (gamma * c).masked_fill(done, 0.0)
    target = discounted_sum(delta, decay, dim=dim) + value
    steps = value.shape[dim]
    after = [target.narrow(dim, 1, steps - 1), next_value.narrow(dim, steps - 1, 1)]
    later = torch.where(done, next_value, torch.cat(after, dim))
    mixed = next_value + lmbda * (later - next_value)
    return VTraceEstimate(reward + ahead * mixed - value, target, rho)
