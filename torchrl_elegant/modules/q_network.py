"""Values of discrete actions: Q networks, dueling heads, epsilon-greedy actors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import torch
from tensordict import NestedKey, TensorDictBase
from tensordict.nn import TensorDictModuleBase
from torch import Tensor, nn
from torchrl.envs.utils import ExplorationType, exploration_type

from torchrl_elegant.functional import (
    allowed_choices,
    choose,
    chosen,
    dueling_values,
    uniform_sample,
)
from torchrl_elegant.modules.action_mask import FORBIDDEN_VALUE, network_over
from torchrl_elegant.modules.categorical import DiscreteForm, check_choices
from torchrl_elegant.modules.ensemble import EnsembleMLP
from torchrl_elegant.modules.mlp import activation_of, check_architecture, gain_of
from torchrl_elegant.modules.multiagent.agents import Agents, as_agents, spec_of


class DuelingMLP(nn.Module):
    """``EnsembleMLP`` with two streams, ``Q(s, a) = V(s) + A(s, a) - mean_b A(s, b)``.

    The streams separate before the last hidden layer, so that each has its own, as in Wang et al.
    2016 (arXiv:1511.06581, figure 1 and equation 9). Both are computed in one matrix product.

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
        hidden_gain: float | None = None,
    ) -> None:
        super().__init__()
        check_architecture(num_cells, activation)
        if not num_cells:
            raise ValueError("`num_cells` must hold the streams' hidden layer, got `()`")
        self.activation = activation
        self._activate = activation_of(activation)
        *shared, last = num_cells
        self.body = EnsembleMLP(
            num_members=num_members,
            in_features=in_features,
            out_features=2 * last,
            num_cells=shared,
            activation=activation,
            hidden_gain=hidden_gain,
            output_gain=gain_of(activation, hidden_gain),
        )
        self.value, self.advantage = (
            EnsembleMLP(num_members=num_members, in_features=last, out_features=size, num_cells=())
            for size in (1, out_features)
        )

    def forward(self, x: Tensor) -> Tensor:
        """Map ``[B, in]``, shared by the members, to ``[N, B, out]``."""
        state, action = self._activate(self.body(x)).chunk(2, -1)
        return dueling_values(self.value(state), self.advantage(action))


