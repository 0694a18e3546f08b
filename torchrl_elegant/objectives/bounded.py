"""Gradients that must not outgrow others."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from torchrl_elegant.functional import norm_of


def add_bounded(params: Sequence[Tensor], own: Sequence[Tensor | None], bound: float) -> None:
    """Add ``own`` gradients to those in ``params``, whose norm is first brought down to ``bound``
    times that of ``own``.

    >>> weight = torch.nn.Parameter(torch.zeros(2))
    >>> weight.grad = torch.tensor([0.0, 8.0])
    >>> add_bounded([weight], [torch.tensor([4.0, 0.0])], 0.5)
    >>> weight.grad.tolist()
    [4.0, 2.0]
    """
    base = [grad for grad in own if grad is not None]
    added = [param.grad for param in params if param.grad is not None]
    if base and added:
        most = bound * norm_of(base)
        torch._foreach_mul_(added, (most / norm_of(added).clamp_(min=1e-30)).clamp_(max=1.0))
    both = []
    for param, grad in zip(params, own, strict=True):
        if param.grad is None:
            param.grad = grad
        elif grad is not None:
            both.append((param.grad, grad))
    if both:
        torch._foreach_add_(*map(list, zip(*both, strict=True)))
