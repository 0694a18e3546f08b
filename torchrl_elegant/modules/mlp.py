"""Multilayer perceptron with orthogonal weights."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from itertools import pairwise
from typing import cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F


def _silu(x: Tensor) -> Tensor:
    # Its gradient reads the pre-activation.
    return F.silu(x, inplace=not torch.is_grad_enabled())


# In-place variants: the pre-activation is never needed again, and a fresh buffer per layer costs
# more than the arithmetic at these sizes. No lambdas: networks are pickled to collector processes.
ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "elu": partial(F.elu, inplace=True),
    "gelu": F.gelu,
    "leaky_relu": partial(F.leaky_relu, inplace=True),
    "relu": torch.relu_,
    "silu": _silu,
    "tanh": torch.tanh_,
}


# Before the name of an activation.
_NORMALIZED = "layer_norm_"


def layer_normalized(activation: str) -> str:
    """Name of an activation behind a layer normalization without parameters (arXiv:1607.06450).

    >>> function = activation_of(layer_normalized("relu"))
    >>> function(torch.tensor([1.0, 3.0])).tolist()[0]
    0.0
    """
    return f"{_NORMALIZED}{activation}"


def activation_of(name: str) -> Callable[[Tensor], Tensor]:
    """The function that a name in ``ACTIVATIONS`` stands for, or ``layer_normalized`` of one."""
    if name in ACTIVATIONS:
        return ACTIVATIONS[name]
    return partial(_normalize, ACTIVATIONS[name.removeprefix(_NORMALIZED)])


def _normalize(activate: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
    return activate(F.layer_norm(x, x.shape[-1:]))


def check_architecture(num_cells: Sequence[int], activation: str) -> None:
    """Refuse impossible sizes and unknown activations."""
    if any(not isinstance(cells, int) or cells < 1 for cells in num_cells):
        raise ValueError(f"`num_cells` must hold positive integers, got `{tuple(num_cells)}`")
    if activation.removeprefix(_NORMALIZED) not in ACTIVATIONS:
        raise ValueError(f"`activation` must be one of {sorted(ACTIVATIONS)}, got `{activation}`")


def gain_of(activation: str, hidden_gain: float | None = None) -> float:
    """The gain ``hidden_gain``, or the one that keeps the variance of a layer's output.

    >>> gain_of("relu", 1.0), round(gain_of("relu"), 3), round(gain_of("tanh"), 3)
    (1.0, 1.414, 1.667)
    """
    if hidden_gain is None:
        tanh = activation.removeprefix(_NORMALIZED) == "tanh"
        return 5.0 / 3.0 if tanh else math.sqrt(2.0)
    if not (hidden_gain > 0 and math.isfinite(hidden_gain)):
        raise ValueError(f"`hidden_gain` must be a positive number, got `{hidden_gain}`")
    return hidden_gain


class MLP(nn.Module):
    """Fully connected layers with an activation between them and a linear output.

    Args:
        in_features, out_features: sizes of input and output.
        num_cells: sizes of the hidden layers; may be empty.
        activation: a name from ``ACTIVATIONS``, or ``layer_normalized`` of one.
        hidden_gain: scale of the hidden layers' orthogonal weights; None: that of ``gain_of``.
        output_gain: scale of the last layer's orthogonal weights.

    >>> import torch
    >>> MLP(in_features=3, out_features=2, num_cells=(8,))(torch.zeros(5, 3)).shape
    torch.Size([5, 2])
    """

    def __init__(
        self,
        *,
        in_features: int,
        out_features: int,
        num_cells: Sequence[int] = (256, 256),
        activation: str = "relu",
        hidden_gain: float | None = None,
        output_gain: float = 1.0,
    ) -> None:
        super().__init__()
        check_architecture(num_cells, activation)
        self.activation = activation
        self.activate = activation_of(activation)
        sizes = [in_features, *num_cells, out_features]
        layers = [nn.Linear(a, b) for a, b in pairwise(sizes)]
        self.layers = nn.ModuleList(layers)
        gain = gain_of(activation, hidden_gain)
        for layer in layers:
            nn.init.orthogonal_(layer.weight, output_gain if layer is layers[-1] else gain)
            nn.init.zeros_(layer.bias)

    def forward(self, x: Tensor) -> Tensor:
        # Without the call of each module: its hooks cost as much as a narrow layer.
        last = len(self.layers) - 1
        for i, layer in enumerate(self.linears()):
            x = F.linear(x, layer.weight, layer.bias)
            if i < last:
                x = self.activate(x)
        return x

    def linears(self) -> Iterable[nn.Linear]:
        """The layers from input to output."""
        return cast("Iterable[nn.Linear]", self.layers)
