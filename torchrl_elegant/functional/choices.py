"""Values over discrete actions (Wang et al. 2016), and actions as index or one-hot."""

from __future__ import annotations

import torch
from torch import Tensor


def dueling_values(value: Tensor, advantage: Tensor) -> Tensor:
    """Q(s, a) = V(s) + A(s, a) - mean_b A(s, b) (Wang et al. 2016, equation 9).

    >>> import torch
    >>> dueling_values(torch.tensor([5.0]), torch.tensor([1.0, 3.0])).tolist()
    [4.0, 6.0]
    """
    return advantage + (value - advantage.mean(-1, keepdim=True))  # [*B, n]


def choose(index: Tensor, choices: int, form: str) -> Tensor:
    """Actions ``[*B]`` as an environment takes them: the index itself, or one-hot ``[*B, n]``.

    >>> import torch
    >>> choose(torch.tensor([2, 0]), 3, "one_hot").tolist()
    [[0, 0, 1], [1, 0, 0]]
    """
    if form == "categorical":
        return index
    action = torch.zeros((*index.shape, choices), dtype=torch.int64, device=index.device)
    return action.scatter(-1, index.unsqueeze(-1), 1)


def chosen(values: Tensor, action: Tensor, form: str) -> Tensor:
    """The value of ``action``, ``[*B]``, out of ``[*B, n]``; one-hot of any kind is summed.

    >>> import torch
    >>> values = torch.tensor([[1.0, 2.0], [3.0, 4.0]])
    >>> chosen(values, torch.tensor([1, 0]), "categorical").tolist()
    [2.0, 3.0]
    >>> chosen(values, torch.tensor([[0, 1], [1, 0]]), "one_hot").tolist()
    [2.0, 3.0]
    """
    if form == "categorical":
        index = action if action.ndim == values.ndim else action.unsqueeze(-1)
        return values.gather(-1, index).squeeze(-1)
    return (values * action.to(values.dtype)).sum(-1)
