"""PPO of teams, with critics that see all agents or one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import torch
from tensordict import TensorDictBase
from tensordict.nn import TensorDictModuleBase, dispatch
from torch import Tensor
from torchrl import objectives
from torchrl.modules import ValueNorm
from torchrl.objectives.utils import ValueEstimators

from torchrl_elegant.data.running_statistics import Gather, alone
from torchrl_elegant.objectives.multiagent.advantages import TeamGAE, TeamRollouts, TeamVTrace
from torchrl_elegant.objectives.on_policy.gae import WholeRollouts
from torchrl_elegant.objectives.on_policy.ppo import ClipPPOLoss


class MAPPOLoss(ClipPPOLoss, objectives.MAPPOLoss):
    r"""MAPPO (Yu et al. 2022, arXiv:2103.01955): ``ClipPPOLoss`` of each agent in a team.

    With agents i, their observations o_i, and a critic that sees all of them, s:

    .. math::

        \rho_i &= \pi(a_i|o_i) / \mu(a_i|o_i), \quad
            A_i = \mathrm{GAE}(r_i, V_i), \quad V_i = m + \sigma \hat V_i(s)                  \\
        L_\pi &= -\mathrm{E}_i[\min(\rho_i A_i,
            \mathrm{clip}(\rho_i, 1 - \epsilon, 1 + \epsilon) A_i)]                            \\
        L_V &= c_v \, \mathrm{E}_i[d(\hat V_i(s), (R_i - m') / \sigma')]

    m and sigma are the running mean and spread of the targets R before a rollout, m' and sigma'
    those after it (section 5.1 of the paper); without ``value_norm`` they are 0 and 1.

    It stands where TorchRL's ``MAPPOLoss`` stands: same arguments, keys and results, but for

    - ``value_norm``: advantages are taken of denormalized values, and the statistics move once a
      rollout. TorchRL normalizes the output of the critic, too, which only scales its loss.
      ``value_estimator`` or ``estimate`` must estimate rollouts: they write ``value_target`` and
      the value in units of the critic;
    - advantages are standardized over rows and agents together, as in the paper's code. TorchRL's
      way, for each agent alone, is ``normalize_advantage_exclude_dims=(-2,)``;
    - the value's key is the one that the critic writes;
    - speed, as with ``ClipPPOLoss``.

    Args:
        actor_network: writes ``(group, "action")`` and its log-probability, one for each agent.
        critic_network: writes a value for each agent, ``[*B, agents, 1]``.

    Keyword Args:
        value_norm: running statistics of the targets, such as ``torchrl.modules.PopArtValueNorm``.

    The others are those of ``ClipPPOLoss``.

    >>> from tensordict import TensorDict
    >>> from torchrl_elegant.modules import GaussianActor, StateValue
    >>> seen = {("agents", "observation"): (3,)}
    >>> actor = GaussianActor(
    ...     observation=seen, action_shape=(2,), action_key=("agents", "action")
    ... )
    >>> critic = StateValue(observation=seen, value_key=("agents", "state_value"))
    >>> rows = TensorDict({"agents": {"observation": torch.zeros(5, 4, 3)}}, [5])
    >>> rows = actor(rows).detach().set("advantage", torch.ones(5, 4, 1))
    >>> loss = IPPOLoss(actor, critic, normalize_advantage=False)
    >>> round(loss(rows.set("value_target", torch.zeros(5, 4, 1)))["loss_objective"].item(), 4)
    -1.0
    """

    estimators: ClassVar[Mapping[ValueEstimators, type[WholeRollouts]]] = {
        ValueEstimators.MAGAE: TeamGAE,
        ValueEstimators.GAE: TeamGAE,
        ValueEstimators.VTrace: TeamVTrace,
    }

    def __init__(
        self,
        actor_network: TensorDictModuleBase | None = None,
        critic_network: TensorDictModuleBase | None = None,
        *,
        value_norm: ValueNorm | None = None,
        normalize_advantage_exclude_dims: tuple[int, ...] = (),
        **options: Any,
    ) -> None:
        if not isinstance(value_norm, ValueNorm | None):
            raise ValueError(
                "`value_norm` must be a torchrl.modules.ValueNorm or None, got "
                f"`{type(value_norm).__name__}`"
            )
        super().__init__(
            actor_network,
            critic_network,
            value_norm=value_norm,
            normalize_advantage_exclude_dims=normalize_advantage_exclude_dims,
            **options,
        )
        self.gather: Gather = alone
        written = [] if self.critic_network is None else self.critic_network.out_keys
        if len(written) == 1:
            self.set_keys(value=written[0])

    @dispatch
    def forward(self, tensordict: TensorDictBase) -> TensorDictBase:
        if tensordict.get(self.tensor_keys.advantage, None) is None:
            tensordict = self.estimate(tensordict.copy())
        return super().forward(tensordict)

    def connect(self, gather: Gather) -> None:
        """See ``RolloutLoss``."""
        self.gather = gather
        if isinstance(self._value_estimator, TeamRollouts):
            self._value_estimator.gather = gather

    def make_value_estimator(
        self, value_type: ValueEstimators | None = None, **hyperparams: Any
    ) -> MAPPOLoss:
        if self.value_norm is not None and value_type not in {None, *self.estimators}:
            names = ", ".join(kind.name for kind in self.estimators)
            raise ValueError(
                f"`value_type` must be one of {names} where there is a value_norm, got "
                f"`{value_type}`"
            )
        super().make_value_estimator(value_type, **hyperparams)
        return self

    def _critic_loss_inputs(
        self, target: Tensor, value: Tensor, old: Tensor | None
    ) -> tuple[Tensor, Tensor, Tensor | None]:
        return target, value, old  # in the critic's units already

    def _maybe_normalize_advantage(
        self, advantage: Tensor, tensordict: TensorDictBase, **options: Any
    ) -> Tensor:
        together = self.normalize_advantage and not self.normalize_advantage_exclude_dims
        if together and advantage.numel() > 1:
            # Agents are taken together by intent, of which TorchRL's method warns.
            return self._standardize_advantage(advantage, tensordict)
        return super()._maybe_normalize_advantage(advantage, tensordict, **options)

    def _row_shape(self, tensordict: TensorDictBase) -> torch.Size:
        target = tensordict.get(self.tensor_keys.value_target, None)
        return tensordict.batch_size if target is None else target.shape[:-1]


class IPPOLoss(MAPPOLoss, objectives.IPPOLoss):
    """IPPO (de Witt et al. 2020, arXiv:2011.09533): ``MAPPOLoss`` whose critic sees one agent.

    The critic gives each agent a value of what that agent observes itself. All else is the same.

    >>> issubclass(IPPOLoss, MAPPOLoss)
    True
    """
