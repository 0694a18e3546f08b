"""Policies that a rollout may call on tensors, without a TensorDict."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from tensordict import NestedKey
from tensordict.nn import TensorDictModuleBase
from torch import Tensor
from torchrl.data import Composite
from torchrl.modules import RandomPolicy


class RolloutPlan(Protocol):
    """The policy over the steps of one rollout; `ActorRollout` is one."""

    def act(self, t: int, *observation: Tensor) -> Tensor:
        """The actions of step `t`, with a leading dimension over the environments."""

    def outputs(self) -> tuple[Tensor, ...]:
        """All steps of what `act` of the policy gives, time first."""


@dataclass(frozen=True, kw_only=True)
class DirectCall:
    """`act(*reads)` gives the value of `writes`, or a tuple where there are several.

    Where `plan` is given, `plan(frames=..., count=...)` is the policy of one whole rollout, or None
    if this one has to be acted step by step. `restart(rows)` is told after each step which
    environments start anew, where the policy carries something from step to step.
    """

    reads: Sequence[NestedKey]
    writes: Sequence[str]
    act: Callable[..., Tensor | tuple[Tensor, ...]]
    plan: Callable[..., RolloutPlan | None] | None = None
    restart: Callable[[Tensor], None] | None = None


def direct_call(policy: Any, observations: Collection[NestedKey]) -> DirectCall | None:
    """How to call `policy` on tensors, if its method `act` says all that calling it says.

    That is so for a TensorDict module that reads nothing but `observations`, writes the action
    and plain keys beside it, and does not override `forward` below the class that has `act`.

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
    act = getattr(policy, "act", None)
    if not isinstance(policy, TensorDictModuleBase) or not callable(act):
        return None
    reads, writes = [*policy.in_keys], [*policy.out_keys]
    if "action" not in writes or not all(isinstance(key, str) for key in writes):
        return None
    if not set(reads) <= set(observations) or not _takes(act, len(reads)):
        return None
    for kind in type(policy).__mro__:
        if "act" in vars(kind):
            break
        if "forward" in vars(kind):
            return None
    restart = getattr(policy, "restart", None)
    return DirectCall(reads=reads, writes=writes, act=act, plan=_plan_of(policy), restart=restart)


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
