"""What every algorithm configuration is made of."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from types import UnionType
from typing import Any, ClassVar, Literal, Union, get_args, get_origin, get_type_hints

import torch
from tensordict.nn import TensorDictModuleBase
from torchrl.envs import EnvBase
from torchrl.objectives import LossModule
from torchrl.objectives.utils import TargetNetUpdater

from torchrl_elegant.algorithms.schedule import ActorSchedule


def option(default: Any, help: str) -> Any:
    """Declare a configuration field with its default and the line that `--help` shows.

    >>> from dataclasses import dataclass, fields
    >>> @dataclass(frozen=True, kw_only=True)
    ... class Config:
    ...     gamma: float = option(0.99, "discount factor")
    >>> fields(Config)[0].metadata["help"]
    'discount factor'
    """
    return field(default=default, metadata={"help": help})


@dataclass(kw_only=True)
class Parts:
    """What an algorithm builds for one environment; a learner is made of it."""

    policy: TensorDictModuleBase
    loss: LossModule
    optimizer: torch.optim.Optimizer
    target_updater: TargetNetUpdater
    schedule: ActorSchedule


@dataclass(frozen=True, kw_only=True)
class AlgorithmConfig(ABC):
    """Hyper-parameters of one algorithm, and how they become networks, loss and optimiser."""

    name: ClassVar[str]

    @abstractmethod
    def build(self, env: EnvBase) -> Parts:
        """Networks, loss, optimiser and rules that fit ``env``, on its device."""


@dataclass(frozen=True, kw_only=True)
class OffPolicyConfig(AlgorithmConfig):
    """What all algorithms share that learn from a replay buffer."""

    gamma: float = option(0.99, "discount factor")
    tau: float = option(0.005, "how far the target networks move at each update")
    batch_size: int = option(256, "transitions per update")
    buffer_size: int = option(1_000_000, "transitions the replay buffer holds")
    warmup: int = option(1_000, "frames of random actions before learning starts")
    updates_per_frame: float = option(1.0, "updates of the critics per collected frame")
    num_cells: tuple[int, ...] = option((256, 256), "sizes of the hidden layers of all networks")
    activation: str = option("relu", "activation of the hidden layers: relu, tanh, silu, elu, ...")
    max_grad_norm: float | None = option(None, "largest norm of the gradient; none: no clipping")

    def __post_init__(self) -> None:
        check_choices(self)
        check(0.0 <= self.gamma <= 1.0, "gamma", "lie in [0, 1]", self.gamma)
        check(0.0 < self.tau <= 1.0, "tau", "lie in (0, 1]", self.tau)
        for name in ("batch_size", "buffer_size"):
            check(getattr(self, name) >= 1, name, "be at least 1", getattr(self, name))
        check(self.warmup >= 0, "warmup", "be 0 or more", self.warmup)
        rate = self.updates_per_frame
        check(0 < rate < math.inf, "updates_per_frame", "be positive and finite", rate)
        check(
            self.batch_size <= self.buffer_size,
            "batch_size",
            f"be at most buffer_size ({self.buffer_size})",
            self.batch_size,
        )
        norm = self.max_grad_norm
        check(norm is None or norm > 0, "max_grad_norm", "be positive or none", norm)
        check(
            len(self.num_cells) > 0 and min(self.num_cells) > 0,
            "num_cells",
            "hold positive sizes",
            self.num_cells,
        )


def check(condition: bool, name: str, must: str, value: Any, way_out: str = "") -> None:
    """Raise the error that every configuration raises: name, rule, value and the way out.

    >>> check(0.5 > 0, "tau", "be positive", 0.5)
    """
    if not condition:
        raise ValueError(f"`{name}` must {must}, got `{value}`" + (way_out and f"; {way_out}"))


def check_choices(config: Any) -> None:
    """Refuse values that a field's ``Literal`` does not list, wherever they come from."""
    for name, hint in get_type_hints(type(config)).items():
        choices, value = _choices(hint), getattr(config, name, None)
        check(not choices or value in choices, name, f"be one of {_listed(choices)}", value)


def check_unused(config: Any, *names: str, mode: str, other: str) -> None:
    """Refuse fields that were set although the chosen ``mode`` does not use them."""
    for name in names:
        default, value = type(config).__dataclass_fields__[name].default, getattr(config, name)
        way_out = f"set {other} to use it, or {name}={default}"
        check(value == default, name, f"stay {default} with {mode}", value, way_out)


def _choices(hint: Any) -> tuple[Any, ...]:
    if get_origin(hint) is Literal:
        return get_args(hint)
    if get_origin(hint) in (Union, UnionType):
        members = [(None,) if one is type(None) else _choices(one) for one in get_args(hint)]
        return tuple(choice for some in members for choice in some) if all(members) else ()
    return ()


def _listed(choices: tuple[Any, ...]) -> str:
    return ", ".join(str(choice) for choice in choices)
