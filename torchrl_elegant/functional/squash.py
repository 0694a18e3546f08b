"""The squashed Gaussian: a = tanh(u), u ~ N(mu, sigma^2) (Haarnoja et al. 2018, appendix C)."""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

from torchrl_elegant.functional.gaussian import normal_log_density

# The largest action whose u is found again.
_WITHIN = 1.0 - 1e-6
_LOG_2 = math.log(2.0)
_HALF_LOG_2PI = 0.5 * math.log(2.0 * math.pi)


def squashed_mode(loc: Tensor) -> Tensor:
    """The deterministic action, tanh(mu).

    >>> import torch
    >>> squashed_mode(torch.zeros(1)).item()
    0.0
    """
    return torch.tanh(loc)


def squashed_sample(loc: Tensor, log_std: Tensor, noise: Tensor) -> tuple[Tensor, Tensor]:
    """Reparameterised action and its log-density, summed over the last dimension.

    With u = mu + sigma eps and a = tanh(u):

    ``log pi(a) = sum_i [ -eps_i^2 / 2 - log sigma_i - log(2 pi) / 2 - log(1 - a_i^2) ]``

    ``log(1 - tanh(u)^2) = 2 (log 2 - u - softplus(-2 u))`` stays finite where ``1 - a^2`` rounds to
    zero. One autograd node with the gradient written out replaces about twenty.

    >>> import torch
    >>> action, log_prob = squashed_sample(torch.zeros(1), torch.zeros(1), torch.zeros(1))
    >>> action.item(), round(log_prob.item(), 4)
    (0.0, -0.9189)
    """
    if torch.is_grad_enabled() and (loc.requires_grad or log_std.requires_grad):
        return _SquashedSample.apply(loc, log_std, noise)
    return _sample(loc, log_std, noise)[:2]


def squashed_log_prob(loc: Tensor, log_std: Tensor, action: Tensor) -> Tensor:
    """log pi of given actions in [-1, 1], summed over the last dimension.

    ``u = atanh(a)``; actions are held within 1e-6 of the bounds, which tanh rounds to in float32
    and where u is infinite.

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
    @staticmethod
    def forward(ctx, loc: Tensor, log_std: Tensor, noise: Tensor) -> tuple[Tensor, Tensor]:
        action, log_prob, spread = _sample(loc, log_std, noise)
        ctx.save_for_backward(action, spread)
        return action, log_prob

    @staticmethod
    @once_differentiable
    def backward(ctx, grad_action: Tensor, grad_log_prob: Tensor) -> tuple[Tensor, Tensor, None]:
        action, spread = ctx.saved_tensors
        weight = grad_log_prob.unsqueeze(-1)  # [*B, 1]
        # d log(1 - tanh(u)^2) / du = -2 tanh(u); d tanh(u) / du = 1 - tanh(u)^2
        grad_pre = torch.addcmul(grad_action, grad_action * action, action, value=-1.0)
        grad_pre.addcmul_(weight, action, value=2.0)
        grad_log_std = torch.addcmul(-weight, grad_pre, spread)
        return grad_pre, grad_log_std, None
