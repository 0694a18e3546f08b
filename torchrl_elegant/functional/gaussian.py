"""The diagonal normal distribution with a spread of its own (Schulman et al. 2015, appendix D)."""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

_HALF_LOG_2PI = 0.5 * math.log(2.0 * math.pi)


def normal_log_prob(loc: Tensor, log_std: Tensor, action: Tensor) -> Tensor:
    """log N(a; mu, sigma^2), summed over the last dimension; ``log_std`` is ``[A]``.

    ``log pi(a) = sum_i [ -z_i^2 / 2 - log sigma_i - log(2 pi) / 2 ]``, ``z = (a - mu) / sigma``

    One autograd node with the gradient written out in place of eight. The action is a
    constant to it, and it can be differentiated once.

    >>> import torch
    >>> round(normal_log_prob(torch.zeros(1), torch.zeros(1), torch.zeros(1)).item(), 4)
    -0.9189
    """
    return _NormalLogProb.apply(loc, log_std, action)


def normal_score(
    loc: Tensor, log_std: Tensor, action: Tensor
) -> tuple[Tensor, tuple[Tensor, Tensor, Tensor]]:
    """log pi, and what ``normal_slopes`` needs: ``1 / sigma``, ``z`` and ``z^2``.

    >>> import torch
    >>> zero = torch.zeros(1)
    >>> normal_score(torch.zeros(1, 1), zero, torch.full((1, 1), 2.0))[1][2].item()
    4.0
    """
    inverse = torch.exp(-log_std)  # [A]
    z = (action - loc).mul_(inverse)  # [*B, A]
    square = z * z
    return normal_log_density(square, log_std), (inverse, z, square)  # [*B]


def normal_log_density(square: Tensor, log_std: Tensor) -> Tensor:
    """log pi from ``z^2``, ``[*B, A]``: the sum of the equation above, ``[*B]``.

    ``log_std`` is ``[A]``, or ``[*B, A]`` where it differs from row to row.

    >>> import torch
    >>> round(normal_log_density(torch.zeros(1), torch.zeros(1)).item(), 4)
    -0.9189
    """
    constant = log_std.sum(-1) + log_std.shape[-1] * _HALF_LOG_2PI
    return square.sum(-1).mul_(-0.5).sub_(constant)


def normal_slopes(
    grad: Tensor, inverse: Tensor, z: Tensor, square: Tensor
) -> tuple[Tensor, Tensor]:
    """Gradients of mean and log standard deviation, from that of ``log pi``, ``[*B]``.

    ``d log pi / d mu = z / sigma``, ``d log pi / d log sigma = z^2 - 1``

    >>> import torch
    >>> _, parts = normal_score(torch.zeros(1, 1), torch.zeros(1), torch.full((1, 1), 2.0))
    >>> [slope.item() for slope in normal_slopes(torch.ones(1), *parts)]
    [2.0, 3.0]
    """
    grad = grad.unsqueeze(-1)
    return (grad * z).mul_(inverse), (square - 1.0).mul_(grad).sum_to_size(inverse.shape)


def normal_entropy(log_std: Tensor) -> Tensor:
    """H = sum_i [ log sigma_i + (1 + log(2 pi)) / 2 ].

    >>> import torch
    >>> round(normal_entropy(torch.zeros(1)).item(), 4)
    1.4189
    """
    return log_std.sum(-1) + log_std.shape[-1] * (0.5 + _HALF_LOG_2PI)


class _NormalLogProb(torch.autograd.Function):
    @staticmethod
    def forward(ctx, loc: Tensor, log_std: Tensor, action: Tensor) -> Tensor:
        log_prob, parts = normal_score(loc, log_std, action)
        ctx.save_for_backward(*parts)
        return log_prob

    @staticmethod
    @once_differentiable
    def backward(ctx, grad: Tensor) -> tuple[Tensor | None, ...]:
        return (*normal_slopes(grad, *ctx.saved_tensors), None)
