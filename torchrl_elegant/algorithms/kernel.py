"""One step of Adam over lists of tensors, in PyTorch's fused kernel."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

#: Betas, learning rate, weight decay, epsilon, whether to maximise.
Settings = tuple[Any, ...]


def fused_step(
    settings: Settings,
    scale: Tensor | None,
    one: Tensor,
    grads: list[Tensor],
    params: list[Tensor],
    exp_avg: list[Tensor],
    exp_avg_sq: list[Tensor],
    steps: list[Tensor],
) -> None:
    """Adam (Kingma and Ba 2015, algorithm 1) in place; gradients are divided by ``scale`` first.

    >>> one, param, grad = torch.ones(()), torch.ones(1), torch.ones(1)
    >>> state = [[torch.zeros(1)], [torch.zeros(1)], [torch.zeros(())]]
    >>> fused_step(((0.9, 0.999), 0.1, 0.0, 1e-8, False), None, one, [grad], [param], *state)
    >>> round(param.item(), 3)
    0.9
    """
    if steps[0].is_cpu:
        # A Python number would be wrapped into a tensor once per step count.
        torch._foreach_add_(steps, one, alpha=1.0)
    else:
        torch._foreach_add_(steps, 1)
    betas, lr, weight_decay, eps, maximize = settings
    torch._fused_adam_(
        params,
        grads,
        exp_avg,
        exp_avg_sq,
        [],
        steps,
        amsgrad=False,
        lr=lr,
        beta1=betas[0],
        beta2=betas[1],
        weight_decay=weight_decay,
        eps=eps,
        maximize=maximize,
        grad_scale=scale,
    )
