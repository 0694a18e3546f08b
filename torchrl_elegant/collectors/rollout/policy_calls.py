"""Direct calls of a policy on tensors, and memory for its outputs.

This file and `simulators.py` are the border to the objects of TorchRL and Gymnasium: here a
policy, which may be anybody's, is asked for its methods.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from tensordict import NestedKey
from tensordict.nn import TensorDictModuleBase
from torch import Tensor
from torchrl.data import Composite
from torchrl.modules import RandomPolicy

from torchrl_elegant.collectors.rollout.layout import Layout
from torchrl_elegant.modules import ActsOnTensors, RestartsRows


class RolloutPlan(Protocol):
    """Policy for the steps of one rollout, such as `ActorRollout`."""

    def act(self, t: int, *observation: Tensor) -> Tensor:
        """Actions of step `t`, with a leading dimension over the environments."""

    def outputs(self) -> tuple[Tensor, ...]:
        """Outputs of the policy's `act` for all steps, time first."""


@dataclass(frozen=True, kw_only=True)
class DirectCall:
    """Functions of a policy: `act(*reads)` returns the value of `writes`, a tuple for several.

    `plan(frames=..., count=...)`, if there is one, returns the policy of one whole rollout, or
    None if it must act step by step. `restart(rows)`, if the policy carries something from step
    to step, is told after each step which environments start anew. `carries` tells whether it
    writes that beside its actions.
    """

    reads: Sequence[NestedKey]
    writes: Sequence[NestedKey]
    act: Callable[..., Tensor | tuple[Tensor, ...]]
    plan: Callable[..., RolloutPlan | None] | None = None
    restart: Callable[[Tensor], None] | None = None
    carries: bool = False


def direct_call(
    policy: Any,
    observations: Collection[NestedKey],
    actions: Collection[NestedKey] = ("action",),
) -> DirectCall | None:
    """Direct call of `policy`, or None if calling its method `act` is not all that it does.

    It is all for a TensorDict module that reads nothing but `observations`, writes all `actions`,
    and does not override `forward` below the class that has `act`.

    >>> class Still(TensorDictModuleBase):
    ...     in_keys, out_keys = ["observation"], ["action"]
    ...
    ...     def act(self, observation):
    ...         return observation[..., :1] * 0
    >>> direct_call(Still(), ["observation"]).writes, direct_call(Still(), ["pixels"])
    (['action'], None)
    """
    if type(policy) is RandomPolicy:
        return _random_call(policy)
    keys = declared_keys(policy)
    if keys is None or not isinstance(policy, ActsOnTensors):
        return None
    act, (reads, writes) = policy.act, keys
    if not (set(actions) <= set(writes) and set(reads) <= set(observations)):
        return None
    if not _takes(act, len(reads)):
        return None
    for kind in type(policy).__mro__:
        if "act" in vars(kind):
            break
        if "forward" in vars(kind):
            return None
    restart = policy.restart if isinstance(policy, RestartsRows) else None
    plan = _plan_of(policy)
    carries = restart is not None and bool(set(writes) - set(actions))
    return DirectCall(
        reads=reads, writes=writes, act=act, plan=plan, restart=restart, carries=carries
    )


def declared_keys(policy: Any) -> tuple[list[NestedKey], list[NestedKey]] | None:
    """Keys that `policy` says it reads and writes; None if it says nothing.

    >>> declared_keys(lambda tensordict: tensordict) is None
    True
    """
    if not isinstance(policy, TensorDictModuleBase):
        return None
    try:
        return [*policy.in_keys], [*policy.out_keys]
    except (AttributeError, NotImplementedError):
        # TorchRL asks no policy for its keys.
        return None


def _plan_of(policy: TensorDictModuleBase) -> Callable[..., RolloutPlan | None] | None:
    """Its method `rollout`, unless a class below has changed what the policy does at a step."""
    for kind in type(policy).__mro__:
        if "rollout" in vars(kind):
            return policy.rollout
        if {"act", "head", "forward"} & vars(kind).keys():
            return None
    return None


def _random_call(policy: RandomPolicy) -> DirectCall | None:
    spec = policy.action_spec
    if not isinstance(spec, Composite) or [*spec.keys(True, True)] != ["action"]:
        return None
    return DirectCall(reads=[], writes=["action"], act=spec["action"].rand)


def _takes(act: Callable[..., Any], count: int) -> bool:
    try:
        inspect.signature(act).bind(*range(count))
    except TypeError:
        return False
    return True


class PolicyOutputs:
    """Memory for the policy's entries of one rollout, one row per step.

    Args:
        frames: steps of a rollout.
        keys: in the order in which `write` gets their values; one is `"action"`.
        action: an action of all environments, for its shape and dtype.
        known: examples of other entries; a batch then has them even if the policy was not called.

    >>> outputs = PolicyOutputs(
    ...     frames=2, keys=["action", "value"], action=torch.zeros(1, 3), known={}
    ... )
    >>> outputs.begin()
    >>> for t in range(2):
    ...     _ = outputs.write(t, (torch.full((1, 3), float(t)), torch.ones(1)))
    >>> entries = outputs.entries(Layout(batch_dims=1))
    >>> entries["action",][..., 0].tolist(), entries["value",].shape
    ([[0.0, 1.0]], torch.Size([1, 2]))
    """

    def __init__(
        self, *, frames: int, keys: Sequence[str], action: Tensor, known: dict[str, Tensor]
    ) -> None:
        self.keys, self._frames, self._known = [*keys], frames, known
        self._rows: list[list[Tensor]] = []
        self._tables: dict[str, Tensor] = {}
        self._action = self._table("action", action)
        for key, example in known.items():
            self._table(key, example)
        self._called = False

    def _table(self, key: str, example: Tensor) -> list[Tensor]:
        if key not in self._tables:
            self._tables[key] = torch.zeros(self._frames, *example.shape, dtype=example.dtype)
        return list(self._tables[key].unbind(0))

    def begin(self) -> None:
        """Forgets whether the policy was called."""
        self._called = False

    def write_action(self, t: int, action: Tensor) -> Tensor:
        """Writes the action of step `t` alone, and returns it."""
        self._action[t].copy_(action)
        return action

    def write(self, t: int, values: Sequence[Tensor]) -> Tensor:
        """Writes the policy's outputs of step `t`, and returns the action."""
        self._called = True
        if not self._rows:
            if isinstance(values, Tensor):
                raise TypeError(
                    f"`act` must return a tuple, one tensor for each of {self.keys}, got `Tensor`"
                )
            examples = zip(self.keys, values, strict=True)
            self._rows = [self._table(key, value) for key, value in examples]
            self._position = self.keys.index("action")
        for rows, value in zip(self._rows, values, strict=True):
            rows[t].copy_(value)
        return values[self._position]

    def entries(self, layout: Layout) -> dict[tuple[str, ...], Tensor]:
        """The action, with the other outputs if the policy was called or they are known."""
        written = self._tables if self._called else {"action", *self._known}
        return {(key,): layout.turned(self._tables[key]) for key in self._tables if key in written}
