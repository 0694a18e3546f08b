"""Protocols of policies that collectors call on tensors, without a TensorDict."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

from tensordict import NestedKey, TensorDictBase
from tensordict.nn import TensorDictModuleBase
from torch import Tensor


@runtime_checkable
class ActsOnTensors(Protocol):
    """Has a method `act` that does all that calling the policy does.

    >>> from torchrl_elegant.modules import DeterministicActor
    >>> actor = DeterministicActor(observation={"observation": (3,)}, low=[-1.0], high=[1.0])
    >>> isinstance(actor, ActsOnTensors), isinstance(actor, RestartsRows)
    (True, False)
    """

    in_keys: list[NestedKey]
    out_keys: list[NestedKey]

    def act(self, *observation: Tensor) -> Tensor | tuple[Tensor, ...]:
        """Values of the policy's ``out_keys`` at observations in the order of its ``in_keys``."""


@runtime_checkable
class RestartsRows(Protocol):
    """Carries something from step to step, and forgets it where an episode ends."""

    def restart(self, rows: Tensor) -> None:
        """Start anew in the ``rows`` ``[*B]`` that are True."""


@runtime_checkable
class Remembers(Protocol):
    """May carry states from step to step that decide its actions."""

    def afresh(self) -> TensorDictModuleBase:
        """The same policy with a state of its own, for somebody else's episodes."""


def rows_that_begin(tensordict: TensorDictBase) -> Tensor | None:
    """Rows ``[*B]`` at the first step of an episode, by TorchRL's counters; None without one.

    TorchRL's rollouts do not tell a policy where an episode begins.

    >>> import torch
    >>> from tensordict import TensorDict
    >>> rows_that_begin(TensorDict({"step_count": torch.tensor([[0], [3]])}, [2])).tolist()
    [True, False]
    """
    first = tensordict.get("is_init", None)
    if first is None and (count := tensordict.get("step_count", None)) is not None:
        first = count == 0
    return None if first is None else first.squeeze(-1)


def own_state(policy: TensorDictModuleBase) -> TensorDictModuleBase:
    """``policy`` with a state of its own, where it has one; else the policy itself."""
    return policy.afresh() if isinstance(policy, Remembers) else policy