class QNetwork(TensorDictModuleBase):
    """Q(s, .) of N members over discrete actions, where TorchRL takes a ``QValueActor``.

    As a TensorDict module it writes what a ``QValueActor`` writes: the greedy action, the value of
    every action, ``[*B, n]``, and that of the greedy one, ``[*B, 1]``; with several members, of
    their mean. The losses of this package call ``values``, which has the members first.

    Args:
        observation: shape of each observation entry, by key.
        choices: number of actions.
        num_members: number of networks, run as batched matrix products.
        dueling: estimate values as state value plus advantage; see ``DuelingMLP``.
        form: form of the action, ``"one_hot"`` or ``"categorical"`` (an index).
        num_cells, activation, hidden_gain: of the perceptron.
        action_key: entry of the action.
        action_mask: entry that allows actions; the values of others are ``FORBIDDEN_VALUE``, so
            that no maximum takes one. None: all are allowed.
        agents: of the group whose actions it values; where each has a network of its own, there is
            one member.

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
        hidden_gain: float | None = None,
        action_key: NestedKey = "action",
        action_mask: NestedKey | None = None,
        agents: Agents | Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__()
        check_choices(choices, form)
        self._observation, self.action_mask = dict(observation), action_mask
        self.agents = agents = as_agents(agents)
        self._is_separate = agents is not None and not agents.share_parameters
        if self._is_separate and num_members != 1:
            raise ValueError(
                "`num_members` must be 1 where each agent has a network of its own, got "
                f"`{num_members}`"
            )
        make = partial(
            DuelingMLP if dueling else EnsembleMLP,
            num_members=agents.count if agents and self._is_separate else num_members,
            out_features=choices,
            num_cells=num_cells,
            activation=activation,
            hidden_gain=hidden_gain,
        )
        self.inputs, self.net = network_over(
            observation,
            lambda features: make(in_features=features),
            action_mask=action_mask,
            sizes=(choices,),
            fill=FORBIDDEN_VALUE,
            ids=0 if agents is None else agents.ids,
        )
        self.in_keys = list(self.inputs.keys)
        self.out_keys = [action_key, "action_value", "chosen_action_value"]
        # TorchRL's losses read this name.
        self.action_space = form
        self.choices, self.num_members, self.dueling = choices, num_members, dueling
        self._num_cells = tuple(num_cells)

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
        if self._is_separate:  # the members are the agents, the last dimension of the batch
            each = x.reshape(-1, *x.shape[-2:]).transpose(0, 1)  # [n, B, in]
            return self.net(each).transpose(0, 1).reshape(1, *x.shape[:-1], self.choices)
        if x.ndim == 2:
            return self.net(x)
        values = self.net(x.reshape(-1, x.shape[-1]))
        return values.reshape(self.num_members, *x.shape[:-1], self.choices)

    def mean_values(self, observation: Sequence[Tensor]) -> Tensor:
        """Mean of Q over the members, ``[*B, n]``."""
        values = self.values(observation)
        return values[0] if self.num_members == 1 else values.mean(0)

    def spec_dict(self) -> dict[str, Any]:
        """Plain data from which the same architecture can be built."""
        return {
            "observation": {key: list(shape) for key, shape in self._observation.items()},
            "choices": self.choices,
            "num_members": self.num_members,
            "dueling": self.dueling,
            "form": self.action_space,
            "num_cells": list(self._num_cells),
            "activation": self.net.activation,
            "action_key": self.out_keys[0],
            "action_mask": self.action_mask,
            **spec_of(self.agents),
        }


class EpsilonGreedyActor(TensorDictModuleBase):
    """An actor that takes the action of highest value, or with probability epsilon a random one.

    It explores under ``ExplorationType.RANDOM`` or with no type set, in each row by itself, and
    takes the best action otherwise; where the network has an action mask, only allowed ones.
    TorchRL's ``EGreedyModule`` behind a ``QValueActor`` does the same; this one is called by
    collectors without a TensorDict, and its ``epsilon`` is a buffer, so it travels to collector
    processes with the weights.

    Args:
        network: Q(s, .), shared with the loss that trains it, not copied.
        epsilon: the probability at the start.

    >>> import torch
    >>> from tensordict import TensorDict
    >>> net = QNetwork(observation={"observation": (3,)}, choices=4)
    >>> actor = EpsilonGreedyActor(net, epsilon=0.1)
    >>> actor(TensorDict({"observation": torch.zeros(5, 3)}, [5]))["action"].sum(-1).tolist()
    [1, 1, 1, 1, 1]
    """

    def __init__(self, network: QNetwork, *, epsilon: float = 0.0) -> None:
        super().__init__()
        _check_epsilon(epsilon)
        self.network = network
        self.in_keys, self.out_keys = list(network.in_keys), network.out_keys[:1]
        self.register_buffer("epsilon", torch.tensor(float(epsilon)))

    @classmethod
    def from_spec(cls, **network: Any) -> EpsilonGreedyActor:
        """Builds the greedy policy over a new ``QNetwork`` with these arguments."""
        return cls(QNetwork(**network))

    def explore(self, epsilon: float) -> None:
        """Set the probability of a random action."""
        _check_epsilon(epsilon)
        self.epsilon.fill_(epsilon)

    def act(self, *observation: Tensor) -> Tensor:
        """The action for observations given in the order of ``in_keys``."""
        index = self.network.mean_values(observation).detach().argmax(-1)  # [*B]
        if exploration_type() in (None, ExplorationType.RANDOM):
            explores = torch.rand(index.shape, device=index.device) < self.epsilon
            index = torch.where(explores, self._any(index, observation), index)
        return choose(index, self.network.choices, self.network.action_space)

    def _any(self, index: Tensor, observation: Sequence[Tensor]) -> Tensor:
        """Random actions, where there is a mask only allowed ones."""
        choices, mask = self.network.choices, self.network.action_mask
        if mask is None:
            return torch.randint_like(index, choices)
        seen = observation[self.in_keys.index(mask)]
        return uniform_sample(allowed_choices(seen, (choices,)))

    def forward(self, tensordict: TensorDictBase) -> TensorDictBase:
        action = self.act(*(tensordict.get(key) for key in self.in_keys))
        return tensordict.set(self.out_keys[0], action)

    def spec_dict(self) -> dict[str, Any]:
        """Plain data from which ``from_spec`` builds the same architecture."""
        return self.network.spec_dict()


def _check_epsilon(epsilon: float) -> None:
    if not 0.0 <= epsilon <= 1.0:
        raise ValueError(f"`epsilon` must lie in [0, 1], got `{epsilon}`")
