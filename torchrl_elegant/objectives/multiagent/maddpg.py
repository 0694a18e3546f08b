"""Deterministic policies of a team, with critics that see what all agents do."""

from __future__ import annotations

from typing import Any

from tensordict import TensorDictBase
from tensordict.nn import TensorDictModuleBase
from torch import Tensor

from torchrl_elegant.objectives.multiagent.team_critics import Others, TeamCriticKeys, TeamCritics
from torchrl_elegant.objectives.off_policy.ddpg import DDPGLoss
from torchrl_elegant.objectives.off_policy.td3 import TD3Loss


class MADDPGLoss(TeamCritics, DDPGLoss):
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

    _AcceptedKeys = default_keys = TeamCriticKeys

    def __init__(
        self,
        actor_network: TensorDictModuleBase,
        value_network: TensorDictModuleBase,
        *,
        others: Others = "stored",
        **options: Any,
    ) -> None:
        super().__init__(actor_network, value_network, **options)
        self._take_others(others)

    def _write_priority(self, tensordict: TensorDictBase, about: dict[str, Tensor]) -> None:
        tensordict.set(self.tensor_keys.priority, about["td_error"].amax(-1))


class MATD3Loss(TeamCritics, TD3Loss):
    r"""MATD3 (Ackermann et al. 2019, arXiv:1910.01465): ``MADDPGLoss`` with TD3's means.

    .. math::

        \tilde a_j &= \mathrm{clip}(\bar\mu_j(o'_j) + \mathrm{clip}(\epsilon, -c, c))           \\
        y_i &= r_i + \gamma (1 - d) \min_k \bar Q_{i, k}(x', \tilde a_1, \dots, \tilde a_n)

    Arguments are those of ``TD3Loss``, and ``others`` that of ``MADDPGLoss``.
    """

    _AcceptedKeys = default_keys = TeamCriticKeys

    def __init__(
        self,
        actor_network: TensorDictModuleBase,
        qvalue_network: TensorDictModuleBase | list[TensorDictModuleBase],
        *,
        others: Others = "stored",
        **options: Any,
    ) -> None:
        super().__init__(actor_network, qvalue_network, **options)
        self._take_others(others)

    def _write_priority(self, tensordict: TensorDictBase, about: dict[str, Tensor]) -> None:
        tensordict.set(self.tensor_keys.priority, about.pop("td_error").amax(0).amax(-1))
