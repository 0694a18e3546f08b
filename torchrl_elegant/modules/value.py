"""State value network."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tensordict import NestedKey, TensorDictBase
from tensordict.nn import TensorDictModuleBase
from torch import Tensor

from torchrl_elegant.modules.inputs import Inputs
from torchrl_elegant.modules.mlp import MLP
from torchrl_elegant.modules.multiagent.agents import Agents, SeparateMLP, perceptron_of


class StateValue(TensorDictModuleBase):
    """V(s); can be used wherever TorchRL takes a ``ValueOperator``.

    Args:
        observation: shape of each observation entry, by key.
        num_cells, activation, hidden_gain: of the perceptron.
        value_key: entry of the value.
        agents: of the group whose states it values; all shapes are those of one agent.

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
        agents: Agents | None = None,
    ) -> None:
        super().__init__()
        self.inputs = Inputs(observation, ids=0 if agents is None else agents.ids)
        self.in_keys, self.out_keys = list(self.inputs.keys), [value_key]
        self.agents = agents
        self.net: Any = self._network(
            in_features=self.inputs.features,
            num_cells=num_cells,
            activation=activation,
            hidden_gain=hidden_gain,
        )

    def _network(self, **options: Any) -> MLP | SeparateMLP:
        return perceptron_of(self.agents, out_features=1, **options)

    def forward(self, tensordict: TensorDictBase) -> TensorDictBase:
        values = self.values([tensordict.get(key) for key in self.in_keys])
        return tensordict.set(self.out_keys[0], values)

    def values(self, observation: Sequence[Tensor]) -> Tensor:
        """V at observations given in the order of ``in_keys``, ``[*B, 1]``."""
        return self.net(self.inputs.join(observation))
