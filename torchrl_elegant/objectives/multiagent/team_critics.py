"""Critics that give each agent of a team its own value of what all agents do."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import torch
from tensordict import NestedKey, TensorDictBase
from torch import Tensor

from torchrl_elegant.data.multi_step import STEPS
from torchrl_elegant.objectives.common.keys import ActorCriticKeys, CriticKeys

if TYPE_CHECKING:
    from torchrl_elegant.objectives.off_policy.base import OffPolicyLoss as _Base
else:
    # Not a LossModule: one gets a `forward` of its own, which would stand before the other's.
    _Base = object

#: Actions of the other agents in an agent's own loss.
Others = Literal["stored", "policy"]


@dataclass
class TeamCriticKeys(CriticKeys):
    """Keys of a loss with critics of a team.

    >>> TeamCriticKeys().value
    ('agents', 'state_action_value')
    """

    action: NestedKey = ("agents", "action")
    reward: NestedKey = ("agents", "reward")
    state_action_value: NestedKey = ("agents", "state_action_value")


@dataclass
class TeamActorCriticKeys(ActorCriticKeys):
    """Keys of a loss with a stochastic actor and critics of a team.

    >>> TeamActorCriticKeys().value
    ('agents', 'state_value')
    """

    action: NestedKey = ("agents", "action")
    reward: NestedKey = ("agents", "reward")
    state_action_value: NestedKey = ("agents", "state_action_value")
    value: NestedKey = ("agents", "state_value")
    log_prob: NestedKey | None = ("agents", "action_log_prob")


class TeamCritics(_Base):
    """Stands before a loss of one agent: ``class MATD3Loss(TeamCritics, TD3Loss)``.

    Values, targets and losses are those of each agent, ``[*B, agents]``, in the place of one a row.
    """

    others: Others

    def _take_others(self, others: Others) -> None:
        if others not in ("stored", "policy"):
            raise ValueError(f"`others` must be 'stored' or 'policy', got `{others}`")
        self.others = others

    def _target_value(self, tensordict: TensorDictBase, next_value: Tensor | None = None) -> Tensor:
        """y of each agent ``[*B, agents]``: what ends for the team ends for all."""
        keys, data = self.tensor_keys, tensordict.copy()
        agents = tensordict.get(keys.action).shape[-2]
        for name in (keys.reward, keys.done, keys.terminated):
            entry = data.get(("next", name), None)
            if entry is not None and entry.ndim == data.ndim + 1:
                entry = entry.unsqueeze(-2).expand(*data.shape, agents, 1)
                data.set(("next", name), entry)
        steps = data.get(STEPS, None)
        if steps is not None and steps.ndim == data.ndim + 1:
            data.set(STEPS, steps.unsqueeze(-2).expand(*data.shape, agents, 1))
        return super()._target_value(data, next_value)

    def _acted_values(
        self,
        rows: TensorDictBase,
        seen: TensorDictBase,
        action: Tensor,
        members: int | None = None,
    ) -> Tensor:
        """Values of each agent, which acts by its policy, ``[N, *B, agents]``."""
        if self.others == "policy":
            return super()._acted_values(rows, seen, action, members)
        agents = action.shape[-2]
        own = torch.eye(agents, dtype=torch.bool, device=action.device)
        own = own.view(agents, *[1] * rows.ndim, agents, 1)
        stored = rows.get(self.tensor_keys.action).detach()
        # In copy i of the rows, agent i alone acts by its policy.
        mixed = torch.where(own, action, stored)  # [agents, *B, agents, size]
        rows, seen = (each.expand(agents, *each.shape) for each in (rows, seen))
        values = super()._acted_values(rows, seen, mixed, members)
        return values.diagonal(dim1=1, dim2=-1)  # [N, *B, agents]

    def _reduce(self, loss: Tensor, tensordict: TensorDictBase) -> Tensor:
        return super()._reduce(loss.mean(-1), tensordict)
