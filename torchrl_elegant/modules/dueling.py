"""Values as what a state is worth and what an action adds to it."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor, nn

from torchrl_elegant.functional import dueling_values
from torchrl_elegant.modules.ensemble import EnsembleMLP
from torchrl_elegant.modules.mlp import ACTIVATIONS, check_architecture, hidden_gain


class DuelingMLP(nn.Module):
    """``EnsembleMLP`` with two streams, ``Q(s, a) = V(s) + A(s, a) - mean_b A(s, b)``.

    The streams part before the last hidden layer, of which each has one of its own, as in Wang et
    al. 2016 (arXiv:1511.06581, figure 1 and equation 9). Both of those are one matrix product.

    >>> import torch
    >>> net = DuelingMLP(num_members=2, in_features=3, out_features=4, num_cells=(8, 8))
    >>> net(torch.zeros(5, 3)).shape
    torch.Size([2, 5, 4])
    """

    def __init__(
        self,
        *,
        num_members: int,
        in_features: int,
        out_features: int,
        num_cells: Sequence[int] = (256, 256),
        activation: str = "relu",
    ) -> None:
        super().__init__()
        check_architecture(num_cells, activation)
        if not num_cells:
            raise ValueError("`num_cells` must hold the streams' hidden layer, got `()`")
        self.activation = activation
        self._activate = ACTIVATIONS[activation]
        *shared, last = num_cells
        self.body = EnsembleMLP(
            num_members=num_members,
            in_features=in_features,
            out_features=2 * last,
            num_cells=shared,
            activation=activation,
            output_gain=hidden_gain(activation),
        )
        self.value, self.advantage = (
            EnsembleMLP(num_members=num_members, in_features=last, out_features=size, num_cells=())
            for size in (1, out_features)
        )

    def forward(self, x: Tensor) -> Tensor:
        """Map ``[B, in]``, shared by the members, to ``[N, B, out]``."""
        state, action = self._activate(self.body(x)).chunk(2, -1)
        return dueling_values(self.value(state), self.advantage(action))
