"""The value of every discrete action, in one pass."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tensordict import NestedKey, TensorDictBase
from tensordict.nn import TensorDictModuleBase
from torch import Tensor

from torchrl_elegant.functional import choose, chosen
from torchrl_elegant.modules.categorical import DiscreteForm, check_choices
from torchrl_elegant.modules.dueling import DuelingMLP
from torchrl_elegant.modules.ensemble import EnsembleMLP
from torchrl_elegant.modules.inputs import Inputs


class QNetwork(TensorDictModuleBase):
    """Q(s, .) of N members over discrete actions, where TorchRL takes a ``QValueActor``.

    As a TensorDict module it writes what a ``QValueActor`` writes: the greedy action, the value of
    every action, ``[*B, n]``, and that of the greedy one, ``[*B, 1]``; with several members, of
    their mean. The losses of this package call ``values``, which has the members first.

    Args:
        observation: shape of each observation entry, by key.
        choices: number of actions.
        num_members: how many networks, run as batched matrix products.
        dueling: estimate values as state value plus advantage; see ``DuelingMLP``.
        form: how actions are written, ``"one_hot"`` or ``"categorical"`` (an index).
        num_cells, activation: of the perceptron.
        action_key: where the action is written.

    >>> import torch
    >>> from tensordict import TensorDict
    >>> net = QNetwork(observation={"observation": (3,)}, choices=4, num_members=2)
    >>> data = net(TensorDict({"observation": torch.zeros(5, 3)}, [5]))
    >>> data["action_value"].shape, data["chosen_action_value"].shape
    (torch.Size([5, 4]), torch.Size([5, 1]))
    """

    def __init__(
        self,
        *,
        observation: Mapping[NestedKey, Sequence[int]],
        choices: int,
        num_members: int = 1,
        dueling: bool = False,
        form: DiscreteForm = "one_hot",
        num_cells: Sequence[int] = (64, 64),
        activation: str = "relu",
        action_key: NestedKey = "action",
    ) -> None:
        super().__init__()
        check_choices(choices, form)
        self.inputs = Inputs(observation)
        self.in_keys = list(self.inputs.keys)
        self.out_keys = [action_key, "action_value", "chosen_action_value"]
        # What TorchRL's losses ask a Q network for.
        self.action_space = form
        self.choices, self.num_members, self.dueling = choices, num_members, dueling
        self._num_cells = tuple(num_cells)
        self.net = (DuelingMLP if dueling else EnsembleMLP)(
            num_members=num_members,
            in_features=self.inputs.features,
            out_features=choices,
            num_cells=num_cells,
            activation=activation,
        )

    def forward(self, tensordict: TensorDictBase) -> TensorDictBase:
        value = self.mean_values([tensordict.get(key) for key in self.in_keys])
        action = choose(value.detach().argmax(-1), self.choices, self.action_space)
        results = action, value, chosen(value, action, self.action_space).unsqueeze(-1)
        for key, result in zip(self.out_keys, results, strict=True):
            tensordict.set(key, result)
        return tensordict

    def values(self, observation: Sequence[Tensor]) -> Tensor:
        """Q of every member and action, ``[N, *B, n]``."""
        x = self.inputs.join(observation)  # [*B, in]
        if x.ndim == 2:
            return self.net(x)
        values = self.net(x.reshape(-1, x.shape[-1]))
        return values.reshape(self.num_members, *x.shape[:-1], self.choices)

    def mean_values(self, observation: Sequence[Tensor]) -> Tensor:
        """What the members say on average, ``[*B, n]``."""
        values = self.values(observation)
        return values[0] if self.num_members == 1 else values.mean(0)

    def spec_dict(self) -> dict[str, Any]:
        """Plain data from which the same architecture can be built again."""
        return {
            "observation": self.inputs.spec_dict(),
            "choices": self.choices,
            "num_members": self.num_members,
            "dueling": self.dueling,
            "form": self.action_space,
            "num_cells": list(self._num_cells),
            "activation": self.net.activation,
            "action_key": self.out_keys[0],
        }
