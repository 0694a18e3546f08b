"""What every algorithm configuration is made of."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from types import UnionType
from typing import Any, ClassVar, Literal, Union, get_args, get_origin, get_type_hints

import torch
from tensordict.nn import TensorDictModuleBase
from torchrl.envs import EnvBase
from torchrl.objectives import LossModule
from torchrl.objectives.utils import TargetNetUpdater

from torchrl_elegant.algorithms.ramp import Ramp
from torchrl_elegant.algorithms.schedule import ActorSchedule, EveryUpdate
from torchrl_elegant.modules import ACTIVATIONS


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
    """What an algorithm builds for one environment; a learner is made of it.

    ``ramps`` are set to the run's progress after each batch of frames. ``target_kl``, of losses
    with a ``divergence``, is how far a policy may move before the epochs over its rollout end.
    """

    policy: TensorDictModuleBase
    loss: LossModule
    optimizer: torch.optim.Optimizer
    target_updater: TargetNetUpdater | None = None
    schedule: ActorSchedule = field(default_factory=EveryUpdate)
    ramps: tuple[Ramp, ...] = ()
    target_kl: float | None = None


@dataclass(frozen=True, kw_only=True)
class AlgorithmConfig(ABC):
    """Hyper-parameters of one algorithm, and how they become networks, loss and optimiser."""

    name: ClassVar[str]
    # Every family has these, each with defaults of its own.
    gamma: float
    num_cells: tuple[int, ...]
    activation: str
    max_grad_norm: float | None
    batch_size: int

    def __post_init__(self) -> None:
        check_choices(self)
        check(0.0 <= self.gamma <= 1.0, "gamma", "lie in [0, 1]", self.gamma)
        check(self.batch_size >= 1, "batch_size", "be at least 1", self.batch_size)
        norm = self.max_grad_norm
        check(norm is None or norm > 0, "max_grad_norm", "be positive or none", norm)
        sound = len(self.num_cells) > 0 and min(self.num_cells) > 0
        check(sound, "num_cells", "hold positive sizes", self.num_cells)
        known = self.activation in ACTIVATIONS
        check(known, "activation", f"be one of {', '.join(ACTIVATIONS)}", self.activation)

    @abstractmethod
    def build(self, env: EnvBase) -> Parts:
        """Networks, loss, optimiser and rules that fit ``env``, on its device."""

    @abstractmethod
    def frames_per_batch(self, *, total_frames: int, num_envs: int) -> int:
        """Frames between two rounds of updates where the run does not say: whole steps of all
        environments."""

    @abstractmethod
    def check_budget(self, *, total_frames: int, frames_per_batch: int) -> None:
        """Refuse a run in which nothing would be learnt."""

    @abstractmethod
    def share(self, ranks: int) -> AlgorithmConfig:
        """The part of one of several ranks, so that all together do what one would alone."""


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
