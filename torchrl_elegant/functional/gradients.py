"""How large gradients are."""

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
