"""Soft actor-critic over discrete actions."""

from __future__ import annotations

import math
from typing import Any

import torch
from tensordict import TensorDictBase
from tensordict.nn import TensorDictModuleBase
from torch import Tensor
from torchrl.data import TensorSpec

from torchrl_elegant.functional import categorical_entropy, reduce_members
from torchrl_elegant.modules import CategoricalActor, QNetwork, Temperature
from torchrl_elegant.objectives.common.keys import DiscreteActorCriticKeys
from torchrl_elegant.objectives.off_policy.dqn import action_space_of, values_of_choices
from torchrl_elegant.objectives.off_policy.own_networks import actor_calls, q_network_calls
from torchrl_elegant.objectives.off_policy.sac import SACLoss


class DiscreteSACLoss(SACLoss):
    r"""SAC for discrete actions (Christodoulou 2019, arXiv:1910.07207).

    It differs from ``SACLoss`` in this: expectations over the policy are sums over all actions, so
    no action is drawn and no gradient passes through one.

    .. math::

        \bar V(s') &= \sum_a \pi(a|s') [\min_i \bar Q_i(s', a) - \alpha \log \pi(a|s')]
            \qquad (10)                                                                        \\
        y &= r + \gamma (1 - d) \bar V(s'), \quad L_Q = \sum_i \ell(Q_i(s, a), y)              \\
        L_\pi &= \sum_a \pi(a|s) [\alpha \log \pi(a|s) - \min_i Q_i(s, a)]      \qquad (12)    \\
        L_\alpha &= -\log \alpha \sum_a \pi(a|s) [\log \pi(a|s) + \bar H]       \qquad (11)

    ``SACLoss`` says why (11) has :math:`\log \alpha` in the place of :math:`\alpha`.

    Of an actor with an action mask, n and the sums are those of the allowed actions.

    It stands where TorchRL's ``DiscreteSACLoss`` stands: same arguments, keys, outputs, target
    parameters, reductions and priorities. It differs by intent in this:

    - speed: a ``CategoricalActor`` and a ``QNetwork`` are called directly, without vmap or
      parameter swaps, and so are actor and critic over TorchRL's ``MLP``; other networks work as
      in TorchRL;
    - ``skip_done_states`` skips truncated states only where they were not observed (not finite);
      TorchRL gives all of them the value 0;
    - ``temperature`` is new; ``num_actions`` and ``action_space`` are found out from networks that
      know them.

    Args:
        actor_network: stochastic policy with ``get_dist``, over categories.
        qvalue_network: a ``QNetwork`` of any number of members, or a network that writes
            ``action_value`` and is then copied ``num_qvalue_nets`` times.

    Keyword Args:
        action_space, num_actions: the form of actions and their number.
        target_entropy: a number, or ``"auto"`` for ``target_entropy_weight * log(num_actions)``.
        temperature: a ``LearnedTemperature`` or ``FixedTemperature``; the default is made from
            ``alpha_init``, ``min_alpha``, ``max_alpha``, ``fixed_alpha`` and ``target_entropy``.

    The others are those of ``SACLoss``.

    >>> from torchrl_elegant.modules import CategoricalActor
    >>> shape = {"observation": (3,)}
    >>> actor = CategoricalActor(observation=shape, choices=4)
    >>> loss = DiscreteSACLoss(actor, QNetwork(observation=shape, choices=4, num_members=2))
    >>> round(loss.target_entropy.item(), 4)  # 0.98 log 4
    1.3586
    """

    _AcceptedKeys = default_keys = DiscreteActorCriticKeys  # type: ignore[assignment]
    _entropy_buffer = "target_entropy"

    def __init__(
        self,
        actor_network: TensorDictModuleBase,
        qvalue_network: TensorDictModuleBase,
        *,
        action_space: str | TensorSpec | None = None,
        num_actions: int | None = None,
        num_qvalue_nets: int = 2,
        temperature: Temperature | None = None,
        loss_function: str = "smooth_l1",
        alpha_init: float = 1.0,
        min_alpha: float | None = None,
        max_alpha: float | None = None,
        fixed_alpha: bool = False,
        target_entropy_weight: float = 0.98,
        target_entropy: str | float = "auto",
        delay_qvalue: bool = True,
        priority_key: str | None = None,
        separate_losses: bool = False,
        reduction: str | None = None,
        skip_done_states: bool = False,
        deactivate_vmap: bool = False,
        use_prioritized_weights: str | bool = "auto",
        scalar_output_mode: str | None = None,
    ) -> None:
        super().__init__(
            actor_network,
            qvalue_network,
            num_qvalue_nets=num_qvalue_nets,
            temperature=temperature,
            loss_function=loss_function,
            alpha_init=alpha_init,
            min_alpha=min_alpha,
            max_alpha=max_alpha,
            fixed_alpha=fixed_alpha,
            target_entropy=target_entropy,
            delay_qvalue=delay_qvalue,
            priority_key=priority_key,
            separate_losses=separate_losses,
            reduction=reduction,
            skip_done_states=skip_done_states,
            deactivate_vmap=deactivate_vmap,
            use_prioritized_weights=use_prioritized_weights,
            scalar_output_mode=scalar_output_mode,
        )
        own = qvalue_network if isinstance(qvalue_network, QNetwork) else None
        self.action_space = action_space_of(own or actor_network, action_space)
        self.num_actions = own.choices if own and num_actions is None else num_actions
        self.target_entropy_weight = target_entropy_weight
        _ = self.target_entropy  # known from the start, as in TorchRL

    def _soft_value(self, after: TensorDictBase) -> Tensor:
        """Equation (10)."""
        log_probs = self._actor.log_probs(after)
        value = reduce_members(self._critic.target(after), "min")
        return (log_probs.exp() * value).sum(-1) + self._alpha * categorical_entropy(log_probs)

    def _stored_values(self, tensordict: TensorDictBase) -> Tensor:
        return values_of_choices(self, self._critic.online(tensordict), tensordict)

    def _actor_loss(self, tensordict: TensorDictBase) -> tuple[Tensor, dict[str, Tensor]]:
        """Equation (12); reaches the actor alone. Metadata: ``log_prob``, ``alpha``."""
        self._bound_temperature()
        log_probs = self._actor.log_probs(tensordict)  # [*B, n]
        with torch.no_grad():
            value = reduce_members(self._critic.online(tensordict), "min")
        if value.shape != log_probs.shape:
            raise RuntimeError(
                f"actor and critic must have as many actions, got `{tuple(log_probs.shape)}` and "
                f"`{tuple(value.shape)}`"
            )
        alpha, entropy = self._alpha, categorical_entropy(log_probs)  # [*B]
        loss = -alpha * entropy - (log_probs.exp() * value).sum(-1)
        metadata = {"log_prob": -entropy.detach(), "alpha": alpha}
        if self._is_masked:
            # The entropy to aim at is a part of what the allowed actions make possible.
            allowed = (log_probs.detach() > -math.inf).sum(-1).log()  # [*B]
            missing = allowed - math.log(log_probs.shape[-1])
            metadata["missing"] = self.target_entropy_weight * missing
        return self._reduce(loss, tensordict), metadata

    def _actor_terms(
        self, loss: Tensor, metadata: dict[str, Tensor], tensordict: TensorDictBase
    ) -> dict[str, Tensor]:
        terms = super()._actor_terms(loss, metadata, tensordict)
        if "missing" in metadata:
            alpha_loss = self._alpha_loss(metadata["log_prob"] + metadata["missing"])
            terms["loss_alpha"] = self._reduce(alpha_loss, tensordict)
        return terms

    @property
    def _is_masked(self) -> bool:
        actor = self.actor_network
        masked = isinstance(actor, CategoricalActor) and actor.action_mask is not None
        return masked and self._wanted_entropy == "auto"

    def _automatic_entropy(self) -> float:
        if self.num_actions is None:
            raise ValueError(
                "`num_actions` must be given where target_entropy is 'auto' and the critic is no "
                "QNetwork, got `None`"
            )
        return self.target_entropy_weight * math.log(self.num_actions)

    def _make_calls(self) -> dict[str, Any]:
        critic = q_network_calls(self, "qvalue_network", stacked=True)
        return {"_actor": actor_calls(self), "_critic": critic}

    def _own_members(self, critic: Any) -> int | None:
        return critic.num_members if isinstance(critic, QNetwork) else None

    def _take_keys(self, actor: TensorDictModuleBase) -> None:
        """Leave the keys as they are, as TorchRL does."""
