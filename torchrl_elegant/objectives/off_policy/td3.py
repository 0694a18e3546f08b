"""TD3: deterministic policy gradients over an ensemble of critics."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import torch
from tensordict import TensorDict, TensorDictBase, TensorDictParams
from tensordict.nn import TensorDictModuleBase, dispatch
from torch import Tensor
from torchrl.data import Bounded, Composite, TensorSpec

from torchrl_elegant.functional import reduce_members
from torchrl_elegant.modules import DeterministicActor, EnsembleCritic
from torchrl_elegant.objectives.common.keys import CriticKeys
from torchrl_elegant.objectives.off_policy.base import OffPolicyLoss
from torchrl_elegant.objectives.off_policy.own_networks import actor_calls, critic_calls

Bounds = Sequence[float] | Sequence[Tensor]


class TD3Loss(OffPolicyLoss):
    r"""TD3 (Fujimoto et al. 2018, arXiv:1802.09477) for critic ensembles of any size.

    With members :math:`Q_i` and delayed copies :math:`\bar Q_i, \bar\mu`:

    .. math::

        \tilde a &= \mathrm{clip}(\bar\mu(s') + \mathrm{clip}(\epsilon, -c, c), a_{low}, a_{high}),
            \quad \epsilon \sim N(0, \sigma^2)                     \qquad (14) \\
        y &= r + \gamma (1 - d) \min_i \bar Q_i(s', \tilde a)      \qquad (10) \\
        L_Q &= \sum_i \ell(Q_i(s, a), y)                                       \\
        L_\mu &= -Q_1(s, \mu(s))

    A learner's schedule decides how much less often the actor is updated than the critics.

    It stands where TorchRL's ``TD3Loss`` stands: same arguments, keys, outputs, target parameters
    and reductions. It differs by intent in this:

    - a ``DeterministicActor`` and an ``EnsembleCritic`` are called directly, without vmap or
      parameter swaps, and so are TorchRL's usual networks, an ``MLP`` in a ``ValueOperator`` and
      before a ``TanhModule`` (``benchmarks/swapped_import.py``); others work as in TorchRL;
    - such an actor brings its bounds: ``bounds`` and ``action_spec`` may both be left out;
    - over a ``DistributionalCritic`` it learns distributions of returns, as FastTD3 does (Seo et
      al. 2025, arXiv:2505.22642); ``OffPolicyLoss`` has the equation;
    - ``td_error`` and the priority, the largest over the members, are absolute and not squared;
    - ``actor_q`` is new.

    Args:
        actor_network: deterministic policy.
        qvalue_network: an ``EnsembleCritic``, or a Q network that is then copied
            ``num_qvalue_nets`` times, or a list of such.

    Keyword Args:
        policy_noise, noise_clip: sigma and c, in units of the action.
        actor_q: Q-value that the actor maximizes: ``"first"`` critic's, or ``"min"`` or ``"mean"``
            over the critics.

    The others are TorchRL's.

    >>> from torchrl_elegant.modules import DeterministicActor, EnsembleCritic
    >>> shape = {"observation": (3,)}
    >>> actor = DeterministicActor(observation=shape, low=[-2.0], high=[2.0])
    >>> TD3Loss(actor, EnsembleCritic(observation=shape, action_shape=(1,))).max_action.item()
    2.0
    """

    _AcceptedKeys = default_keys = CriticKeys
    critic_term = "loss_qvalue"
    num_qvalue_nets: int | None
    qvalue_network: TensorDictModuleBase
    qvalue_network_params: TensorDictParams
    target_qvalue_network_params: TensorDictParams
    terms: tuple[str, ...] = (
        "loss_actor",
        "loss_qvalue",
        "pred_value",
        "state_action_value_actor",
        "next_state_value",
        "target_value",
    )

    def __init__(
        self,
        actor_network: TensorDictModuleBase,
        qvalue_network: TensorDictModuleBase | list[TensorDictModuleBase],
        *,
        action_spec: TensorSpec | None = None,
        bounds: Bounds | None = None,
        num_qvalue_nets: int = 2,
        policy_noise: float = 0.2,
        noise_clip: float = 0.5,
        actor_q: Literal["first", "min", "mean"] = "first",
        loss_function: str = "smooth_l1",
        delay_actor: bool = True,
        delay_qvalue: bool = True,
        priority_key: str | None = None,
        separate_losses: bool = False,
        reduction: str | None = None,
        deactivate_vmap: bool = False,
        use_prioritized_weights: str | bool = "auto",
    ) -> None:
        if actor_q not in ("first", "min", "mean"):
            raise ValueError(f"`actor_q` must be 'first', 'min' or 'mean', got `{actor_q}`")
        for name, value in (("policy_noise", policy_noise), ("noise_clip", noise_clip)):
            if not value >= 0.0:
                raise ValueError(f"`{name}` must be 0 or more, got `{value}`")
        super().__init__()
        self._set_deprecated_ctor_keys(priority=priority_key)
        self.delay_actor, self.delay_qvalue = delay_actor, delay_qvalue
        self.loss_function, self.reduction = loss_function, reduction or "mean"
        self.actor_q, self.policy_noise, self.noise_clip = actor_q, policy_noise, noise_clip
        self.deactivate_vmap = deactivate_vmap
        self.use_prioritized_weights = use_prioritized_weights
        ensemble = qvalue_network if isinstance(qvalue_network, EnsembleCritic) else None
        self.num_qvalue_nets = ensemble.num_critics if ensemble else num_qvalue_nets
        self._convert(
            actor_network,
            qvalue_network,
            copies=None if ensemble else num_qvalue_nets,
            delay_critic=delay_qvalue,
            separate_losses=separate_losses,
        )
        self._register_bounds(actor_network, action_spec, bounds)
        self._connect()

    @dispatch
    def forward(self, tensordict: TensorDictBase) -> TensorDictBase:
        critic_loss, about = self._qvalue_loss(tensordict)
        self._write_priority(tensordict, about)
        actor_loss, actor_about = self._actor_loss(tensordict)
        terms = {"loss_actor": actor_loss, self.critic_term: critic_loss}
        return TensorDict({**terms, **actor_about, **about}, batch_size=[])

    def critic_terms(self, tensordict: TensorDictBase) -> dict[str, Tensor]:
        """Terms that train the critics, and means of what is reported; writes the priority."""
        loss, about = self._qvalue_loss(tensordict)
        self._write_priority(tensordict, about)
        reports = {name: value.mean() for name, value in about.items() if name in self.terms}
        return {self.critic_term: loss, **reports}

    def actor_terms(self, tensordict: TensorDictBase) -> dict[str, Tensor]:
        """Terms that train the actor, and means of what is reported; the actor's critics alone."""
        alone = self.actor_q == "first" and self.num_qvalue_nets is not None
        loss, about = self._actor_loss(tensordict, members=1 if alone else None)
        return {"loss_actor": loss, **{name: value.mean() for name, value in about.items()}}

    def _smoothed(self, action: Tensor) -> Tensor:
        """Equation (14)."""
        noise = (torch.randn_like(action) * self.policy_noise).clamp_(
            -self.noise_clip, self.noise_clip
        )
        # Not in place: under vmap noise may be shared by actions that differ.
        return (noise + action).clamp(self.min_action, self.max_action)

    def _next_value(self, after: TensorDictBase) -> Tensor:
        data, action = self._actor.target(after)
        return reduce_members(self._critic.target(data, self._smoothed(action)), "min")

    def _next_distribution(self, after: TensorDictBase) -> tuple[Tensor, Tensor | None]:
        data, action = self._actor.target(after)
        return self._critic.target_logits(data, self._smoothed(action)), None

    def _qvalue_loss(self, tensordict: TensorDictBase) -> tuple[Tensor, dict[str, Tensor]]:
        fit = self._fit(tensordict)  # towards equation (10)
        about = self._about_critics(fit.value, fit.target, fit.next_value)
        return self._reduce(fit.losses.sum(0), tensordict), about

    def _stored_values(self, tensordict: TensorDictBase) -> Tensor:
        # An action that the actor has just written leads back to it, and is data here.
        return self._critic.online(tensordict, tensordict.get(self.tensor_keys.action).detach())

    def _actor_loss(
        self, tensordict: TensorDictBase, members: int | None = None
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """Actor's loss over the first ``members`` critics; None for all."""
        seen, action = self._actor.online(tensordict)
        values = self._acted_values(tensordict, seen, action, members)  # [N, *B]
        value = values[0] if self.actor_q == "first" else reduce_members(values, self.actor_q)
        return self._reduce(-value, tensordict), self._about_actor(values.detach())

    # Names of TorchRL's TD3.

    def value_loss(self, tensordict: TensorDictBase) -> tuple[Tensor, dict[str, Tensor]]:
        """Critics' loss; metadata with ``td_error`` of every member."""
        return self._qvalue_loss(tensordict)

    def qvalue_loss(self, tensordict: TensorDictBase) -> tuple[Tensor, dict[str, Tensor]]:
        """Critics' loss, as ``value_loss``."""
        return self._qvalue_loss(tensordict)

    def actor_loss(self, tensordict: TensorDictBase) -> tuple[Tensor, dict[str, Tensor]]:
        """Actor's loss, which reaches the actor alone."""
        return self._actor_loss(tensordict)

    def _about_critics(
        self, value: Tensor, target: Tensor, next_value: Tensor
    ) -> dict[str, Tensor]:
        """Reports, from values ``[N, *B]`` and targets ``[*B]``; with ``td_error``."""
        return {
            "td_error": (value - target).abs(),
            "next_state_value": next_value,
            "pred_value": value,
            "target_value": target,
        }

    def _about_actor(self, values: Tensor) -> dict[str, Tensor]:
        return {"state_action_value_actor": values}

    def _write_priority(self, tensordict: TensorDictBase, about: dict[str, Tensor]) -> None:
        tensordict.set(self.tensor_keys.priority, about.pop("td_error").amax(0))

    def _make_calls(self) -> dict[str, Any]:
        stacked = self.num_qvalue_nets is not None
        critic = critic_calls(self, self.critic_name, stacked=stacked)
        return {"_actor": actor_calls(self), "_critic": critic}

    def _register_bounds(
        self, actor: TensorDictModuleBase, spec: TensorSpec | None, bounds: Bounds | None
    ) -> None:
        if spec is None and bounds is None and isinstance(actor, DeterministicActor):
            bounds = (actor.low, actor.high)
        if (spec is None) == (bounds is None):
            raise ValueError(
                "`bounds` or `action_spec` must be given, but not both, got "
                f"`{bounds}` and `{spec}`"
            )
        low, high = self._bounds_of(spec) if bounds is None else bounds
        device = next(self.parameters()).device
        low, high = (torch.as_tensor(x, device=device).detach().clone() for x in (low, high))
        if bool((low > high).any()):
            raise ValueError(f"`bounds` must be low <= high, got `{low}` and `{high}`")
        self.register_buffer("max_action", high)
        self.register_buffer("min_action", low)

    def _bounds_of(self, spec: TensorSpec) -> tuple[Tensor, Tensor]:
        key = self.tensor_keys.action
        if isinstance(spec, Composite):
            holder = spec[key[:-1]] if isinstance(key, tuple) and len(key) > 1 else spec
            spec = spec[key][(0,) * len(holder.shape)]
        if not isinstance(spec, Bounded):
            raise ValueError(f"`action_spec` must be Bounded, got `{type(spec).__name__}`")
        return spec.space.low, spec.space.high
