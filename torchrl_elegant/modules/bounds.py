"""What actors share whose actions lie between two bounds."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from tensordict import NestedKey, TensorDictBase
from tensordict.nn import TensorDictModuleBase
from torch import Tensor

from torchrl_elegant.modules.inputs import Inputs
from torchrl_elegant.modules.mlp import MLP


class BoundedActor(TensorDictModuleBase):
    """A perceptron over joined observations whose action lies between ``low`` and ``high``.

    Args:
        observation: shape of each observation entry, by key; ``Inputs`` joins them.
        low, high: bounds of the action, nested lists or tensors of the action's shape.
        num_cells, activation: of the perceptron.
        action_key: where the action is written.
    """

    #: Numbers that the perceptron gives for each dimension of the action.
    outputs_per_dimension = 1

    low: Tensor
    high: Tensor

    def __init__(
        self,
        *,
        observation: Mapping[NestedKey, Sequence[int]],
        low: Tensor | Sequence[float],
        high: Tensor | Sequence[float],
        num_cells: Sequence[int] = (256, 256),
        activation: str = "relu",
        action_key: NestedKey = "action",
    ) -> None:
        super().__init__()
        self._set_bounds(low, high)
        self.inputs = Inputs(observation)
        self.in_keys, self.out_keys = list(self.inputs.keys), [action_key]
        self._num_cells = tuple(num_cells)
        self.net = MLP(
            in_features=self.inputs.features,
            out_features=self.outputs_per_dimension * self.low.numel(),
            num_cells=num_cells,
            activation=activation,
            output_gain=0.01,
        )

    def forward(self, tensordict: TensorDictBase) -> TensorDictBase:
        action = self.act(*(tensordict.get(key) for key in self.in_keys))
        return tensordict.set(self.out_keys[0], action)

    @abstractmethod
    def act(self, *observation: Tensor) -> Tensor:
        """The action at observations given in the order of ``in_keys``."""

    def spec_dict(self) -> dict[str, Any]:
        """Plain data from which the same architecture can be built again."""
        return {
            "observation": self.inputs.spec_dict(),
            "low": self.low.tolist(),
            "high": self.high.tolist(),
            "num_cells": list(self._num_cells),
            "activation": self.net.activation,
            "action_key": self.out_keys[0],
        }

    def clip(self, action: Tensor) -> Tensor:
        """The nearest action within the bounds."""
        if self._unit_bounds:
            return action.clamp(-1.0, 1.0)
        return action.clamp(self.low, self.high)

    def _set_bounds(self, low: Tensor | Sequence[float], high: Tensor | Sequence[float]) -> None:
        low, high = (torch.as_tensor(x, dtype=torch.float32).clone() for x in (low, high))
        if not bool((torch.isfinite(low) & torch.isfinite(high) & (low < high)).all()):
            raise ValueError(
                f"`low` and `high` must be finite with low < high, got `{low.tolist()}` and "
                f"`{high.tolist()}`; this actor needs a bounded action space"
            )
        self.register_buffer("low", low)
        self.register_buffer("high", high)
        self._unit_bounds = bool((low == -1).all() and (high == 1).all())
        self.action_shape = low.shape

    def _scale(self, action: Tensor) -> Tensor:
        """From -1 to 1 in a flat vector to between the bounds in the action's shape."""
        action = action if len(self.action_shape) < 2 else action.unflatten(-1, self.action_shape)
        if self._unit_bounds:
            return action
        half = (self.high - self.low) * 0.5
        return torch.addcmul(self.low + half, action, half)
