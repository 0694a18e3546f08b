"""Proximal policy optimisation with a clipped ratio (Schulman et al. 2017, arXiv:1707.06347)."""

from __future__ import annotations

from typing import Any

import torch
from tensordict import TensorDict, TensorDictBase
from tensordict.nn import dispatch
from tensordict.utils import NestedKey
from torch import Tensor
from torchrl import objectives
from torchrl.objectives.utils import ValueEstimators, default_value_kwargs

from torchrl_elegant.functional import (
    clipped_surrogate,
    clipped_value_loss,
    explained_variance,
    ratio_statistics,
    standardised,
    value_loss,
)
from torchrl_elegant.modules import StateValue, StochasticActor
from torchrl_elegant.objectives.compiled import Compiled
from torchrl_elegant.objectives.gae import GAE
from torchrl_elegant.objectives.rows import are_plain


class ClipPPOLoss(objectives.ClipPPOLoss):
    """TorchRL's ``ClipPPOLoss``, with the same arguments, keys and results, for less.

    ``L = -E[min(rho A, clip(rho, 1 - eps, 1 + eps) A)] + c_v |V - R|^2 - c_e H``

    Over a ``StochasticActor`` and a ``StateValue`` of this package it calls the networks
    themselves, where TorchRL swaps parameters into them and builds distribution objects, and log-
    probability and surrogate are one autograd node each: measured in ``benchmarks/ppo.py``. Over
    other networks, with options that the short way does not know (a delayed actor, capped ratios,
    masks, other reductions), and where an entry is missing or has another shape, it is TorchRL's,
    but a stored log-probability ``[*B, 1]``, which TorchRL pairs with every row, is refused.

    >>> import torch
    >>> from tensordict import TensorDict
    >>> from torchrl_elegant.modules import GaussianActor
    >>> shapes = {"observation": (3,)}
    >>> actor = GaussianActor(observation=shapes, action_shape=(1,))
    >>> loss = ClipPPOLoss(actor, StateValue(observation=shapes))
    >>> batch = actor(TensorDict({"observation": torch.zeros(5, 3)}, [5])).detach()
    >>> _ = batch.set("advantage", torch.ones(5, 1)).set("value_target", torch.zeros(5, 1))
    >>> round(loss(batch)["loss_objective"].item(), 4)
    -1.0
    """

    _compiles = False

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._connect()

    def compile_terms(self) -> ClipPPOLoss:
        """Compile ``update_terms``: a quarter less time for an update of narrow networks, after 15
        to 30 s. Without a compiler nothing changes."""
        self._compiles = True
        self._connect()
        return self

    @dispatch
    def forward(self, tensordict: TensorDictBase) -> TensorDictBase:
        if not self._is_direct(tensordict):
            return super().forward(tensordict)
        terms, log_ratio, value = self._terms(tensordict)
        with torch.no_grad():
            terms |= self._reports(tensordict, log_ratio.detach(), value.detach())
        return TensorDict(terms, batch_size=[])

    def update_terms(self, tensordict: TensorDictBase) -> dict[str, Tensor]:
        """The terms of the loss alone."""
        if self._is_direct(tensordict):
            return self._run_terms(tensordict)[0]
        terms = self(tensordict)
        return {name: value for name, value in terms.items() if name.startswith("loss_")}

    def estimate(self, rollout: TensorDictBase) -> TensorDictBase:
        """Write advantages, value targets and values into a rollout ``[*B, T]``."""
        params = None if self._networks_are_ours else self._cached_critic_network_params_detached
        return self.value_estimator(rollout, params=params)

    @property
    def row_keys(self) -> list[NestedKey]:
        """What ``update_terms`` reads of a rollout that has been estimated."""
        keys = self.tensor_keys
        own = [keys.action, keys.sample_log_prob, keys.advantage, keys.value_target]
        own += [keys.value] if self.clip_value else []
        seen = [*self.actor_network.in_keys, *self.critic_network.in_keys]
        return list(dict.fromkeys([*seen, *own]))

    @property
    def report_keys(self) -> list[str]:
        """What ``forward`` reports beside ``out_keys``."""
        return ["explained_variance"] if self.log_explained_variance else []

    def make_value_estimator(
        self, value_type: ValueEstimators | None = None, **hyperparams: Any
    ) -> ClipPPOLoss:
        if value_type not in (None, ValueEstimators.GAE):
            return super().make_value_estimator(value_type, **hyperparams)
        self.value_type = ValueEstimators.GAE
        hyperparams = default_value_kwargs(self.value_type) | hyperparams
        self._value_estimator = GAE.for_loss(self, **hyperparams)
        self._forward_value_estimator_keys()
        return self

    def _terms(self, tensordict: TensorDictBase) -> tuple[dict[str, Tensor], Tensor, Tensor]:
        keys, actor = self.tensor_keys, self.actor_network
        head = actor.head([tensordict.get(key) for key in actor.in_keys])
        log_prob = head.log_prob(tensordict.get(keys.action))  # [*B]
        log_ratio = log_prob - tensordict.get(keys.sample_log_prob)
        low, high = self._ratio_bounds()
        gain = clipped_surrogate(log_ratio, self._advantage(tensordict), low, high)
        terms = {"loss_objective": -gain.mean()}
        if self.entropy_bonus:
            entropy = head.entropy().mean()
            terms["entropy"] = entropy.detach()
            terms["loss_entropy"] = -self.entropy_coeff * entropy
        critic = self.critic_network
        value = critic.values([tensordict.get(key) for key in critic.in_keys])  # [*B, 1]
        terms["loss_critic"] = self.critic_coeff * self._value_loss(tensordict, value)
        return terms, log_ratio, value

    def _advantage(self, tensordict: TensorDictBase) -> Tensor:
        advantage = tensordict.get(self.tensor_keys.advantage).squeeze(-1)
        return standardised(advantage) if self.normalize_advantage else advantage

    def _ratio_bounds(self) -> tuple[Tensor | float, Tensor | float]:
        below = self.clip_epsilon_low if self._asymmetric_clip else self.clip_epsilon
        above = self.clip_epsilon_high if self._asymmetric_clip else below
        # A kernel takes numbers for less, but from a GPU they would have to be waited for.
        if below.is_cpu and not torch.compiler.is_compiling():
            below, above = below.item(), above.item()
        return 1.0 - below, 1.0 + above

    def _value_loss(self, tensordict: TensorDictBase, value: Tensor) -> Tensor:
        target, kind = tensordict.get(self.tensor_keys.value_target), self.loss_critic_type
        if not self.clip_value:
            return value_loss(value, target, kind=kind)
        old = tensordict.get(self.tensor_keys.value)
        return clipped_value_loss(value, target, old, self.clip_value, kind=kind)

    def _reports(
        self, tensordict: TensorDictBase, log_ratio: Tensor, value: Tensor
    ) -> dict[str, Tensor]:
        reports = ratio_statistics(log_ratio, *self._ratio_bounds())
        if self.clip_value:
            moved = (value - tensordict.get(self.tensor_keys.value)).abs()
            reports["value_clip_fraction"] = (moved > self.clip_value).to(value.dtype).mean()
        if self.log_explained_variance:
            target = tensordict.get(self.tensor_keys.value_target)
            reports["explained_variance"] = explained_variance(value, target)
        return reports

    def _is_direct(self, tensordict: TensorDictBase) -> bool:
        keys = self.tensor_keys
        columns = [keys.advantage, keys.value_target, *([keys.value] if self.clip_value else [])]
        return (
            self._networks_are_ours
            and self.reduction == "mean"
            and not (self.separate_losses or self.delay_actor)
            and not self.normalize_advantage_exclude_dims
            and self.max_importance_ratio is None
            and self.advantage_norm is None
            and self._entropy_coeff_map is None
            and self._has_critic
            and not any(key in tensordict for key in self._loss_mask_keys())
            and are_plain(tensordict, log_prob=keys.sample_log_prob, columns=columns)
        )

    def _connect(self) -> None:
        """Make networks that are called directly hold the tensors that optimisers write."""
        self._networks_are_ours = (
            self.functional
            and isinstance(self.actor_network, StochasticActor)
            and isinstance(self.critic_network, StateValue)
        )
        for name in ("actor_network", "critic_network") if self._networks_are_ours else ():
            params = getattr(self, f"{name}_params")
            params.to_module(getattr(self, name), preserve_module_state=False)
        self.__dict__["_run_terms"] = Compiled(self._terms) if self._compiles else self._terms

    def _apply(self, fn: Any, recurse: bool = True) -> ClipPPOLoss:
        out = super()._apply(fn)
        self._connect()
        return out

    def __getstate__(self) -> dict[str, Any]:
        # A copy runs its own terms, not this loss's.
        return {name: value for name, value in self.__dict__.items() if name != "_run_terms"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        # In a copy, parameters and modules are copied apart from one another.
        self._connect()
