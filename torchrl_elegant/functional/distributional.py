"""Distributions of returns over fixed atoms."""

from __future__ import annotations

import torch
from torch import Tensor


def categorical_projection(probs: Tensor, moved: Tensor, *, low: float, high: float) -> Tensor:
    r"""Probabilities of evenly spaced atoms, from those of atoms that have ``moved``, ``[*B, K]``.

    With atoms :math:`z_i` from ``low`` to ``high``, :math:`\Delta` apart, the mass of a moved atom
    goes to its two neighbors (Bellemare et al. 2017, arXiv:1707.06887, equation 7):

    .. math::

        m_i = \sum_j \Big[ 1 - |\mathrm{clip}(y_j, z_1, z_K) - z_i| / \Delta \Big]_0^1 \, p_j

    >>> probs, moved = torch.tensor([[0.5, 0.25, 0.25]]), torch.tensor([[0.0, 0.5, 9.0]])
    >>> categorical_projection(probs, moved, low=0.0, high=2.0).tolist()
    [[0.625, 0.125, 0.25]]
    """
    last = probs.shape[-1] - 1
    place = ((moved - low) * (last / (high - low))).clamp(0.0, float(last))
    # A NaN must reach the loss, where it is told: no index is one.
    below = place.nan_to_num().floor().clamp_(max=float(last - 1))
    share, index = place - below, below.long()  # [*B, K]
    projected = torch.zeros_like(probs).scatter_add(-1, index, probs * (1.0 - share))
    return projected.scatter_add(-1, index + 1, probs * share)


def cross_entropy(target: Tensor, logits: Tensor) -> Tensor:
    """``-sum_j m_j log softmax(l)_j``, ``[*B]``.

    >>> round(cross_entropy(torch.tensor([0.5, 0.5]), torch.zeros(2)).item(), 4)
    0.6931
    """
    return -(target * logits.log_softmax(-1)).sum(-1)


def of_smallest_mean(probs: Tensor, atoms: Tensor) -> Tensor:
    """For each row the distribution of the member whose mean is smallest, ``[N, *B, K]`` to
    ``[*B, K]``.

    It is clipped double Q-learning for distributions (Seo et al. 2025, arXiv:2505.22642): the
    whole distribution of one member, and not a mixture of several.

    >>> probs = torch.tensor([[[0.0, 1.0]], [[0.5, 0.5]]])
    >>> of_smallest_mean(probs, torch.tensor([0.0, 1.0])).tolist()
    [[0.5, 0.5]]
    """
    index = (probs @ atoms).argmin(0)  # [*B]
    index = index[None, ..., None].expand(1, *probs.shape[1:])
    return probs.gather(0, index).squeeze(0)
