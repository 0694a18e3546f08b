"""Distances of values and their targets, their slopes, and how well values explain returns."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

_DISTANCES = {"l2": F.mse_loss, "l1": F.l1_loss, "smooth_l1": F.smooth_l1_loss}


def value_loss(value: Tensor, target: Tensor, *, kind: str) -> Tensor:
    """E[d(V, R)], the distance ``"l2"``, ``"l1"`` or ``"smooth_l1"``.

    >>> import torch
    >>> value_loss(torch.zeros(2, 1), torch.tensor([[1.0], [3.0]]), kind="l2").item()
    5.0
    """
    return _DISTANCES[kind](value, target)


def value_slope(value: Tensor, target: Tensor, *, kind: str) -> Tensor:
    """The gradient of ``value_loss``.

    >>> import torch
    >>> value_slope(torch.zeros(2, 1), torch.tensor([[1.0], [3.0]]), kind="l2").tolist()
    [[-1.0], [-3.0]]
    """
    error = value - target
    if kind == "l2":
        return error.mul_(2.0 / error.numel())
    slope = error.sign_() if kind == "l1" else error.clamp_(-1.0, 1.0)
    return slope.div_(slope.numel())


def clipped_value_loss(
    value: Tensor, target: Tensor, old: Tensor, limit: Tensor, *, kind: str
) -> Tensor:
    """E[max(d(V, R), d(V', R))], ``V' = V_old + clip(V - V_old, -limit, limit)``.

    The larger of two distances: a value that has moved towards its target by more than ``limit``
    gains nothing from moving on (Schulman et al., openai/baselines, ppo2).

    >>> import torch
    >>> value, target, old = (torch.full((1, 1), x) for x in (0.75, 1.0, 0.0))
    >>> clipped_value_loss(value, target, old, torch.tensor(0.5), kind="l1").item()
    0.5
    """
    near = old + (value - old).clamp(-limit, limit)
    far, close = (_DISTANCES[kind](x, target, reduction="none") for x in (value, near))
    return far.maximum(close).mean()


def explained_variance(value: Tensor, target: Tensor) -> Tensor:
    """1 - Var[R - V] / Var[R] over the first dimension.

    >>> import torch
    >>> value, target = torch.tensor([[0.0], [2.0]]), torch.tensor([[1.0], [5.0]])
    >>> explained_variance(value, target).item()
    0.75
    """
    left, whole = (torch.var(x, correction=0, dim=0) for x in (target - value, target))
    return 1.0 - left / (whole + torch.finfo(whole.dtype).eps)
