"""Critics of a group, which give a value for each of its agents."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Literal

import torch
from tensordict import NestedKey
from torch import Tensor

from torchrl_elegant.modules.ensemble import EnsembleCritic, EnsembleMLP
from torchrl_elegant.modules.inputs import Inputs
from torchrl_elegant.modules.mlp import MLP
from torchrl_elegant.modules.multiagent.agents import Agents, SeparateMLP, perceptron_of
from torchrl_elegant.modules.value import StateValue

#: Agents whose observations and actions a critic reads.
Sees = Literal["all", "own"]


class TeamCritic(EnsembleCritic):
    """Q of each agent of a group, ``[*B, n]``, by N critics.

    A critic that sees all reads the observations and actions of the whole group. With shared
    parameters it is one network with an output for each agent: the values of agents with rewards of
    their own differ. Else each agent has a network of its own.

    Args:
        observation: shapes of the entries by key: of all agents where it sees all, else of one.
        action_shape: shape of the action, likewise.
        agents: of the group.
        sees: ``"all"`` agents, or each ``"own"`` alone.
        options: as for ``EnsembleCritic``.

    >>> seen, agents = {("agents", "observation"): (3, 4)}, Agents(count=3)
    >>> critic = TeamCritic(observation=seen, action_shape=(3, 2), agents=agents, num_critics=2)
    >>> critic.values([torch.zeros(5, 3, 4)], torch.zeros(5, 3, 2)).shape
    torch.Size([2, 5, 3])
    """

    def __init__(
        self,
        *,
        observation: Mapping[NestedKey, Sequence[int]],
        action_shape: Sequence[int],
        agents: Agents,
        sees: Sees = "all",
        **options: Any,
    ) -> None:
        self.agents, self.sees = agents, sees
        super().__init__(observation=observation, action_shape=action_shape, **options)

    def values(
        self, observation: Sequence[Tensor], action: Tensor, members: Tensor | None = None
    ) -> Tensor:
        """Q of every agent by every critic, ``[N, *B, n]``, or by the critics ``members``."""
        count = self.num_critics if members is None else len(members)
        if members is not None and self._each > 1:
            of_each = torch.arange(self._each, device=members.device)
            members = (members.unsqueeze(-1) * self._each + of_each).flatten()
        run = partial(self.net.forward, members=members)
        return self._valued(run, count, self._joined(self.inputs.parts(observation), action))

    def frozen_values(
        self, observation: Sequence[Tensor], action: Tensor, first: int | None = None
    ) -> Tensor:
        """As ``values``, of the ``first`` critics; no gradient reaches the parameters."""
        run = partial(self.net.forward_frozen, first=first and first * self._each)
        x = self._joined(self.inputs.frozen_parts(observation), action)
        return self._valued(run, first or self.num_critics, x)

    @property
    def _each(self) -> int:
        """Networks of one critic."""
        return 1 if self.agents.share_parameters else self.agents.count

    def _inputs(self, observation: Mapping[NestedKey, Sequence[int]]) -> Inputs:
        return Inputs(observation, ids=self.agents.ids if self.sees == "own" else 0)

    def _network(self, **options: Any) -> EnsembleMLP:
        members = self.num_critics * self._each
        outputs = self.agents.count if self.sees == "all" and self._each == 1 else 1
        return EnsembleMLP(num_members=members, out_features=outputs, **options)

    def _valued(self, run: Callable[[Tensor], Tensor], count: int, x: Tensor) -> Tensor:
        """Values ``[N, *B, n]`` by ``count`` critics at inputs ``[*B, in]`` or ``[*B, n, in]``."""
        n, features = self.agents.count, x.shape[-1]
        rows = x.shape[:-1] if self.sees == "all" else x.shape[:-2]
        if self._each == 1:  # [N, B, n], or [N, B n, 1]
            return run(x.reshape(-1, features)).reshape(count, *rows, n)
        if self.sees == "all":
            x = x.reshape(-1, features)
        else:
            x = x.reshape(-1, n, features).transpose(0, 1).repeat(count, 1, 1)
        values = run(x).view(count, n, -1)  # of [N n, B, 1]
        return values.transpose(1, 2).reshape(count, *rows, n)


class TeamValue(StateValue):
    """V of each agent of a group in what all of them see, ``[*B, n, 1]``.

    With shared parameters it is one network with an output for each agent, else one for each.

    Args:
        observation: shapes of the entries, all agents included, by key.
        agents: of the group.
        value_key: entry of the values.
        network: as for ``StateValue``.

    >>> from tensordict import TensorDict
    >>> agents, seen = Agents(count=3), {("agents", "observation"): (3, 4)}
    >>> critic = TeamValue(observation=seen, agents=agents, value_key=("agents", "state_value"))
    >>> critic.values([torch.zeros(5, 3, 4)]).shape
    torch.Size([5, 3, 1])
    """

    def __init__(
        self,
        *,
        observation: Mapping[NestedKey, Sequence[int]],
        agents: Agents,
        value_key: NestedKey,
        **network: Any,
    ) -> None:
        self._of = agents
        super().__init__(observation=observation, value_key=value_key, **network)

    def _network(self, **options: Any) -> MLP | SeparateMLP:
        outputs = self._of.count if self._of.share_parameters else 1
        return perceptron_of(self._of, out_features=outputs, **options)

    def values(self, observation: Sequence[Tensor]) -> Tensor:
        """V of each agent at observations in the order of ``in_keys``, ``[*B, n, 1]``."""
        x, n = self.inputs.join(observation), self._of.count
        if self._of.share_parameters:
            return self.net(x).unsqueeze(-1)
        return self.net(x.unsqueeze(-2).expand(*x.shape[:-1], n, -1))
