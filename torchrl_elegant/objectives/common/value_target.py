"""What losses share that bootstrap from target networks: TorchRL's contract, and nothing else."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import torch
from tensordict import TensorDictBase
from tensordict.utils import NestedKey
from torch import Tensor
from torchrl.objectives import LossModule
from torchrl.objectives.utils import ValueEstimators, dispatch_value_estimator, distance_loss
from torchrl.objectives.value import TD0Estimator

from torchrl_elegant.functional import bellman_target

if TYPE_CHECKING:
    from typing_extensions import Self


# What estimators read and write; not every loss has a name for all of it.
_ESTIMATED = ("advantage", "value_target", "value", "reward", "done", "terminated")


class BootstrappedLoss(LossModule):
    """Targets, reductions, value estimators and copies, as TorchRL's losses have them.

    A subclass gives ``_next_value`` from target networks, ``_set_in_keys``, and the two methods
    that tie its networks to its parameters: ``_make_caller`` and ``_bind``.
    """

    default_value_estimator = ValueEstimators.TD0
    SUPPORTED_VALUE_ESTIMATORS = (
        ValueEstimators.TD0,
        ValueEstimators.TD1,
        ValueEstimators.TDLambda,
    )

    tensor_keys: Any
    _in_keys: list[NestedKey] | None = None
    _out_keys: list[NestedKey] | None = None
    terms: tuple[str, ...]
    reduction: str
    loss_function: str | None
    deactivate_vmap: bool = False

    @abstractmethod
    def _next_value(self, after: TensorDictBase) -> Tensor:
        """Value of the next state, from target networks."""

    def _stored_values(self, tensordict: TensorDictBase) -> Tensor:
        """Values of the stored actions, ``[N, *B]``, which train all N critics."""
        return self._critic.online(tensordict, tensordict.get(self.tensor_keys.action))

    @abstractmethod
    def _set_in_keys(self) -> None:
        """Write into ``_in_keys`` what the loss reads."""

    @abstractmethod
    def _make_caller(self) -> Any:
        """The object through which the critics are called."""

    @abstractmethod
    def _bind(self) -> None:
        """Make the networks that are called directly hold the loss's own tensors."""

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

    def _distances(self, value: Tensor, target: Tensor) -> Tensor:
        """How far values ``[N, *B]`` are from their target ``[*B]``, ``[N, *B]``."""
        if target.shape != value.shape[1:]:
            raise RuntimeError(
                f"the target must have a critic's shape, got `{tuple(target.shape)}` and "
                f"`{tuple(value.shape[1:])}`; reward and terminated end in a dimension of 1"
            )
        return distance_loss(value, target.expand_as(value), loss_function=self.loss_function)

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
    ) -> Self:
        value_type, hyperparams = self._prepare_value_estimator_kwargs(value_type, **hyperparams)
        if value_type is not None:
            keys = self.tensor_keys
            dispatch_value_estimator(
                self,
                value_type,
                supported=self.SUPPORTED_VALUE_ESTIMATORS,
                tensor_keys={
                    name: getattr(keys, name) for name in _ESTIMATED if hasattr(keys, name)
                },
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

    def __setattr__(self, name: str, value: Any) -> None:
        super().__setattr__(name, value)
        if name.endswith("_network_params") and "_critic" in self.__dict__:
            self._bind()

    def _apply(self, fn: Any, recurse: bool = True) -> Self:
        out = super()._apply(fn)
        self._bind()
        return out

    def _make_vmap(self) -> None:
        self._bind()

    def _connect(self) -> None:
        self.__dict__["_critic"] = self._make_caller()
        self._bind()

    def load_state_dict(self, state_dict: Mapping[str, Any], *args: Any, **kwargs: Any) -> Any:
        if any(name.startswith("_value_estimator.") for name in state_dict):
            _ = self.value_estimator  # a loss that was never called has none yet
        return super().load_state_dict(state_dict, *args, **kwargs)

    def __getstate__(self) -> dict[str, Any]:
        # A copy calls its networks, not this loss's.
        return {name: value for name, value in self.__dict__.items() if name != "_critic"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        self._connect()


def read_keys(*now: NestedKey, after: list[NestedKey]) -> list[NestedKey]:
    """What a loss reads: entries of the present step, then those of the next, each once.

    >>> read_keys("action", "state", after=["reward", "state", "reward"])
    ['action', 'state', ('next', 'reward'), ('next', 'state')]
    """
    nested = [("next", *((key,) if isinstance(key, str) else key)) for key in after]
    return list(dict.fromkeys([*now, *nested]))
