"""Log-probabilities, entropies and draws of Gaussian actions, plain or squashed by tanh."""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

_HALF_LOG_2PI = 0.5 * math.log(2.0 * math.pi)


def normal_log_prob(loc: Tensor, log_std: Tensor, action: Tensor) -> Tensor:
    """log N(a; mu, sigma^2), summed over the last dimension; ``log_std`` is ``[A]``.

    ``log pi(a) = sum_i [ -z_i^2 / 2 - log sigma_i - log(2 pi) / 2 ]``, ``z = (a - mu) / sigma``

    One autograd node with the gradient written out instead of eight. The action is a
    constant to it, and it can be differentiated once.

    >>> import torch
    >>> round(normal_log_prob(torch.zeros(1), torch.zeros(1), torch.zeros(1)).item(), 4)
    -0.9189
    """
    return _NormalLogProb.apply(loc, log_std, action)[0]


def normal_score(
    loc: Tensor, log_std: Tensor, action: Tensor
) -> tuple[Tensor, tuple[Tensor, Tensor, Tensor]]:
    """log pi, and the arguments of ``normal_slopes``: ``1 / sigma``, ``z`` and ``z^2``.

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
    generate_vmap_rule = True

    @staticmethod
    def forward(loc: Tensor, log_std: Tensor, action: Tensor) -> tuple[Tensor, ...]:
        log_prob, parts = normal_score(loc, log_std, action)
        return log_prob, *parts

    @staticmethod
    def setup_context(ctx, inputs: tuple[Tensor, ...], output: tuple[Tensor, ...]) -> None:
        ctx.mark_non_differentiable(*output[1:])
        ctx.save_for_backward(*output[1:])

    @staticmethod
    @once_differentiable
    def backward(ctx, grad: Tensor, *_: Tensor) -> tuple[Tensor | None, ...]:
        return (*normal_slopes(grad, *ctx.saved_tensors), None)


# The largest action from which u is computed back.
_WITHIN = 1.0 - 1e-6
_LOG_2 = math.log(2.0)


def squashed_mode(loc: Tensor) -> Tensor:
    """The deterministic action, tanh(mu).

    >>> import torch
    >>> squashed_mode(torch.zeros(1)).item()
    0.0
    """
    return torch.tanh(loc)


def squashed_sample(loc: Tensor, log_std: Tensor, noise: Tensor) -> tuple[Tensor, Tensor]:
    """Reparameterized action and its log-density, summed over the last dimension.

    With u = mu + sigma eps and a = tanh(u):

    ``log pi(a) = sum_i [ -eps_i^2 / 2 - log sigma_i - log(2 pi) / 2 - log(1 - a_i^2) ]``

    ``log(1 - tanh(u)^2) = 2 (log 2 - u - softplus(-2 u))`` stays finite where ``1 - a^2`` rounds to
    zero. One autograd node with the gradient written out replaces about twenty.

    >>> import torch
    >>> action, log_prob = squashed_sample(torch.zeros(1), torch.zeros(1), torch.zeros(1))
    >>> action.item(), round(log_prob.item(), 4)
    (0.0, -0.9189)
    """
    if torch.is_grad_enabled():  # under vmap a tensor does not tell whether it requires one
        return _SquashedSample.apply(loc, log_std, noise)[:2]
    return _sample(loc, log_std, noise)[:2]


def squashed_log_prob(loc: Tensor, log_std: Tensor, action: Tensor) -> Tensor:
    """log pi of given actions in [-1, 1], summed over the last dimension.

    ``u = atanh(a)``. In float32 tanh rounds to the bounds, where u is infinite; so actions are
    clipped 1e-6 inside them.

    >>> import torch
    >>> round(squashed_log_prob(torch.zeros(1), torch.zeros(1), torch.zeros(1)).item(), 4)
    -0.9189
    """
    held = action.clamp(-_WITHIN, _WITHIN)
    density = normal_log_density(((held.atanh() - loc) * (-log_std).exp()).square(), log_std)
    return density - torch.log1p(-held.square()).sum(-1)


def _sample(loc: Tensor, log_std: Tensor, noise: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    spread = log_std.exp().mul_(noise)  # sigma eps [*B, A]
    pre = loc + spread  # u [*B, A]
    # softplus with beta = -2 is -softplus(-2u) / 2, so that this is 2 (u + softplus(-2u)).
    per_dim = torch.sub(pre, F.softplus(pre, beta=-2.0), alpha=2.0).mul_(2.0)
    per_dim.sub_(log_std).addcmul_(noise, noise, value=-0.5)
    constant = loc.shape[-1] * (_HALF_LOG_2PI + 2.0 * _LOG_2)
    return pre.tanh_(), per_dim.sum(-1).sub_(constant), spread  # [*B, A], [*B], [*B, A]


class _SquashedSample(torch.autograd.Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(loc: Tensor, log_std: Tensor, noise: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        return _sample(loc, log_std, noise)

    @staticmethod
    def setup_context(ctx, inputs: tuple[Tensor, ...], output: tuple[Tensor, ...]) -> None:
        action, _, spread = output
        ctx.mark_non_differentiable(spread)
        ctx.save_for_backward(action, spread)

    @staticmethod
    @once_differentiable
    def backward(
        ctx, grad_action: Tensor, grad_log_prob: Tensor, _: Tensor
    ) -> tuple[Tensor, Tensor, None]:
        action, spread = ctx.saved_tensors
        weight = grad_log_prob.unsqueeze(-1)  # [*B, 1]
        # d log(1 - tanh(u)^2) / du = -2 tanh(u); d tanh(u) / du = 1 - tanh(u)^2
        grad_pre = torch.addcmul(grad_action, grad_action * action, action, value=-1.0)
        grad_pre.addcmul_(weight, action, value=2.0)
        grad_log_std = torch.addcmul(-weight, grad_pre, spread)
        return grad_pre, grad_log_std, None
