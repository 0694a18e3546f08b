"""TD3: what it adds to DDPG."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import torch
from tensordict import TensorDictBase
from tensordict.nn import TensorDictModuleBase
from torch import Tensor
from torchrl.data import Bounded, Composite, TensorSpec

from torchrl_elegant.modules import DeterministicActor, EnsembleCritic
from torchrl_elegant.objectives.off_policy.deterministic import DeterministicLoss

Bounds = Sequence[float] | Sequence[Tensor]


class TD3Loss(DeterministicLoss):
    r"""TD3 (Fujimoto et al. 2018, arXiv:1802.09477) for critic ensembles of any size.

    What differs from DDPG: the target takes the least of all members, at an action with clipped
    noise on it.

    .. math::

        \tilde a &= \mathrm{clip}(\bar\mu(s') + \mathrm{clip}(\epsilon, -c, c), a_{low}, a_{high}),
            \quad \epsilon \sim N(0, \sigma^2)                     \qquad (14) \\
        y &= r + \gamma (1 - d) \min_i \bar Q_i(s', \tilde a)      \qquad (10) \\
        L_Q &= \sum_i \ell(Q_i(s, a), y)                                       \\
        L_\mu &= -Q_1(s, \mu(s))

    That the actor is updated less often than the critics is the business of a learner's schedule.

    It stands where TorchRL's ``TD3Loss`` stands: same arguments, keys, outputs, target parameters,
    reductions and priorities (the largest squared error of a member). It differs by intent in this:

    - given a ``DeterministicActor`` and an ``EnsembleCritic`` it calls them directly, without vmap
      or parameter swaps; any other networks work as in TorchRL;
    - such an actor brings its bounds: ``bounds`` and ``action_spec`` may both be left out;
    - ``actor_value`` is new.

    Args:
        actor_network: deterministic policy.
        qvalue_network: an ``EnsembleCritic``, or a Q network that is then copied
            ``num_qvalue_nets`` times, or a list of such.

    Keyword Args:
        policy_noise, noise_clip: sigma and c, in units of the action.
        actor_value: ``"first"``, ``"min"`` or ``"mean"``, what of the ensemble the actor raises.

    The others are TorchRL's.

    >>> from torchrl_elegant.modules import DeterministicActor, EnsembleCritic
    >>> shape = {"observation": (3,)}
    >>> actor = DeterministicActor(observation=shape, low=[-2.0], high=[2.0])
    >>> TD3Loss(actor, EnsembleCritic(observation=shape, action_shape=(1,))).max_action.item()
    2.0
    """

    terms = (
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
        actor_value: Literal["first", "min", "mean"] = "first",
        loss_function: str = "smooth_l1",
        delay_actor: bool = True,
        delay_qvalue: bool = True,
        priority_key: str | None = None,
        separate_losses: bool = False,
        reduction: str | None = None,
        deactivate_vmap: bool = False,
        use_prioritized_weights: str | bool = "auto",
    ) -> None:
        if actor_value not in ("first", "min", "mean"):
            raise ValueError(f"`actor_value` must be 'first', 'min' or 'mean', got `{actor_value}`")
        for name, value in (("policy_noise", policy_noise), ("noise_clip", noise_clip)):
            if not value >= 0.0:
                raise ValueError(f"`{name}` must be 0 or more, got `{value}`")
        self._in_keys = self._out_keys = None
        super().__init__()
        self._set_deprecated_ctor_keys(priority=priority_key)
        self.delay_actor, self.delay_qvalue = delay_actor, delay_qvalue
        self.reduction = "mean" if reduction is None else reduction
        self.loss_function, self.actor_value = loss_function, actor_value
        self.policy_noise, self.noise_clip = policy_noise, noise_clip
        self.deactivate_vmap = deactivate_vmap
        self.use_prioritized_weights = use_prioritized_weights
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
        self._register_bounds(actor_network, action_spec, bounds)
        self._connect()

    def value_loss(self, tensordict: TensorDictBase) -> tuple[Tensor, dict[str, Tensor]]:
        """The critics' loss; metadata with ``td_error`` of every member."""
        return self._qvalue_loss(tensordict)

    def _smoothed(self, action: Tensor) -> Tensor:
        noise = (torch.randn_like(action) * self.policy_noise).clamp_(
            -self.noise_clip, self.noise_clip
        )
        return noise.add_(action).clamp_(self.min_action, self.max_action)

    def _about_critics(
        self, value: Tensor, target: Tensor, next_value: Tensor
    ) -> dict[str, Tensor]:
        return {
            "td_error": (value - target).square(),
            "next_state_value": next_value,
            "pred_value": value,
            "target_value": target,
        }

    def _about_actor(self, values: Tensor) -> dict[str, Tensor]:
        return {"state_action_value_actor": values}

    def _write_priority(self, tensordict: TensorDictBase, about: dict[str, Tensor]) -> None:
        tensordict.set(self.tensor_keys.priority, about.pop("td_error").amax(0))

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
