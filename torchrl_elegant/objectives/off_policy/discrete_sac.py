"""Soft actor-critic over discrete actions."""

from __future__ import annotations

import math
from typing import ClassVar

import torch
from tensordict import TensorDictBase
from tensordict.nn import TensorDictModuleBase
from torch import Tensor
from torchrl.data import TensorSpec

from torchrl_elegant.functional import categorical_entropy, reduce_members
from torchrl_elegant.modules import CategoricalActor, QNetwork, Temperature
from torchrl_elegant.objectives.common.keys import DiscreteActorCriticKeys
from torchrl_elegant.objectives.common.networks import has_value, scatter_valid
from torchrl_elegant.objectives.off_policy.actor_critic import (
    EntropyRegularisedLoss,
    temperature_from,
)
from torchrl_elegant.objectives.off_policy.q_networks import (
    DirectQ,
    StackedQ,
    action_space_of,
    values_of_choices,
)


class DiscreteSACLoss(EntropyRegularisedLoss):
    r"""SAC for discrete actions (Christodoulou 2019, arXiv:1910.07207).

    What differs from ``SACLoss``: expectations over the policy are sums over all actions, so no
    action is drawn and nothing has to be differentiated through one.

    .. math::

        V(s) &= \sum_a \pi(a|s) [\min_i \bar Q_i(s, a) - \alpha \log \pi(a|s)]  \qquad (10)    \\
        y &= r + \gamma (1 - d) V(s'), \quad L_Q = \sum_i \ell(Q_i(s, a), y)                   \\
        L_\pi &= \sum_a \pi(a|s) [\alpha \log \pi(a|s) - \min_i Q_i(s, a)]      \qquad (12)    \\
        L_\alpha &= -\log \alpha \sum_a \pi(a|s) [\log \pi(a|s) + \bar H]       \qquad (11)

    It stands where TorchRL's ``DiscreteSACLoss`` stands: same arguments, keys, outputs, target
    parameters, reductions and priorities. It differs by intent in this:

    - speed: a ``CategoricalActor`` and a ``QNetwork`` are called directly, without vmap or
      parameter swaps; any other networks work as in TorchRL;
    - ``skip_done_states`` passes over truncated states only where they were not observed (not
      finite); TorchRL takes them all for worthless;
    - ``temperature`` is new; ``num_actions`` and ``action_space`` are what the networks say, where
      they say it.

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

    >>> shape = {"observation": (3,)}
    >>> actor = CategoricalActor(observation=shape, choices=4)
    >>> loss = DiscreteSACLoss(actor, QNetwork(observation=shape, choices=4, num_members=2))
    >>> round(loss.target_entropy.item(), 4)  # 0.98 log 4
    1.3586
    """

    _AcceptedKeys = DiscreteActorCriticKeys  # type: ignore[assignment]
    default_keys = DiscreteActorCriticKeys  # type: ignore[assignment]
    tensor_keys: DiscreteActorCriticKeys  # type: ignore[assignment]
    _entropy_buffer: ClassVar[str] = "target_entropy"

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
        super().__init__()
        self._set_deprecated_ctor_keys(priority_key=priority_key)
        self.reduction = "mean" if reduction is None else reduction
        self.loss_function = loss_function
        self.delay_actor, self.delay_qvalue = False, delay_qvalue
        self.use_prioritized_weights = use_prioritized_weights
        self.deactivate_vmap, self.skip_done_states = deactivate_vmap, skip_done_states
        self.scalar_output_mode = scalar_output_mode
        self.convert_to_functional(actor_network, "actor_network", create_target_params=False)
        lean = qvalue_network if isinstance(qvalue_network, QNetwork) else None
        self.num_qvalue_nets = lean.num_members if lean else num_qvalue_nets
        self.convert_to_functional(
            qvalue_network,
            "qvalue_network",
            None if lean else num_qvalue_nets,
            create_target_params=delay_qvalue,
            compare_against=list(actor_network.parameters()) if separate_losses else None,
        )
        self.action_space = action_space_of(lean or actor_network, action_space)
        self.num_actions = lean.choices if lean and num_actions is None else num_actions
        self.target_entropy_weight = target_entropy_weight
        if temperature is None:
            temperature = temperature_from(
                alpha_init=alpha_init,
                min_alpha=min_alpha,
                max_alpha=max_alpha,
                fixed_alpha=fixed_alpha,
                target_entropy=target_entropy,
            )
        self._register_temperature(temperature, None)
        _ = self.target_entropy  # known from the start, as in TorchRL
        self._connect()

    def _qvalue_loss(self, tensordict: TensorDictBase) -> tuple[Tensor, dict[str, Tensor]]:
        """The critics' loss, summed over the members."""
        self._bound_temperature()
        value = self._stored_values(tensordict)  # [N, *B]
        target = self._target_value(tensordict)  # [*B]
        loss = self._distances(value, target)
        error = (value.detach() - target).abs().amax(0)
        return self._reduce(loss.sum(0), tensordict), {"td_error": error, "target": target}

    def _stored_values(self, tensordict: TensorDictBase) -> Tensor:
        return values_of_choices(self, tensordict)

    def _actor_loss(self, tensordict: TensorDictBase) -> tuple[Tensor, dict[str, Tensor]]:
        """Equation (12); reaches the actor alone. Metadata: ``log_prob``, ``alpha``."""
        self._bound_temperature()
        log_probs = self._log_probs(tensordict)  # [*B, n]
        with torch.no_grad():
            value = reduce_members(self._critic.online(tensordict), "min")
        if value.shape != log_probs.shape:
            raise RuntimeError(
                f"actor and critic must have as many actions, got `{tuple(log_probs.shape)}` and "
                f"`{tuple(value.shape)}`"
            )
        alpha, entropy = self._alpha, categorical_entropy(log_probs)  # [*B]
        loss = -alpha * entropy - (log_probs.exp() * value).sum(-1)
        return self._reduce(loss, tensordict), {"log_prob": -entropy.detach(), "alpha": alpha}

    def _next_value(self, after: TensorDictBase) -> Tensor:
        valid = None
        if self.skip_done_states:
            valid = has_value(after, self.tensor_keys, self.actor_network.in_keys)
            if not valid.any():
                return torch.zeros_like(valid, dtype=self.log_alpha.dtype)
            after = after[valid]
        log_probs = self._log_probs(after)
        value = reduce_members(self._critic.target(after), "min")
        value = (log_probs.exp() * value).sum(-1) + self._alpha * categorical_entropy(log_probs)
        return value if valid is None else scatter_valid(value, valid)

    def _log_probs(self, tensordict: TensorDictBase) -> Tensor:
        """log pi of every action, ``[*B, n]``."""
        actor = self.actor_network
        if isinstance(actor, CategoricalActor):
            return actor.head_of(
                actor.output([tensordict.get(key) for key in actor.in_keys])
            ).log_probs
        with self.actor_network_params.to_module(actor, preserve_module_state=False):
            return actor.get_dist(tensordict.copy()).logits

    def _automatic_entropy(self) -> float:
        if self.num_actions is None:
            raise ValueError(
                "`num_actions` must be given where target_entropy is 'auto' and the critic is no "
                "QNetwork, got `None`"
            )
        return self.target_entropy_weight * math.log(self.num_actions)

    def _make_caller(self) -> DirectQ | StackedQ:
        lean = isinstance(self.qvalue_network, QNetwork)
        return (DirectQ if lean else StackedQ)(self, "qvalue_network")

    def _bind(self) -> None:
        if isinstance(self.actor_network, CategoricalActor):
            self.actor_network_params.to_module(self.actor_network, preserve_module_state=False)
        self._critic.bind(self)
