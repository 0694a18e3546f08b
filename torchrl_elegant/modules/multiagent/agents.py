"""Agents of a group, and perceptrons with parameters of each agent's own."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from torch import Tensor, nn

from torchrl_elegant.modules.ensemble import EnsembleMLP
from torchrl_elegant.modules.mlp import MLP


@dataclass(frozen=True, kw_only=True)
class Agents:
    """Number of agents in a group, and how their networks tell them apart.

    The agents are the last but one dimension of what a network reads and writes.

    Args:
        count: agents.
        share_parameters: one network for all; else each agent has weights of its own.
        agent_id: append the agent's number to its inputs, as one-hot; needs shared parameters.

    >>> Agents(count=3).ids, Agents(count=3, agent_id=True).ids
    (0, 3)
    """

    count: int
    share_parameters: bool = True
    agent_id: bool = False

    def __post_init__(self) -> None:
        if self.count < 1:
            raise ValueError(f"`count` must be at least 1, got `{self.count}`")
        if self.agent_id and not self.share_parameters:
            raise ValueError(
                "`agent_id` must be False where each agent has parameters of its own, got `True`; "
                "they tell the agents apart already"
            )

    @property
    def ids(self) -> int:
        """Inputs that hold the agent's number."""
        return self.count if self.agent_id else 0


class SeparateMLP(nn.Module):
    """A perceptron for each agent, in batched products: ``[*B, n, in]`` to ``[*B, n, out]``.

    >>> import torch
    >>> net = SeparateMLP(agents=3, in_features=4, out_features=2, num_cells=(8,))
    >>> net(torch.zeros(5, 3, 4)).shape
    torch.Size([5, 3, 2])
    """

    def __init__(self, *, agents: int, **options: Any) -> None:
        super().__init__()
        self.agents = agents
        self.net = EnsembleMLP(num_members=agents, **options)

    @property
    def activation(self) -> str:
        """Activation of the hidden layers."""
        return self.net.activation

    def forward(self, x: Tensor) -> Tensor:
        rows = x.shape[:-2]
        each = x.reshape(-1, self.agents, x.shape[-1]).transpose(0, 1)  # [n, B, in]
        return self.net(each).transpose(0, 1).reshape(*rows, self.agents, -1)


def as_agents(agents: Agents | Mapping[str, Any] | None) -> Agents | None:
    """Agents from themselves or from their plain data.

    >>> as_agents({"count": 2}).count
    2
    """
    return Agents(**agents) if isinstance(agents, Mapping) else agents


def spec_of(agents: Agents | None) -> dict[str, Any]:
    """Plain data of the argument ``agents``, for a ``spec_dict``; nothing for a single agent.

    >>> spec_of(None), spec_of(Agents(count=2))["agents"]["count"]
    ({}, 2)
    """
    return {} if agents is None else {"agents": asdict(agents)}


def perceptron_of(agents: Agents | None, **options: Any) -> MLP | SeparateMLP:
    """The perceptron of one agent, or of each in a group; arguments as for ``MLP``.

    >>> type(perceptron_of(None, in_features=3, out_features=1)).__name__
    'MLP'
    """
    if agents is None or agents.share_parameters:
        return MLP(**options)
    return SeparateMLP(agents=agents.count, **options)
