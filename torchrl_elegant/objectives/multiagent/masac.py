"""Soft actor-critic of teams, with critics that see all agents or one."""

from __future__ import annotations

from typing import Any

from tensordict import TensorDictBase
from tensordict.nn import TensorDictModuleBase
from torch import Tensor
from torchrl.data import Composite, TensorSpec

from torchrl_elegant.objectives.multiagent.team_critics import (
    Others,
    TeamActorCriticKeys,
    TeamCritics,
)
from torchrl_elegant.objectives.off_policy.sac import SACLoss


class MASACLoss(TeamCritics, SACLoss):
    r"""MASAC: ``SACLoss`` of each agent in a team, as Lowe et al. (2017) have it for DDPG.

    For each agent i, with critics that see the observations x and the actions of all:

    .. math::

        y_i &= r_i + \gamma (1 - d) [\min_k \bar Q_{i, k}(x', a'_1, \dots, a'_n)
            - \alpha \log \pi(a'_i|o'_i)]                                                      \\
        L_Q &= \frac 1 n \sum_i \sum_k \ell(Q_{i, k}(x, a_1, \dots, a_n), y_i)                  \\
        L_\pi &= \frac 1 n \sum_i [\alpha \log \pi(\tilde a_i|o_i)
            - \min_k Q_{i, k}(x, a_1, \dots, \tilde a_i, \dots, a_n)]                           \\
        L_\alpha &= -\log \alpha \, \frac 1 n \sum_i (\log \pi(\tilde a_i|o_i) + \bar H)

    All agents share the temperature. By default the target entropy is minus the size of one agent's
    action: ``log pi`` is that of one agent.

    In the actor's loss the other agents do what is stored, so that an agent's policy follows its
    own values alone. With ``others="policy"`` all act by their policies, as in BenchMARL.
    ``MADDPGLoss`` says when each is right.

    Rewards are those of each agent, or of the team; done and terminated may be the team's.

    Args:
        actor_network: stochastic policy, which writes ``("agents", "action")`` with the agents in
            the last but one dimension.
        qvalue_network: reads actions and whatever else it needs, and writes a value for each agent,
            ``("agents", "state_action_value")``. Other names: ``set_keys``.

    Keyword Args:
        others: ``"stored"`` or ``"policy"``: actions of the others in an agent's own loss.

    The others are those of ``SACLoss`` but for ``skip_done_states``.

    >>> from torchrl_elegant.modules import EnsembleCritic, SquashedGaussianActor
    >>> seen, action = {("agents", "observation"): (3,)}, ("agents", "action")
    >>> bounds = {"low": [-1.0, -1.0], "high": [1.0, 1.0]}
    >>> actor = SquashedGaussianActor(observation=seen, action_key=action, **bounds)
    >>> critic = EnsembleCritic(observation=seen, action_shape=(2,), action_key=action)
    >>> ISACLoss(actor, critic).target_entropy.item()
    -2.0
    """

    _AcceptedKeys = default_keys = TeamActorCriticKeys

    def __init__(
        self,
        actor_network: TensorDictModuleBase,
        qvalue_network: TensorDictModuleBase | list[TensorDictModuleBase],
        *,
        others: Others = "stored",
        **options: Any,
    ) -> None:
        if options.get("skip_done_states"):
            raise ValueError(
                "`skip_done_states` must be False for a team, got `True`; fill in observations "
                "that are missing after the last step of an episode"
            )
        super().__init__(actor_network, qvalue_network, **options)
        self._take_others(others)

    def _qvalue_loss(self, tensordict: TensorDictBase) -> tuple[Tensor, dict[str, Tensor]]:
        loss, metadata = super()._qvalue_loss(tensordict)
        return loss, metadata | {"td_error": metadata["td_error"].amax(-1)}

    def _action_size(self, spec: TensorSpec | None) -> int | None:
        """Numbers in the action of one agent."""
        if isinstance(spec, Composite):
            spec = spec[self.tensor_keys.action]
        return None if spec is None else spec.shape[-1]


class ISACLoss(MASACLoss):
    """ISAC: ``MASACLoss`` with critics that see one agent, each its observation and action alone.

    So no value depends on what the others do, and there is no option ``others``.

    >>> issubclass(ISACLoss, MASACLoss)
    True
    """

    def __init__(
        self,
        actor_network: TensorDictModuleBase,
        qvalue_network: TensorDictModuleBase | list[TensorDictModuleBase],
        **options: Any,
    ) -> None:
        if "others" in options:
            raise ValueError(
                "`others` must be left out of ISACLoss, whose critics see one agent, got "
                f"`{options['others']}`; MASACLoss has it"
            )
        # Equal to "stored" for such critics, and asks them once and not once for each agent.
        super().__init__(actor_network, qvalue_network, others="policy", **options)
