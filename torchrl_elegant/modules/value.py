"""State value network."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tensordict import NestedKey, TensorDictBase
from tensordict.nn import TensorDictModuleBase
from torch import Tensor

from torchrl_elegant.modules.inputs import Inputs
from torchrl_elegant.modules.mlp import MLP


class StateValue(TensorDictModuleBase):
    """V(s); can be used wherever TorchRL takes a ``ValueOperator``.

    Args:
        observation: shape of each observation entry, by key.
        num_cells, activation, hidden_gain: of the perceptron.
        value_key: entry of the value.

    >>> import torch
    >>> from tensordict import TensorDict
    >>> critic = StateValue(observation={"observation": (3,)})
    >>> critic(TensorDict({"observation": torch.zeros(5, 3)}, [5]))["state_value"].shape
    torch.Size([5, 1])
    """

    def __init__(
        self,
        *,
        observation: Mapping[NestedKey, Sequence[int]],
        num_cells: Sequence[int] = (64, 64),
        activation: str = "tanh",
        hidden_gain: float | None = None,
        value_key: NestedKey = "state_value",
    ) -> None:
        super().__init__()
        self.inputs = Inputs(observation)
        self.in_keys, self.out_keys = list(self.inputs.keys), [value_key]
        self.net = MLP(
            in_features=self.inputs.features,
            out_features=1,
            num_cells=num_cells,
            activation=activation,
            hidden_gain=hidden_gain,
        )

    def forward(self, tensordict: TensorDictBase) -> TensorDictBase:
        values = self.values([tensordict.get(key) for key in self.in_keys])
        return tensordict.set(self.out_keys[0], values)

    def values(self, observation: Sequence[Tensor]) -> Tensor:
        """V at observations given in the order of ``in_keys``, ``[*B, 1]``."""
        return self.net(self.inputs.join(observation))
