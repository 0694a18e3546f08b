"""Base of the losses of PPO and A2C."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Mapping
from functools import partial
from typing import Any

import torch
from tensordict import TensorDict, TensorDictBase
from tensordict.nn import dispatch
from tensordict.utils import NestedKey
from torch import Tensor
from torchrl.objectives import LossModule
from torchrl.objectives.utils import ValueEstimators, default_value_kwargs

from torchrl_elegant.functional import clipped_value_loss, value_loss
from torchrl_elegant.objectives.on_policy.gae import GAE
from torchrl_elegant.objectives.on_policy.networks import ConnectedNetworks
from torchrl_elegant.objectives.on_policy.vtrace import VTrace
from torchrl_elegant.objectives.on_policy.written import (
    Written,
    add_gradients,
    plain_inputs,
    write_policy,
    write_value,
    written_parameters,
)


def are_plain(
    tensordict: TensorDictBase, *, constant: NestedKey, columns: Iterable[NestedKey]
) -> bool:
    """Whether nothing is missing, would broadcast, or would take a share of the gradient.

    That is an entry without gradient, and columns ``[*B, 1]``.

    >>> import torch
    >>> from tensordict import TensorDict
    >>> rows = TensorDict({"action": torch.zeros(3, 2), "advantage": torch.zeros(3, 1)}, [3])
    >>> are_plain(rows, constant="action", columns=["advantage"])
    True
    """
    given, shape = tensordict.get(constant, None), (*tensordict.batch_size, 1)
    if given is None or given.requires_grad:
        return False
    found = [tensordict.get(key, None) for key in columns]
    return all(x is not None and x.shape == shape for x in found)


def is_plain_log_prob(tensordict: TensorDictBase, key: NestedKey) -> bool:
    """Whether a stored log-probability is there, ``[*B]``, and without gradient.

    >>> import torch
    >>> from tensordict import TensorDict
    >>> is_plain_log_prob(TensorDict({"log_prob": torch.zeros(3)}, [3]), "log_prob")
    True
    """
    shape, drawn = tensordict.batch_size, tensordict.get(key, None)
    if drawn is None or drawn.requires_grad:
        return False
    if drawn.shape == (*shape, 1) and shape:
        raise ValueError(
            f"`{key}` must have the shape of the batch, {tuple(shape)}, got "
            f"`{tuple(drawn.shape)}`, which would pair every row with every other; squeeze its "
            "last dimension"
        )
    return drawn.shape == shape


_ESTIMATORS = {ValueEstimators.GAE: GAE, ValueEstimators.VTrace: VTrace}


class OnPolicyLoss(ConnectedNetworks, LossModule):
    """Stands before a loss of TorchRL's: ``class A2CLoss(OnPolicyLoss, objectives.A2CLoss)``.

    ``L = -E[gain(log pi(a|s), A)] + c_v d(V, R) - c_e H``

    A leaf says what the gain is. Over a ``StochasticActor`` and a ``StateValue`` the networks
    themselves are called, where TorchRL swaps parameters into them and builds distribution
    objects. With options or rows that the short way does not know (``_is_usual``, ``are_plain``)
    and over other networks the loss is TorchRL's.
    """

    @abstractmethod
    def _gain(self, tensordict: TensorDictBase, log_prob: Tensor) -> Tensor:
        """What the policy is to raise, ``[*B]``."""

    @abstractmethod
    def _gain_slope(self, tensordict: TensorDictBase, log_prob: Tensor) -> tuple[Tensor, Tensor]:
        """The same and its derivative by ``log_prob``, in memory of its own."""

    @abstractmethod
    def _is_usual(self) -> bool:
        """Whether no option is set that only TorchRL's own way knows."""

    @dispatch
    def forward(self, tensordict: TensorDictBase) -> TensorDictBase:
        if not self._is_direct(tensordict):
            return super().forward(tensordict)
        terms, log_prob, value = self._terms(tensordict)
        with torch.no_grad():
            terms |= self._reports(tensordict, log_prob.detach(), value.detach())
        return TensorDict(terms, batch_size=[])

    def update_terms(self, tensordict: TensorDictBase) -> dict[str, Tensor]:
        """The terms of the loss alone."""
        if self._is_direct(tensordict):
            return self._run_terms(tensordict)[0]
        terms = self(tensordict)
        return {name: value for name, value in terms.items() if name.startswith("loss_")}

    def backward_terms(self, tensordict: TensorDictBase) -> dict[str, Tensor] | None:
        """As ``update_terms``, with the gradients of its losses added to the parameters already.

        None where that takes autograd (``plain_inputs``), and for TorchRL's terms."""
        actor, critic = self.actor_network, self.critic_network
        if self.clip_value or not self._is_direct(tensordict):
            return None
        seen = plain_inputs(tensordict, actor, critic)
        if seen is None:
            return None
        with torch.no_grad():
            terms, grads = self._run_written(tensordict, *seen)
        add_gradients(written_parameters(actor, critic), grads)
        return terms

    def _written(self, tensordict: TensorDictBase, x: Tensor, y: Tensor) -> Written:
        action, target = (
            tensordict.get(key) for key in (self.tensor_keys.action, self.tensor_keys.value_target)
        )
        entropy_coeff = self.entropy_coeff if self.entropy_bonus else None
        gain_slope = partial(self._gain_slope, tensordict)
        coeff, kind = self.critic_coeff, self.loss_critic_type
        policy = write_policy(self.actor_network, x, action, gain_slope, entropy_coeff)
        value = write_value(self.critic_network, y, target, coeff=coeff, kind=kind)
        return policy[0] | value[0], policy[1] + value[1]

    def estimate(self, rollout: TensorDictBase) -> TensorDictBase:
        """Write advantages, value targets and values into a rollout ``[*B, T]``."""
        ours = self._networks_are_ours or not self.functional
        params = None if ours else self.critic_network_params.detach()
        return self.value_estimator(rollout, params=params)

    @property
    def row_keys(self) -> list[NestedKey]:
        """What ``update_terms`` and ``report`` read of a rollout that has been estimated."""
        keys = self.tensor_keys
        own = [keys.action, keys.advantage, keys.value_target]
        own += [keys.value] if self.clip_value else []
        seen = [*self.actor_network.in_keys, *self.critic_network.in_keys]
        return list(dict.fromkeys([*seen, *own]))

    def make_value_estimator(
        self, value_type: ValueEstimators | None = None, **hyperparams: Any
    ) -> OnPolicyLoss:
        kind = ValueEstimators.GAE if value_type is None else value_type
        if kind not in _ESTIMATORS:
            return super().make_value_estimator(value_type, **hyperparams)
        self.value_type = kind
        hyperparams = default_value_kwargs(kind) | hyperparams
        self._value_estimator = _ESTIMATORS[kind].for_loss(self, **hyperparams)
        self._forward_value_estimator_keys()
        return self

    def _forward_value_estimator_keys(self, **kwargs: Any) -> None:
        super()._forward_value_estimator_keys(**kwargs)
        if self._value_estimator is not None:
            self._value_estimator.set_keys(sample_log_prob=self.tensor_keys.sample_log_prob)

    def _terms(self, tensordict: TensorDictBase) -> tuple[dict[str, Tensor], Tensor, Tensor]:
        actor, critic = self.actor_network, self.critic_network
        head = actor.head([tensordict.get(key) for key in actor.in_keys])
        log_prob = head.log_prob(tensordict.get(self.tensor_keys.action))  # [*B]
        terms = {"loss_objective": -self._gain(tensordict, log_prob).mean()}
        if self.entropy_bonus:
            entropy = head.entropy().mean()
            terms["entropy"] = entropy.detach()
            terms["loss_entropy"] = -self.entropy_coeff * entropy
        value = critic.values([tensordict.get(key) for key in critic.in_keys])  # [*B, 1]
        terms["loss_critic"] = self.critic_coeff * self._value_loss(tensordict, value)
        return terms, log_prob, value

    def _advantage(self, tensordict: TensorDictBase) -> Tensor:
        return tensordict.get(self.tensor_keys.advantage).squeeze(-1)  # [*B]

    def _value_loss(self, tensordict: TensorDictBase, value: Tensor) -> Tensor:
        target, kind = tensordict.get(self.tensor_keys.value_target), self.loss_critic_type
        if not self.clip_value:
            return value_loss(value, target, kind=kind)
        old = tensordict.get(self.tensor_keys.value)
        return clipped_value_loss(value, target, old, self.clip_value, kind=kind)

    def _reports(
        self, tensordict: TensorDictBase, log_prob: Tensor, value: Tensor
    ) -> Mapping[str, Tensor]:
        if not self.clip_value:
            return {}
        moved = (value - tensordict.get(self.tensor_keys.value)).abs()
        return {"value_clip_fraction": (moved > self.clip_value).to(value.dtype).mean()}

    def _is_direct(self, tensordict: TensorDictBase) -> bool:
        keys = self.tensor_keys
        columns = [keys.advantage, keys.value_target, *([keys.value] if self.clip_value else [])]
        return (
            self._networks_are_ours
            and self.reduction == "mean"
            and self.advantage_norm is None
            and self.critic_coeff is not None
            and self._is_usual()
            and not any(key in tensordict for key in self._loss_mask_keys())
            and are_plain(tensordict, constant=keys.action, columns=columns)
        )
