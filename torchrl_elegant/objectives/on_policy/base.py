"""Base of the losses of PPO and A2C."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any, ClassVar

import torch
from tensordict import TensorDict, TensorDictBase
from tensordict.nn import dispatch
from tensordict.utils import NestedKey
from torch import Tensor
from torchrl.objectives import LossModule
from torchrl.objectives.utils import ValueEstimators, default_value_kwargs

from torchrl_elegant.data import refilled
from torchrl_elegant.data.running_statistics import Gather
from torchrl_elegant.functional import clipped_value_loss, junk_keys, value_loss
from torchrl_elegant.functional.gradients import add_gradients
from torchrl_elegant.modules import Memory, StateValue, StochasticActor
from torchrl_elegant.objectives.common.bound_networks import BoundNetworks
from torchrl_elegant.objectives.common.update_loss import UpdateDefaults
from torchrl_elegant.objectives.on_policy import written_gradients as written
from torchrl_elegant.objectives.on_policy.gae import GAE, WholeRollouts
from torchrl_elegant.objectives.on_policy.plain_rows import are_plain
from torchrl_elegant.objectives.on_policy.vtrace import VTrace


class OnPolicyLoss(UpdateDefaults, BoundNetworks, LossModule):
    r"""Stands before a loss of TorchRL's: ``class A2CLoss(OnPolicyLoss, objectives.A2CLoss)``.

    .. math::

        L_\pi &= -\mathrm{E}[g(\log \pi(a|s), A)]   \\
        L_H &= -c_e \, \mathrm{E}[H(\pi(\cdot|s))]  \\
        L_V &= c_v \, \mathrm{E}[d(V(s), R)]

    A subclass gives the gain g. Over a ``StochasticActor`` and a ``StateValue`` the networks are
    called directly, where TorchRL swaps parameters and builds distribution objects. For options or
    rows that this short way does not cover (``_is_direct``) and over other networks, the loss is
    TorchRL's.

    ``estimators`` are those of this package, by TorchRL's names.

    The same loss has two forms: ``update_terms`` for autograd, and ``backward_terms`` with
    gradients written out. One test holds them together over all options, plain and compiled.
    """

    estimators: ClassVar[Mapping[ValueEstimators, type[WholeRollouts]]] = {
        ValueEstimators.GAE: GAE,
        ValueEstimators.VTrace: VTrace,
    }

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._connect()

    @abstractmethod
    def _gain(self, tensordict: TensorDictBase, log_prob: Tensor) -> Tensor:
        """g, which the policy maximizes, ``[*B]``."""

    @abstractmethod
    def _gain_slope(self, tensordict: TensorDictBase, log_prob: Tensor) -> tuple[Tensor, Tensor]:
        """g and its derivative by ``log_prob``, in memory of its own."""

    @abstractmethod
    def _is_usual(self) -> bool:
        """True if no option is set that only TorchRL's own code covers."""

    @dispatch
    def forward(self, tensordict: TensorDictBase) -> TensorDictBase:
        with self._networks_in_place():
            if not self._is_direct(tensordict):
                return super().forward(tensordict)
            terms, log_prob, value = self._terms(tensordict)
            with torch.no_grad():
                terms |= self._reports(tensordict, log_prob.detach(), value.detach())
            return TensorDict(terms, batch_size=[])

    def update_terms(self, tensordict: TensorDictBase, *, actor: bool = True) -> dict[str, Tensor]:
        """Losses, and the entropy where it is rewarded."""
        if not self._is_direct(tensordict):
            terms = {k: v for k, v in self(tensordict).items() if k.startswith("loss_")}
            return terms if actor else {"loss_critic": terms["loss_critic"]}
        with self._networks_in_place():
            return self._terms(tensordict)[0] if actor else self._value_terms(tensordict)[0]

    def backward_terms(
        self, tensordict: TensorDictBase, *, actor: bool = True
    ) -> dict[str, Tensor]:
        """See ``UpdateLoss``; gradients are written out where they can be, else autograd's."""
        inputs = self._written_inputs(tensordict) if actor else None
        if inputs is None:
            return super().backward_terms(tensordict, actor=actor)
        with torch.no_grad():
            terms, grads = self._written(tensordict, *inputs)
        params = written.written_parameters(self.actor_network, self.critic_network)
        add_gradients(params, grads)
        return terms

    def _terms(self, tensordict: TensorDictBase) -> tuple[dict[str, Tensor], Tensor, Tensor]:
        policy, log_prob = self._policy_terms(tensordict)
        values, value = self._value_terms(tensordict)
        return policy | values, log_prob, value

    def _policy_terms(self, tensordict: TensorDictBase) -> tuple[dict[str, Tensor], Tensor]:
        actor = self.actor_network
        head = actor.head([tensordict.get(key) for key in actor.in_keys])
        log_prob = head.log_prob(tensordict.get(self.tensor_keys.action))  # [*B]
        terms = {"loss_objective": -self._gain(tensordict, log_prob).mean()}
        if self.entropy_bonus:
            entropy = head.entropy().mean()
            terms["entropy"] = entropy.detach()
            terms["loss_entropy"] = -self.entropy_coeff * entropy
        return terms, log_prob

    def _value_terms(self, tensordict: TensorDictBase) -> tuple[dict[str, Tensor], Tensor]:
        critic, kind = self.critic_network, self.loss_critic_type
        value = critic.values([tensordict.get(key) for key in critic.in_keys])  # [*B, 1]
        target = tensordict.get(self.tensor_keys.value_target)
        if self._clips_values:
            old = tensordict.get(self.tensor_keys.value)
            distance = clipped_value_loss(value, target, old, self.clip_value, kind=kind)
        else:
            distance = value_loss(value, target, kind=kind)
        return {"loss_critic": self.critic_coeff * distance}, value

    def _written(self, tensordict: TensorDictBase, x: Tensor, y: Tensor) -> written.Written:
        """Terms and gradients, from what the actor and the critic are given."""
        keys, coeff, kind = self.tensor_keys, self.critic_coeff, self.loss_critic_type
        policy, policy_grads = written.write_policy(
            self.actor_network,
            x,
            tensordict.get(keys.action),
            partial(self._gain_slope, tensordict),
            self.entropy_coeff if self.entropy_bonus else None,
        )
        target = tensordict.get(keys.value_target)
        value, value_grads = written.write_value(
            self.critic_network, y, target, coeff=coeff, kind=kind
        )
        return policy | value, policy_grads + value_grads

    def _written_inputs(self, tensordict: TensorDictBase) -> list[Tensor] | None:
        """Inputs of both networks; None where the gradients take autograd."""
        if self._clips_values or self._is_swapped or not self._is_direct(tensordict):
            return None
        return written.plain_inputs(tensordict, self.actor_network, self.critic_network)

    def _advantage(self, tensordict: TensorDictBase) -> Tensor:
        return tensordict.get(self.tensor_keys.advantage).squeeze(-1)  # [*B]

    def _reports(
        self, tensordict: TensorDictBase, log_prob: Tensor, value: Tensor
    ) -> Mapping[str, Tensor]:
        if not self._clips_values:
            return {}
        moved = (value - tensordict.get(self.tensor_keys.value)).abs()
        return {"value_clip_fraction": (moved > self.clip_value).to(value.dtype).mean()}

    def connect(self, gather: Gather) -> None:
        """Do nothing: this loss keeps no statistics of what it is shown."""

    def estimate(self, rollout: TensorDictBase) -> TensorDictBase:
        """See ``RolloutLoss``."""
        ours = self._networks_are_ours or not self.functional
        params = None if ours else self.critic_network_params.detach()
        with self._networks_in_place():
            return self.value_estimator(rollout, params=params)

    @property
    def _is_swapped(self) -> bool:
        """True while ``to_module`` or ``functional_call`` has put in other parameters."""
        return self.functional and self._has_guests("actor_network", "critic_network")

    @contextmanager
    def _networks_in_place(self) -> Iterator[None]:
        """Let the networks hold what ``to_module`` has put into the loss."""
        if not self._networks_are_ours:
            yield
            return
        with (
            self._watched["actor_network_params"].in_place(self.actor_network),
            self._watched["critic_network_params"].in_place(self.critic_network),
        ):
            yield

    @property
    def metric_names(self) -> list[str]:
        return [str(key) for key in self.out_keys]

    @property
    def _clips_values(self) -> bool:
        # Not the truth of the number itself, for which a device would have to be waited for.
        return self.clip_value is not None and self.clip_value is not False

    @property
    def row_keys(self) -> list[NestedKey]:
        """See ``RolloutLoss``."""
        keys = self.tensor_keys
        own = [keys.action, keys.advantage, keys.value_target]
        own += [keys.value] if self._clips_values else []
        seen = [*self.actor_network.in_keys, *self.critic_network.in_keys]
        return list(dict.fromkeys([*seen, *own]))

    def rows(self, estimated: TensorDictBase) -> TensorDictBase:
        """See ``RolloutLoss``."""
        return refilled(estimated.select(*self.row_keys, *junk_keys(estimated)).reshape(-1))

    def memories(self) -> dict[NestedKey, Memory]:
        """Memories of actor and critic, by the entry that each writes."""
        parts = [*self.actor_network.children(), *self.critic_network.children()]
        return {part.out_key: part for part in parts if isinstance(part, Memory)}

    def make_value_estimator(
        self, value_type: ValueEstimators | None = None, **hyperparams: Any
    ) -> OnPolicyLoss:
        kind = self.default_value_estimator if value_type is None else value_type
        if kind not in self.estimators:
            return super().make_value_estimator(value_type, **hyperparams)
        self.value_type = kind
        hyperparams = default_value_kwargs(kind) | hyperparams
        self._value_estimator = self.estimators[kind].for_loss(self, **hyperparams)
        self._forward_value_estimator_keys()
        return self

    def _forward_value_estimator_keys(self, **kwargs: Any) -> None:
        super()._forward_value_estimator_keys(**kwargs)
        if self._value_estimator is not None:
            self._value_estimator.set_keys(sample_log_prob=self.tensor_keys.sample_log_prob)

    def _make_calls(self) -> Mapping[str, Any]:
        return {}

    def _bind(self) -> None:
        self._networks_are_ours = (
            self.functional
            and isinstance(self.actor_network, StochasticActor)
            and isinstance(self.critic_network, StateValue)
        )
        for name in ("actor_network", "critic_network") if self._networks_are_ours else ():
            params = getattr(self, f"{name}_params")
            params.to_module(getattr(self, name), preserve_module_state=False)

    def _is_direct(self, tensordict: TensorDictBase) -> bool:
        """True if the short way covers networks, options and rows."""
        keys = self.tensor_keys
        columns = [keys.advantage, keys.value_target, *([keys.value] if self._clips_values else [])]
        return (
            self._networks_are_ours
            and self.reduction == "mean"
            and self.advantage_norm is None
            and self.critic_coeff is not None
            and self._is_usual()
            and not any(key in tensordict for key in self._loss_mask_keys())
            and are_plain(
                tensordict,
                shape=self._row_shape(tensordict),
                constant=keys.action,
                columns=columns,
            )
        )

    def _row_shape(self, tensordict: TensorDictBase) -> torch.Size:
        """Shape of a log-probability."""
        return tensordict.batch_size
