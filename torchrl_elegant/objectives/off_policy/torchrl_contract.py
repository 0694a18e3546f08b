"""TorchRL's contract of off-policy losses: keys, value estimators, networks; no equation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch
from tensordict import TensorDictBase
from tensordict.nn import TensorDictModuleBase
from tensordict.utils import NestedKey
from torch import Tensor
from torchrl.objectives.utils import ValueEstimators, dispatch_value_estimator

from torchrl_elegant.functional import path_of
from torchrl_elegant.modules import DistributionalCritic
from torchrl_elegant.objectives.common.bound_networks import BoundNetworks

if TYPE_CHECKING:
    from typing_extensions import Self

# Entries of estimators; not every loss has a name for all of them.
_ESTIMATED = ("advantage", "value_target", "value", "reward", "done", "terminated")


class TorchRLContract(BoundNetworks):
    """Part of an off-policy loss that answers TorchRL and that no equation needs.

    Stands before ``LossModule``.
    """

    default_value_estimator = ValueEstimators.TD0
    SUPPORTED_VALUE_ESTIMATORS = (
        ValueEstimators.TD0,
        ValueEstimators.TD1,
        ValueEstimators.TDLambda,
    )

    tensor_keys: Any
    critic_name = "qvalue_network"
    terms: tuple[str, ...]  # names of all that an update gives
    _is_distributional: bool = False
    _in_keys: list[NestedKey] | None = None
    _out_keys: list[NestedKey] | None = None

    def make_value_estimator(
        self, value_type: ValueEstimators | None = None, **hyperparams: Any
    ) -> Self:
        value_type, hyperparams = self._prepare_value_estimator_kwargs(value_type, **hyperparams)
        if self._is_distributional and value_type not in (None, ValueEstimators.TD0):
            raise ValueError(
                f"`value_type` must be TD0 over a DistributionalCritic, got `{value_type}`; for "
                "longer returns fold the rows by MultiStepFold"
            )
        if self._is_distributional and hyperparams.get("average_rewards"):
            raise ValueError(
                "`average_rewards` must be False over a DistributionalCritic, got `True`; its "
                "atoms are returns, not differences from an average"
            )
        if value_type is not None:
            known = vars(self.tensor_keys) | {"value": self.tensor_keys.value}
            dispatch_value_estimator(
                self,
                value_type,
                supported=self.SUPPORTED_VALUE_ESTIMATORS,
                tensor_keys={name: known[name] for name in _ESTIMATED if name in known},
                value_network=None,
                deactivate_vmap=self.deactivate_vmap,
                **hyperparams,
            )
        return self

    def _convert(
        self,
        actor: TensorDictModuleBase,
        critic: TensorDictModuleBase | list[TensorDictModuleBase],
        *,
        copies: int | None,
        delay_critic: bool,
        separate_losses: bool,
    ) -> None:
        """Register both networks as TorchRL does, the critic with ``copies`` of it, or as it is."""
        delay_actor, name = self.delay_actor, self.critic_name
        self._is_distributional = isinstance(critic, DistributionalCritic)
        self.convert_to_functional(actor, "actor_network", create_target_params=delay_actor)
        apart = list(actor.parameters()) if separate_losses else None
        self.convert_to_functional(
            critic, name, copies, create_target_params=delay_critic, compare_against=apart
        )

    def load_state_dict(self, state_dict: Mapping[str, Any], *args: Any, **kwargs: Any) -> Any:
        if any(name.startswith("_value_estimator.") for name in state_dict):
            _ = self.value_estimator  # a loss that was never called has none yet
        return super().load_state_dict(state_dict, *args, **kwargs)

    def _set_in_keys(self) -> None:  # TorchRL calls it when keys change
        keys, inputs = self.tensor_keys, self.actor_network.in_keys
        judged = getattr(self, self.critic_name).in_keys
        later = [key for key in judged if key != keys.action]  # the next action is the actor's
        self._in_keys = read_keys([keys.action, *inputs, *judged], keys, [*inputs, *later])

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


def read_keys(now: Sequence[NestedKey], keys: Any, after: Sequence[NestedKey]) -> list[NestedKey]:
    """Keys of the present step, then those of the next with its reward and flags, each once.

    >>> from torchrl_elegant.objectives.common.keys import StepKeys
    >>> read_keys(["action", "state"], StepKeys(), ["state"])[2:]
    [('next', 'reward'), ('next', 'done'), ('next', 'terminated'), ('next', 'state')]
    """
    later = [keys.reward, keys.done, keys.terminated, *after]
    nested = [("next", *path_of(key)) for key in later]
    return list(dict.fromkeys([*now, *nested]))


def has_value(after: TensorDictBase, keys: Any, read: list[Any]) -> Tensor:
    """Mask of next states that have a value, ``[*B]``.

    Terminated states have none. States in which an episode was cut short have one if all entries
    ``read`` are finite, that is, were observed.

    >>> from types import SimpleNamespace
    >>> from tensordict import TensorDict
    >>> done, terminated = torch.tensor([[[0], [1], [1], [1]], [[0], [0], [0], [1]]]).bool()
    >>> seen = torch.tensor([[0.0], [0.0], [torch.nan], [0.0]])
    >>> after = TensorDict({"x": seen, "done": done, "terminated": terminated}, [4])
    >>> has_value(after, SimpleNamespace(done="done", terminated="terminated"), ["x"]).tolist()
    [True, True, False, False]
    """
    gone = after.get(keys.terminated, after.get(keys.done)).squeeze(-1)
    ended = after.get(keys.done, gone.unsqueeze(-1)).squeeze(-1)
    seen = [after.get(key).isfinite().reshape(*after.shape, -1).all(-1) for key in read]
    return ~(gone | (ended & ~torch.stack(seen).all(0)))
