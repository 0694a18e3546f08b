"""Protocols of policies that collectors call on tensors, without a TensorDict."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

from tensordict import NestedKey
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
