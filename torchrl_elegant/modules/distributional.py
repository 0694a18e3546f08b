"""Critics that predict a distribution of returns."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor

from torchrl_elegant.modules.ensemble import EnsembleCritic, EnsembleMLP


class DistributionalCritic(EnsembleCritic):
    r"""``EnsembleCritic`` whose members predict how likely each of K returns is.

    With atoms :math:`z_1, \ldots, z_K` evenly spaced from ``v_min`` to ``v_max`` and a network's
    outputs :math:`l_j` (Bellemare et al. 2017, arXiv:1707.06887):

    .. math::

        p_j(s, a) &= \mathrm{softmax}_j \, l(s, a)  \\
        Q(s, a) &= \sum_j p_j(s, a) \, z_j

    ``values`` and ``frozen_values`` are the means Q. ``TD3Loss`` and ``SACLoss`` over such a critic
    learn the distributions.

    Args:
        atoms: K.
        v_min, v_max: smallest and largest return that it can predict, in units of the rewards
            that the loss is shown.
        ensemble: as for ``EnsembleCritic``.

    >>> critic = DistributionalCritic(
    ...     observation={"observation": (3,)}, action_shape=(1,), atoms=5, v_min=-1.0, v_max=1.0
    ... )
    >>> seen, action = [torch.zeros(4, 3)], torch.zeros(4, 1)
    >>> critic.logits(seen, action).shape, critic.values(seen, action).shape
    (torch.Size([2, 4, 5]), torch.Size([2, 4]))
    """

    def __init__(
        self, *, atoms: int = 101, v_min: float = -10.0, v_max: float = 10.0, **ensemble: Any
    ) -> None:
        if atoms < 2:
            raise ValueError(f"`atoms` must be at least 2, got `{atoms}`")
        if not v_min < v_max:
            raise ValueError(f"`v_min` must lie below v_max ({v_max}), got `{v_min}`")
        self._count = atoms
        super().__init__(**ensemble)
        self.v_min, self.v_max = float(v_min), float(v_max)

    def logits(
        self, observation: Sequence[Tensor], action: Tensor, members: Tensor | None = None
    ) -> Tensor:
        """Outputs of every member, ``[N, *B, K]``, or of those at the indices ``members``."""
        run = partial(self.net.forward, members=members)
        return self._outputs(run, self.inputs.parts(observation), action)

    def atoms(self, device: torch.device) -> Tensor:
        """Returns that it tells apart, ``[K]``."""
        return torch.linspace(self.v_min, self.v_max, self._count, device=device)

    def _network(self, **options: Any) -> EnsembleMLP:
        return EnsembleMLP(num_members=self.num_critics, out_features=self._count, **options)

    def _run(self, run: Callable[[Tensor], Tensor], seen: list[Tensor], action: Tensor) -> Tensor:
        return self._outputs(run, seen, action).softmax(-1) @ self.atoms(action.device)

    def _outputs(
        self, run: Callable[[Tensor], Tensor], seen: list[Tensor], action: Tensor
    ) -> Tensor:
        x = self._joined(seen, action)
        if x.ndim == 2:
            return run(x)
        out = run(x.reshape(-1, x.shape[-1]))
        return out.reshape(out.shape[0], *x.shape[:-1], self._count)
