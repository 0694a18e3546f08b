"""What losses with an actor and Q(s, a) critics share: TorchRL's contract, and nothing else."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

import torch
from tensordict import TensorDict, TensorDictBase, TensorDictParams
from tensordict.nn import TensorDictModuleBase, dispatch
from tensordict.utils import NestedKey
from torch import Tensor
from torchrl.objectives import LossModule
from torchrl.objectives.utils import ValueEstimators, dispatch_value_estimator
from torchrl.objectives.value import TD0Estimator

from torchrl_elegant.functional import bellman_target
from torchrl_elegant.objectives.keys import ActorCriticKeys
from torchrl_elegant.objectives.networks import bind_networks, critic_caller


class ActorCriticLoss(LossModule):
    """Keys, outputs, reductions, value estimators and copies, as TorchRL's losses have them.

    A subclass writes its equations into ``_qvalue_loss``, ``_actor_loss``, ``_next_value``, and
    puts together in ``actor_terms`` what trains the actor.
    ``forward`` is ``critic_terms`` and ``actor_terms`` together; a learner that leaves the actor
    out of an update calls the first alone. ``terms`` names what they give.
    """

    _AcceptedKeys = ActorCriticKeys
    default_keys = ActorCriticKeys
    tensor_keys: ActorCriticKeys
    default_value_estimator = ValueEstimators.TD0
    SUPPORTED_VALUE_ESTIMATORS = (
        ValueEstimators.TD0,
        ValueEstimators.TD1,
        ValueEstimators.TDLambda,
    )

    actor_network: TensorDictModuleBase
    actor_network_params: TensorDictParams
    target_actor_network_params: TensorDictParams
    qvalue_network: TensorDictModuleBase
    qvalue_network_params: TensorDictParams
    target_qvalue_network_params: TensorDictParams
    _in_keys: list[NestedKey] | None
    _out_keys: list[NestedKey] | None
    terms: tuple[str, ...]
    reduction: str
    scalar_output_mode: str | None
    deactivate_vmap: bool

    @dispatch
    def forward(self, tensordict: TensorDictBase) -> TensorDictBase:
        terms = self.critic_terms(tensordict)
        terms.update(self.actor_terms(tensordict))
        if self.reduction != "none":
            return TensorDict(terms, batch_size=[])
        scalars = {key: terms.pop(key) for key in list(terms) if not key.startswith("loss_")}
        out = TensorDict(terms, batch_size=tensordict.batch_size)
        if self.scalar_output_mode == "non_tensor":
            for key, value in scalars.items():
                out.set_non_tensor(key, value)
        return out

    def critic_terms(self, tensordict: TensorDictBase) -> dict[str, Tensor]:
        """Only what trains the critics; writes the priority into ``tensordict``."""
        loss, metadata = self._qvalue_loss(tensordict)
        tensordict.set(self.tensor_keys.priority, metadata["td_error"])
        return {"loss_qvalue": loss}

    @abstractmethod
    def actor_terms(self, tensordict: TensorDictBase) -> dict[str, Tensor]:
        """Only what trains the actor, and what is learnt beside it."""

    # TorchRL wraps every method called *loss in two context managers, which nothing below needs.

    def qvalue_loss(self, tensordict: TensorDictBase) -> tuple[Tensor, dict[str, Tensor]]:
        """The critics' loss; metadata with ``td_error``, the priority."""
        return self._qvalue_loss(tensordict)

    def actor_loss(self, tensordict: TensorDictBase) -> tuple[Tensor, dict[str, Tensor]]:
        """The actor's loss, which reaches the actor alone."""
        return self._actor_loss(tensordict)

    @abstractmethod
    def _qvalue_loss(self, tensordict: TensorDictBase) -> tuple[Tensor, dict[str, Tensor]]: ...

    @abstractmethod
    def _actor_loss(self, tensordict: TensorDictBase) -> tuple[Tensor, dict[str, Tensor]]: ...

    @abstractmethod
    def _next_value(self, after: TensorDictBase) -> Tensor:
        """Value of the next state, from target networks."""

    @torch.no_grad()
    def _target_value(self, tensordict: TensorDictBase, next_value: Tensor | None = None) -> Tensor:
        if next_value is None:
            next_value = self._next_value(tensordict.get("next"))
        estimator, keys = self.value_estimator, self.tensor_keys
        terminated = tensordict.get(("next", keys.terminated), None)
        plain = type(estimator) is TD0Estimator and not estimator.average_rewards
        if not plain or terminated is None:
            data = tensordict.copy()
            data.set(("next", estimator.tensor_keys.value), next_value.unsqueeze(-1))
            return estimator.value_estimate(data).squeeze(-1)
        reward = tensordict.get(("next", keys.reward))
        gamma = estimator.gamma
        steps = tensordict.get(estimator.tensor_keys.steps_to_next_obs, None)
        if steps is not None:
            gamma = gamma ** steps.view_as(reward).squeeze(-1)
        return bellman_target(reward.squeeze(-1), terminated.squeeze(-1), next_value, gamma)

    def _reduce(self, loss: Tensor, tensordict: TensorDictBase) -> Tensor:
        weights = self._maybe_get_priority_weight(tensordict)
        if self.reduction == "mean" and weights is None and self._loss_mask_key == "auto":
            # Looking for each mask entry in each term costs more than the mean itself.
            names = tensordict.keys()
            if "collector" not in names and "shifted_valid" not in names:
                return loss.mean()
        return self._reduce_loss(loss, tensordict=tensordict, weights=weights)

    def make_value_estimator(
        self, value_type: ValueEstimators | None = None, **hyperparams: Any
    ) -> ActorCriticLoss:
        value_type, hyperparams = self._prepare_value_estimator_kwargs(value_type, **hyperparams)
        if value_type is not None:
            names = ("value", "reward", "done", "terminated")
            dispatch_value_estimator(
                self,
                value_type,
                supported=self.SUPPORTED_VALUE_ESTIMATORS,
                tensor_keys={name: getattr(self.tensor_keys, name) for name in names},
                value_network=None,
                deactivate_vmap=self.deactivate_vmap,
                **hyperparams,
            )
        return self

    @property
    def in_keys(self) -> list[NestedKey]:
        if self._in_keys is None:
            self._set_in_keys()
        return self._in_keys or []

    @in_keys.setter
    def in_keys(self, values: list[NestedKey]) -> None:
        self._in_keys = values

    @property
    def out_keys(self) -> list[NestedKey]:
        return list(self.terms) if self._out_keys is None else self._out_keys

    @out_keys.setter
    def out_keys(self, values: list[NestedKey]) -> None:
        self._out_keys = values

    def _set_in_keys(self) -> None:
        keys = self.tensor_keys
        after = [keys.reward, keys.done, keys.terminated, *self.actor_network.in_keys]
        self._in_keys = list(
            dict.fromkeys(
                [
                    keys.action,
                    *(("next", *((key,) if isinstance(key, str) else key)) for key in after),
                    *self.actor_network.in_keys,
                    *self.qvalue_network.in_keys,
                ]
            )
        )

    def _apply(self, fn: Any, recurse: bool = True) -> ActorCriticLoss:
        out = super()._apply(fn)
        bind_networks(self, self._critic)
        return out

    def _make_vmap(self) -> None:
        bind_networks(self, self._critic)

    def _connect(self) -> None:
        self.__dict__["_critic"] = critic_caller(self)
        bind_networks(self, self._critic)

    def __getstate__(self) -> dict[str, Any]:
        # A copy calls its networks, not this loss's.
        return {name: value for name, value in self.__dict__.items() if name != "_critic"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        self._connect()
