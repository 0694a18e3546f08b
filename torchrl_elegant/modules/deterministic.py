"""The deterministic actor of DDPG and TD3."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from tensordict import NestedKey, TensorDictBase
from tensordict.nn import TensorDictModuleBase
from torch import Tensor

from torchrl_elegant.modules.bounds import BoundedAction
from torchrl_elegant.modules.inputs import Inputs
from torchrl_elegant.modules.mlp import MLP


class DeterministicActor(BoundedAction, TensorDictModuleBase):
    """Policy ``a = low + (high - low) (tanh(f(s)) + 1) / 2``.

    It stands wherever TorchRL takes an ``Actor``, and does not explore by itself: a ``NoisyActor``
    adds noise of this package, TorchRL's exploration modules follow it in a sequence as they
    follow any actor.

    Args:
        observation: shape of each observation entry, by key; entries are joined.
        low, high: bounds of the action, nested lists or tensors of the action's shape.
        num_cells, activation: of the perceptron.
        action_key: where the action is written.

    >>> import torch
    >>> from tensordict import TensorDict
    >>> actor = DeterministicActor(observation={"observation": (3,)}, low=[-1.0], high=[1.0])
    >>> actor(TensorDict({"observation": torch.zeros(5, 3)}, [5]))["action"].shape
    torch.Size([5, 1])
    """

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
        self.in_keys = list(self.inputs.keys)
        self.out_keys = [action_key]
        self._num_cells = tuple(num_cells)
        self.net = MLP(
            in_features=self.inputs.features,
            out_features=self.low.numel(),
            num_cells=num_cells,
            activation=activation,
            output_gain=0.01,
        )

    def forward(self, tensordict: TensorDictBase) -> TensorDictBase:
        action = self.act(*(tensordict.get(key) for key in self.in_keys))
        return tensordict.set(self.out_keys[0], action)

    def act(self, *observation: Tensor) -> Tensor:
        """The action at observations given in the order of ``in_keys``."""
        return self._scale(torch.tanh(self.net(self.inputs.join(observation))))

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
