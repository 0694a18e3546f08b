"""One-step value targets (Sutton and Barto 2018, eq. 6.2; Haarnoja et al. 2018, eq. 3)."""

from __future__ import annotations

from torch import Tensor


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

    Only termination cuts the bootstrap. A truncated step is one whose future was not looked at,
    so ``truncated`` and ``done`` are no arguments of this function.

    >>> import torch
    >>> r, v = torch.tensor([1.0, 1.0]), torch.tensor([10.0, 10.0])
    >>> bellman_target(r, torch.tensor([False, True]), v, 0.5).tolist()
    [6.0, 1.0]
    """
    return reward + discount * next_value.masked_fill(terminated, 0.0)  # [*B]
