"""PPO's clipped surrogate (Schulman et al. 2017, arXiv:1707.06347, eq. 7)."""

from __future__ import annotations

import torch
from torch import Tensor


def clipped_surrogate(
    log_ratio: Tensor, advantage: Tensor, low: Tensor | float, high: Tensor | float
) -> Tensor:
    """L = min(rho A, clip(rho, low, high) A), rho = exp(log_ratio).

    One autograd node instead of five: ``dL / d log_ratio`` is ``rho A`` where the first term is
    smaller, and zero where the clipped one is. The advantage is a constant to it, and it can be
    differentiated once.

    >>> import torch
    >>> log_ratio = torch.tensor([1.5, 0.5, 1.5, 0.5]).log()
    >>> clipped_surrogate(log_ratio, torch.tensor([1.0, 1.0, -1.0, -1.0]), 0.8, 1.2).tolist()
    [1.2000000476837158, 0.5, -1.5, -0.800000011920929]
    """
    return _ClippedSurrogate.apply(log_ratio, advantage, low, high)[0]


def clipped_surrogate_slope(
    log_ratio: Tensor, advantage: Tensor, low: Tensor | float, high: Tensor | float
) -> tuple[Tensor, Tensor]:
    """L of ``clipped_surrogate`` and ``dL / d log_ratio``.

    >>> import torch
    >>> log_ratio = torch.tensor([1.5, 0.5]).log()
    >>> clipped_surrogate_slope(log_ratio, torch.ones(2), 0.8, 1.2)[1].tolist()
    [0.0, 0.5]
    """
    ratio = log_ratio.exp()
    plain = ratio * advantage
    clipped = ratio.clamp_(low, high).mul_(advantage)  # type: ignore[arg-type]
    gain = torch.minimum(plain, clipped)
    return gain, plain.masked_fill_(plain > clipped, 0.0)


def ratio_statistics(
    log_ratio: Tensor, low: Tensor | float, high: Tensor | float
) -> dict[str, Tensor]:
    """Distances of a policy from the one that collected the data.

    ``kl_approx = -E[log rho]``, the share of ratios outside the bounds, their mean and largest, and
    the effective sample size ``(sum rho)^2 / (n sum rho^2)`` over the first dimension.

    >>> import torch
    >>> found = ratio_statistics(torch.tensor([2.0, 1.0]).log(), 0.8, 1.2)
    >>> {name: round(value.item(), 2) for name, value in found.items()}
    {'clip_fraction': 0.5, 'kl_approx': -0.35, 'ESS': 0.9, 'max_ratio': 2.0, 'mean_ratio': 1.5}
    """
    ratio = log_ratio.exp()
    effective = 2.0 * log_ratio.logsumexp(0) - (2.0 * log_ratio).logsumexp(0)
    return {
        "clip_fraction": ((ratio < low) | (ratio > high)).to(ratio.dtype).mean(),
        "kl_approx": -log_ratio.mean(),
        "ESS": effective.exp() / log_ratio.shape[0],
        "max_ratio": ratio.max(),
        "mean_ratio": ratio.mean(),
    }


def kl_estimate(log_ratio: Tensor) -> Tensor:
    """KL(mu, pi) = E_mu[rho - 1 - log rho], with rho = pi/mu of mu's actions.

    Like ``-E[log rho]`` it is unbiased. It is never negative, and its variance is far smaller where
    the two are close (Schulman 2020, "Approximating KL divergence", k3).

    >>> round(kl_estimate(torch.tensor([0.5, 2.0]).log()).item(), 4)
    0.25
    """
    return (log_ratio.expm1() - log_ratio).mean()


class _ClippedSurrogate(torch.autograd.Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(
        log_ratio: Tensor, advantage: Tensor, low: Tensor | float, high: Tensor | float
    ) -> tuple[Tensor, Tensor]:
        return clipped_surrogate_slope(log_ratio, advantage, low, high)

    @staticmethod
    def setup_context(ctx, inputs: tuple, output: tuple[Tensor, Tensor]) -> None:
        ctx.mark_non_differentiable(output[1])
        ctx.save_for_backward(output[1])

    @staticmethod
    def backward(ctx, grad: Tensor, _: Tensor) -> tuple[Tensor | None, ...]:
        (slope,) = ctx.saved_tensors
        return grad * slope, None, None, None
