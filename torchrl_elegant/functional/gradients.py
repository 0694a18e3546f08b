"""Norms of gradients, and gradients kept below a norm."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor


def norm_of(grads: Sequence[Tensor]) -> Tensor:
    """The norm of all gradients as one vector.

    >>> norm_of([torch.tensor([3.0]), torch.tensor([[4.0]])]).item()
    5.0
    """
    return torch.linalg.vector_norm(torch.stack(torch._foreach_norm(list(grads))))


def clip_gradients(grads: list[Tensor], max_norm: float) -> None:
    """Scale ``grads`` in place so that their common norm is at most ``max_norm``.

    >>> import torch
    >>> grads = [torch.tensor([3.0]), torch.tensor([4.0])]
    >>> clip_gradients(grads, 1.0)
    >>> [round(grad.item(), 4) for grad in grads]
    [0.6, 0.8]
    """
    torch._foreach_mul_(grads, (max_norm / (norm_of(grads) + 1e-6)).clamp_(max=1.0))


def add_gradients(params: Sequence[Tensor], grads: Sequence[Tensor]) -> None:
    """Add ``grads`` to those of ``params``, as ``backward`` does.

    >>> weight = torch.ones(1, requires_grad=True)
    >>> add_gradients([weight], [torch.ones(1)])
    >>> weight.grad.item()
    1.0
    """
    for param, grad in zip(params, grads, strict=True):
        param.grad = grad if param.grad is None else param.grad + grad
