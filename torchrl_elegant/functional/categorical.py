"""Log-probabilities, entropies and draws of discrete actions."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor


def categorical_sample(logits: Tensor) -> Tensor:
    """Indices drawn with probabilities softmax(logits), by exponential clocks.

    ``argmin_i E_i / p_i`` with ``E_i ~ Exp(1)`` falls on i with probability ``p_i``, in a
    third of the time of ``torch.multinomial`` on a small batch.

    >>> import torch
    >>> categorical_sample(torch.tensor([[0.0, -torch.inf], [-torch.inf, 0.0]])).tolist()
    [0, 1]
    """
    clocks = torch.empty_like(logits).exponential_().log_()
    return (logits - clocks).argmax(-1)  # [*B]


def allowed_choices(mask: Tensor, sizes: Sequence[int]) -> Tensor:
    """Choices that ``mask`` ``[*B, sum(sizes)]`` allows, for one or several choices side by side.

    Where it forbids all of a choice, as at the end of a game, all of it is allowed.

    >>> import torch
    >>> allowed_choices(torch.tensor([[1, 0, 0, 0], [0, 1, 1, 1]]), (2, 2)).int().tolist()
    [[1, 0, 1, 1], [0, 1, 1, 1]]
    """
    blocks = (mask != 0).split(list(sizes), -1)
    return torch.cat([block | ~block.any(-1, keepdim=True) for block in blocks], -1)


def uniform_sample(allowed: Tensor) -> Tensor:
    """Indices ``[*B]`` drawn evenly from those that are allowed ``[*B, n]``.

    >>> import torch
    >>> uniform_sample(torch.tensor([[True, False], [False, True]])).tolist()
    [0, 1]
    """
    even = torch.zeros(allowed.shape, device=allowed.device)
    return categorical_sample(even.masked_fill(~allowed, -torch.inf))


def categorical_slope(
    log_probs: Tensor, index: Tensor, grad_log_prob: Tensor, grad_entropy: Tensor | None
) -> Tensor:
    """Gradient of the logits, from those of ``log pi(a)`` ``[*B]`` and of each row's entropy.

    ``d log pi(a) / d logits = 1_a - pi``, ``d H / d logits = -pi (log pi + H)``.

    >>> import torch
    >>> log_probs = torch.tensor([[0.25, 0.75]]).log()
    >>> categorical_slope(log_probs, torch.tensor([0]), torch.ones(1), None).tolist()
    [[0.75, -0.75]]
    """
    probs = log_probs.exp()
    grad = grad_log_prob.unsqueeze(-1)
    slope = (probs * grad).neg_().scatter_add_(-1, index.unsqueeze(-1), grad)
    if grad_entropy is not None:
        finite = log_probs.clamp_min(torch.finfo(log_probs.dtype).min)
        entropy = (probs * finite).sum(-1, keepdim=True).neg_()
        slope -= grad_entropy * probs * (finite + entropy)
    return slope


def categorical_entropy(log_probs: Tensor) -> Tensor:
    """H = - sum_i p_i log p_i, from normalized log-probabilities; 0 log 0 counts as 0.

    >>> import torch
    >>> round(categorical_entropy(torch.tensor([0.5, 0.5]).log()).item(), 4)
    0.6931
    """
    probs = log_probs.exp()
    # Its gradient is multiplied by others before it meets the zero.
    return -(probs * log_probs.clamp_min(-1e4)).sum(-1)


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
    """Value of ``action``, ``[*B]``, out of ``[*B, n]``; of any one-hot form, the sum.

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
