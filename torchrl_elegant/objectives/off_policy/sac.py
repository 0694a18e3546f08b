"""Soft actor-critic over an ensemble of critics."""

from __future__ import annotations

from typing import Literal

import torch
from tensordict import TensorDictBase
from tensordict.nn import TensorDictModuleBase
from torch import Tensor
from torchrl.data import TensorSpec

from torchrl_elegant.functional import draw_members, reduce_members, soft_value
from torchrl_elegant.modules import EnsembleCritic, Temperature
from torchrl_elegant.objectives.common.keys import keys_of
from torchrl_elegant.objectives.common.networks import has_value, sample_action, scatter_valid
from torchrl_elegant.objectives.off_policy.actor_critic import (
    EntropyRegularisedLoss,
    temperature_from,
)


class SACLoss(EntropyRegularisedLoss):
    r"""SAC (Haarnoja et al. 2018, arXiv:1812.05905) for critic ensembles of any size.

    With members :math:`Q_i`, targets :math:`\bar Q_i`, a subset :math:`M` of members and actions
    :math:`a', \tilde a` drawn from the policy:

    .. math::

        y &= r + \gamma (1 - d) [\min_{i \in M} \bar Q_i(s', a') - \alpha \log \pi(a'|s')]   \\
        L_Q &= \sum_i \ell(Q_i(s, a), y)                                       \qquad (5)    \\
        L_\pi &= \alpha \log \pi(\tilde a|s) - \min_i Q_i(s, \tilde a)         \qquad (7)    \\
        L_\alpha &= -\log \alpha \, (\log \pi(\tilde a|s) + \bar H)            \qquad (18)

    It stands where TorchRL's ``SACLoss`` stands: same arguments, keys, outputs, target parameters,
    reductions and priorities. It differs by intent in this:

    - speed: given an ``EnsembleCritic`` it calls networks directly, without vmap or parameter
      swaps (``benchmarks/sac.py`` has the measured ratio); any other network works as in TorchRL;
    - ``target_members``, ``actor_value`` and ``temperature`` are new;
    - ``skip_done_states`` passes over terminated states, and over truncated ones only where they
      were not observed (not finite); TorchRL takes every truncated state to act with zeros;
    - version 1 of SAC, with a state value network, is TorchRL's alone; ``delay_value``, which is
      about that network, is taken and has no effect, as in TorchRL's version 2.

    Args:
        actor_network: stochastic policy with ``get_dist``.
        qvalue_network: an ``EnsembleCritic``, or a Q network that is then copied
            ``num_qvalue_nets`` times, or a list of such.

    Keyword Args:
        num_qvalue_nets: members made of an ordinary network; an ensemble brings its own number.
        target_members: how many members, drawn anew for each target, enter the minimum;
            ``None`` for all.
        actor_value: ``"min"`` or ``"mean"``, what of the ensemble the actor raises.
        temperature: a ``LearnedTemperature`` or ``FixedTemperature``; the default is made from
            ``alpha_init``, ``min_alpha``, ``max_alpha``, ``fixed_alpha`` and ``target_entropy``.

    The others are TorchRL's: ``loss_function``, ``action_spec``, ``delay_actor``, ``delay_qvalue``,
    ``separate_losses``, ``reduction``, ``skip_done_states``, ``deactivate_vmap``,
    ``use_prioritized_weights``, ``scalar_output_mode``.

    >>> import torch
    >>> from tensordict import TensorDict
    >>> from torchrl_elegant.modules import EnsembleCritic, SquashedGaussianActor
    >>> shape = {"observation": (3,)}
    >>> actor = SquashedGaussianActor(observation=shape, low=[-1.0], high=[1.0])
    >>> loss = SACLoss(actor, EnsembleCritic(observation=shape, action_shape=(1,), num_critics=5))
    >>> state, flag = torch.zeros(4, 3), torch.zeros(4, 1, dtype=torch.bool)
    >>> after = {"observation": state, "reward": torch.ones(4, 1), "done": flag, "terminated": flag}
    >>> data = TensorDict({"observation": state, "action": torch.zeros(4, 1), "next": after}, [4])
    >>> sorted(loss(data).keys())
    ['alpha', 'entropy', 'loss_actor', 'loss_alpha', 'loss_qvalue']
    """

    target_rule: str = "min"  # What of the target's members counts.

    def __init__(
        self,
        actor_network: TensorDictModuleBase,
        qvalue_network: TensorDictModuleBase | list[TensorDictModuleBase],
        value_network: None = None,
        *,
        num_qvalue_nets: int = 2,
        target_members: int | None = None,
        actor_value: Literal["min", "mean"] = "min",
        temperature: Temperature | None = None,
        loss_function: str = "smooth_l1",
        alpha_init: float = 1.0,
        min_alpha: float | None = None,
        max_alpha: float | None = None,
        fixed_alpha: bool = False,
        target_entropy: str | float = "auto",
        action_spec: TensorSpec | None = None,
        delay_actor: bool = False,
        delay_qvalue: bool = True,
        delay_value: bool = True,
        priority_key: str | None = None,
        separate_losses: bool = False,
        reduction: str | None = None,
        skip_done_states: bool = False,
        deactivate_vmap: bool = False,
        use_prioritized_weights: str | bool = "auto",
        scalar_output_mode: str | None = None,
    ) -> None:
        if value_network is not None:
            raise ValueError(
                f"`value_network` must be None, got `{type(value_network).__name__}`; the first "
                "version of SAC, with a state value, is torchrl.objectives.SACLoss"
            )
        self._in_keys = self._out_keys = None
        super().__init__()
        self.delay_actor, self.delay_qvalue = delay_actor, delay_qvalue
        self._set_deprecated_ctor_keys(priority_key=priority_key)
        self.reduction = "mean" if reduction is None else reduction
        self.loss_function = loss_function
        self.use_prioritized_weights = use_prioritized_weights
        self.deactivate_vmap = deactivate_vmap
        self.skip_done_states = skip_done_states
        self.actor_value = actor_value
        self.target_members = target_members
        self.scalar_output_mode = scalar_output_mode
        self.convert_to_functional(actor_network, "actor_network", create_target_params=delay_actor)
        ensemble = qvalue_network if isinstance(qvalue_network, EnsembleCritic) else None
        self.num_qvalue_nets = ensemble.num_critics if ensemble else num_qvalue_nets
        self.convert_to_functional(
            qvalue_network,
            "qvalue_network",
            None if ensemble else num_qvalue_nets,
            create_target_params=delay_qvalue,
            compare_against=list(actor_network.parameters()) if separate_losses else None,
        )
        self._check_members()
        if temperature is None:
            temperature = temperature_from(
                alpha_init=alpha_init,
                min_alpha=min_alpha,
                max_alpha=max_alpha,
                fixed_alpha=fixed_alpha,
                target_entropy=target_entropy,
            )
        self._register_temperature(temperature, action_spec)
        self.set_keys(**keys_of(actor_network))
        self._connect()

    def _qvalue_loss(self, tensordict: TensorDictBase) -> tuple[Tensor, dict[str, Tensor]]:
        """Equation (5), summed over the members."""
        self._bound_temperature()
        with torch.no_grad():
            next_value = self._next_value(tensordict.get("next"))
        target = self._target_value(tensordict, next_value)  # [*B]
        value = self._stored_values(tensordict)  # [N, *B]
        losses = self._distances(value, target)
        error = value.detach() - target
        metadata = {"error": error, "target": target, "next_value": next_value}
        metadata["td_error"] = error.abs().amax(0)
        return self._reduce(self._over_members(losses, "sum"), tensordict), metadata

    def _actor_loss(self, tensordict: TensorDictBase) -> tuple[Tensor, dict[str, Tensor]]:
        """Equation (7); reaches the actor alone. Metadata: ``log_prob``, ``alpha``, ``value``."""
        self._bound_temperature()
        action, log_prob = sample_action(self, tensordict)
        value = self._over_members(self._critic.frozen(tensordict, action), self.actor_value)
        if value.shape[value.ndim - log_prob.ndim :] != log_prob.shape:
            raise RuntimeError(
                f"the value must have the shape of the log-prob, got `{tuple(value.shape)}` and "
                f"`{tuple(log_prob.shape)}`; the last dimension of an action is its event"
            )
        alpha = self._alpha
        loss = self._reduce(alpha * log_prob - value, tensordict)
        return loss, {"log_prob": log_prob.detach(), "alpha": alpha, "value": value.detach()}

    def _over_members(self, values: Tensor, how: str) -> Tensor:
        """What becomes of the members' ``[N, *B]``: one number a row."""
        return reduce_members(values, how)

    def _next_value(self, after: TensorDictBase) -> Tensor:
        valid = None
        if self.skip_done_states:
            valid = has_value(after, self.tensor_keys, self.actor_network.in_keys)
            if not valid.any():
                return torch.zeros_like(valid, dtype=self.log_alpha.dtype)
            after = after[valid]
        action, log_prob = sample_action(self, after)
        members = draw_members(self.num_qvalue_nets, self.target_members, action.device)
        values = self._critic.target(after, action, members)  # [M, *B]
        value = soft_value(reduce_members(values, self.target_rule), self._alpha, log_prob)
        return value if valid is None else scatter_valid(value, valid)

    def _check_members(self) -> None:
        members = self.target_members
        if members is not None and not 1 <= members <= self.num_qvalue_nets:
            raise ValueError(
                f"`target_members` must lie between 1 and the {self.num_qvalue_nets} critics, got "
                f"`{members}`"
            )
        if self.actor_value not in ("min", "mean"):
            raise ValueError(f"`actor_value` must be 'min' or 'mean', got `{self.actor_value}`")
