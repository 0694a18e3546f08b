"""Deterministic policies of a team, with critics that see what all agents do."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import torch
from tensordict import NestedKey, TensorDictBase
from tensordict.nn import TensorDictModuleBase
from torch import Tensor

from torchrl_elegant.functional import reduce_members
from torchrl_elegant.objectives.common.keys import CriticKeys
from torchrl_elegant.objectives.off_policy.ddpg import DDPGLoss
from torchrl_elegant.objectives.off_policy.td3 import TD3Loss

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


class _TeamCritics(TD3Loss):
    """Values and losses of each agent, in the place of one for each row."""

    _AcceptedKeys = default_keys = TeamCriticKeys
    others: Others = "stored"

    def _target_value(self, tensordict: TensorDictBase, next_value: Tensor | None = None) -> Tensor:
        """y of each agent ``[*B, agents]``: what ends for the team ends for all."""
        keys, data = self.tensor_keys, tensordict.copy()
        agents = tensordict.get(keys.action).shape[-2]
        for name in (keys.reward, keys.done, keys.terminated):
            entry = data.get(("next", name), None)
            if entry is not None and entry.ndim == data.ndim + 1:
                entry = entry.unsqueeze(-2).expand(*data.shape, agents, 1)
                data.set(("next", name), entry)
        return super()._target_value(data, next_value)

    def _actor_loss(
        self, tensordict: TensorDictBase, members: int | None = None
    ) -> tuple[Tensor, dict[str, Tensor]]:
        data, action = self._actor.online(tensordict)  # [*B, agents, size]
        if self.others == "policy":
            values = self._critic.frozen(data, action, members)  # [N, *B, agents]
        else:
            agents = action.shape[-2]
            own = torch.eye(agents, dtype=torch.bool, device=action.device)
            own = own.view(agents, *[1] * data.ndim, agents, 1)
            stored = tensordict.get(self.tensor_keys.action).detach()
            # In copy i of the rows, agent i alone acts by its policy.
            mixed = torch.where(own, action, stored)  # [agents, *B, agents, size]
            values = self._critic.frozen(data.expand(agents, *data.shape), mixed, members)
            values = values.diagonal(dim1=1, dim2=-1)  # [N, *B, agents]
        value = values[0] if self.actor_q == "first" else reduce_members(values, self.actor_q)
        return self._reduce(-value, tensordict), self._about_actor(values.detach())

    def _reduce(self, loss: Tensor, tensordict: TensorDictBase) -> Tensor:
        return super()._reduce(loss.mean(-1), tensordict)


class MADDPGLoss(_TeamCritics, DDPGLoss):
    r"""MADDPG (Lowe et al. 2017, arXiv:1706.02275).

    For each agent i, with critics that see the observations x and the actions of all:

    .. math::

        y_i &= r_i + \gamma (1 - d) \bar Q_i(x', \bar\mu_1(o'_1), \dots, \bar\mu_n(o'_n))
            \qquad (6) \\
        L_Q &= \frac 1 n \sum_i \ell(Q_i(x, a_1, \dots, a_n), y_i)                              \\
        L_\mu &= -\frac 1 n \sum_i Q_i(x, a_1, \dots, \mu_i(o_i), \dots, a_n)  \qquad (5)

    In (5) the other agents do what is stored, so that an agent's policy follows its own values
    alone. With ``others="policy"`` all act by their policies, and each policy follows the values
    of all agents, as in BenchMARL: right for a team with one reward, wrong for opponents.

    Rewards are those of each agent, or of the team; done and terminated may be the team's.

    Args:
        actor_network: writes ``("agents", "action")``, with the agents in the last but one
            dimension.
        value_network: reads actions and whatever else it needs, and writes a value for each agent,
            ``("agents", "state_action_value")``. Other names: ``set_keys``.

    Keyword Args:
        others: ``"stored"`` or ``"policy"``: actions of the others in an agent's own loss.

    The others are those of ``DDPGLoss``.
    """

    default_keys = TeamCriticKeys

    def __init__(
        self,
        actor_network: TensorDictModuleBase,
        value_network: TensorDictModuleBase,
        *,
        others: Others = "stored",
        **options: Any,
    ) -> None:
        _check_others(others)
        DDPGLoss.__init__(self, actor_network, value_network, **options)
        self.others = others

    def _write_priority(self, tensordict: TensorDictBase, about: dict[str, Tensor]) -> None:
        tensordict.set(self.tensor_keys.priority, about["td_error"].amax(-1))


class MATD3Loss(_TeamCritics):
    r"""MATD3 (Ackermann et al. 2019, arXiv:1910.01465): ``MADDPGLoss`` with TD3's means.

    .. math::

        \tilde a_j &= \mathrm{clip}(\bar\mu_j(o'_j) + \mathrm{clip}(\epsilon, -c, c))           \\
        y_i &= r_i + \gamma (1 - d) \min_k \bar Q_{i, k}(x', \tilde a_1, \dots, \tilde a_n)

    Arguments are those of ``TD3Loss``, and ``others`` that of ``MADDPGLoss``.
    """

    def __init__(
        self,
        actor_network: TensorDictModuleBase,
        qvalue_network: TensorDictModuleBase | list[TensorDictModuleBase],
        *,
        others: Others = "stored",
        **options: Any,
    ) -> None:
        _check_others(others)
        super().__init__(actor_network, qvalue_network, **options)
        self.others = others

    def _write_priority(self, tensordict: TensorDictBase, about: dict[str, Tensor]) -> None:
        tensordict.set(self.tensor_keys.priority, about.pop("td_error").amax(0).amax(-1))


def _check_others(others: str) -> None:
    if others not in ("stored", "policy"):
        raise ValueError(f"`others` must be 'stored' or 'policy', got `{others}`")
