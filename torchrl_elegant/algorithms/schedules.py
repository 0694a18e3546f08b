"""Schedules: when the actor learns, and numbers that move over a run."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor

from torchrl_elegant.algorithms.adam import LeanAdam
from torchrl_elegant.config.rates import COURSES, Rate, ends_of, first_of, shape_of
from torchrl_elegant.functional import actor_ratio, critic_trust


class ActorSchedule(Protocol):
    """Schedule that is asked before each update, and told its terms afterwards."""

    @property
    def reads(self) -> tuple[str, ...]:
        """Names of the terms that it decides by; ranks average these."""

    def due(self) -> bool:
        """True if the coming update includes the actor."""

    def observe(self, terms: Mapping[str, Tensor]) -> None:
        """Take note of the terms of the update just made."""

    def state_dict(self) -> dict[str, Any]: ...

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None: ...


class EveryUpdate:
    """The actor learns at every ``period``-th update of its critics.

    >>> schedule = EveryUpdate(period=2)
    >>> [(schedule.due(), schedule.observe({}))[0] for _ in range(4)]
    [False, True, False, True]
    """

    reads: tuple[str, ...] = ()

    def __init__(self, *, period: int = 1) -> None:
        if period < 1:
            raise ValueError(f"`period` must be at least 1, got `{period}`")
        self.period = period
        self.updates = 0

    def due(self) -> bool:
        return (self.updates + 1) % self.period == 0

    def observe(self, terms: Mapping[str, Tensor]) -> None:
        self.updates += 1

    def state_dict(self) -> dict[str, Any]:
        return {"updates": self.updates}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        self.updates = state_dict["updates"]


class CriticTrust:
    """ModSAC's rule: the better the critics, the more often the actor follows them.

    After each update ``c <- decay c + (1 - decay) critic_error``; the actor is updated while
    ``actor_updates / critic_updates < 1 / (2 - exp(-c^2))``, where the coming update of the critic
    counts already. So the actor joins every second update of a useless critic and every update of a
    perfect one. ``c`` starts at one. The counters start again every ``window`` updates; ElegantRL
    did so at each round of updates, which for rounds of a single update would let the actor always
    pass.

    ``c`` stays on the device of the losses and is read back once in ``refresh`` updates, so that
    the rule does not make a GPU wait for its host at every step.

    >>> schedule = CriticTrust(window=100)
    >>> schedule.due()
    True
    """

    reads: tuple[str, ...] = ("critic_error",)

    def __init__(self, *, decay: float = 0.995, window: int = 1000, refresh: int = 16) -> None:
        if not 0.0 <= decay < 1.0:
            raise ValueError(f"`decay` must lie in [0, 1), got `{decay}`")
        for name, value in (("window", window), ("refresh", refresh)):
            if value < 1:
                raise ValueError(f"`{name}` must be at least 1, got `{value}`")
        self.decay, self.window, self.refresh = decay, window, refresh
        self.running_error = torch.ones(())
        self.critic_updates = self.actor_updates = 0
        self.ratio = actor_ratio(critic_trust(1.0))

    def due(self) -> bool:
        return self.actor_updates < self.ratio * (self.critic_updates + 1)

    def observe(self, terms: Mapping[str, Tensor]) -> None:
        if "critic_error" not in terms:
            raise KeyError(
                f"CriticTrust needs `critic_error` among the loss's terms, got `{sorted(terms)}`; "
                "use ModSACLoss"
            )
        self.critic_updates += 1
        self.actor_updates += "loss_actor" in terms
        error = terms["critic_error"].detach()
        self.running_error = self.running_error.to(error).lerp(error, 1.0 - self.decay)
        # A run that goes on may have been given a smaller window than it has counted.
        last = self.critic_updates >= self.window
        if last or self.critic_updates % self.refresh == 0:
            self.ratio = actor_ratio(critic_trust(self.running_error.item()))
        if last:
            self.critic_updates = self.actor_updates = 0

    def state_dict(self) -> dict[str, Any]:
        return {
            "running_error": self.running_error,
            "critic_updates": self.critic_updates,
            "actor_updates": self.actor_updates,
            "ratio": self.ratio,
        }

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        for name, value in state_dict.items():
            setattr(self, name, value)


@dataclass(frozen=True, kw_only=True)
class Ramp:
    """A rate that goes from its first to its last value and then stays.

    Args:
        rate: a number, or first and last value, and a shape unless it goes evenly.
        until: the part of the run after which it has arrived.
        apply: what takes the number.

    >>> seen = []
    >>> ramp = Ramp(rate=(1.0, 0.0), until=0.5, apply=seen.append)
    >>> for progress in (0.0, 0.25, 0.75):
    ...     ramp.at(progress)
    >>> seen
    [1.0, 0.5, 0.0]
    """

    rate: Rate
    until: float = 1.0
    apply: Callable[[float], None]

    def __post_init__(self) -> None:
        if not 0.0 < self.until <= 1.0:
            raise ValueError(f"`until` must lie in (0, 1], got `{self.until}`")

    def at(self, progress: float) -> None:
        """Set the number for a run of which the part ``progress`` is done; 1 is its end."""
        done = min(1.0, progress / self.until)
        self.apply(COURSES[shape_of(self.rate)](*ends_of(self.rate), done))


def ramp_to(rate: Rate, apply: Callable[[float], None]) -> tuple[Ramp, ...]:
    """The ramp of a rate; none for one that stays.

    >>> ramp_to(1.0, float), len(ramp_to((1.0, 0.0), float))
    ((), 1)
    """
    first, last = ends_of(rate)
    return () if first == last else (Ramp(rate=rate, apply=apply),)


def ramp_lr(optimizer: torch.optim.Optimizer, *rates: Rate) -> tuple[Ramp, ...]:
    """Ramps of the learning rates of an optimizer's parameter groups, those that move.

    >>> optimizer = torch.optim.SGD([torch.nn.Parameter(torch.ones(1))], lr=0.5)
    >>> for ramp in ramp_lr(optimizer, (0.5, 0.1)):
    ...     ramp.at(0.5)
    >>> round(optimizer.param_groups[0]["lr"], 6)
    0.3
    """
    each = zip(rates, range(len(optimizer.param_groups)), strict=True)
    return tuple(
        ramp for rate, index in each for ramp in ramp_to(rate, LearningRate(optimizer, index))
    )


def build_adam(
    groups: Sequence[tuple[list[Tensor], Rate]],
) -> tuple[LeanAdam, tuple[Ramp, ...]]:
    """Adam over groups of parameters, each with its learning rate; and the ramps of the rates.

    >>> optimizer, ramps = build_adam([([torch.nn.Parameter(torch.ones(1))], (0.5, 0.1))])
    >>> optimizer.param_groups[0]["lr"], len(ramps)
    (0.5, 1)
    """
    optimizer = LeanAdam([{"params": params, "lr": first_of(rate)} for params, rate in groups])
    return optimizer, ramp_lr(optimizer, *(rate for _, rate in groups))


class KLRate:
    """Learning rate that keeps a policy's divergence near a target: the rule of rsl_rl.

    After an epoch whose policy diverges by more than twice ``target`` from the one that collected,
    the rate is divided by 1.5; after one that diverges by less than half of it, multiplied. It
    stays in [1e-5, 1e-2] (Rudin et al. 2021, arXiv:2109.11978). The rate is a tensor on the device
    of the parameters, and nothing waits for it.

    Args:
        optimizer: whose parameter groups all learn at this rate from now on.
        target: divergence to aim at.

    >>> optimizer = torch.optim.Adam([torch.nn.Parameter(torch.ones(1))], lr=3e-4, fused=True)
    >>> rate = KLRate(optimizer, target=0.01)
    >>> rate.follow(torch.tensor(0.03))
    >>> round(optimizer.param_groups[0]["lr"].item(), 6)
    0.0002
    """

    factor, low, high = 1.5, 1e-5, 1e-2

    def __init__(self, optimizer: torch.optim.Optimizer, *, target: float) -> None:
        self.optimizer, self.target = optimizer, target
        first = optimizer.param_groups[0]
        self.lr = torch.tensor(float(first["lr"]), device=first["params"][0].device)
        self._set()

    def follow(self, divergence: Tensor) -> None:
        """Take note of how far an epoch has taken the policy."""
        lower = (self.lr / self.factor).clamp(min=self.low)
        higher = (self.lr * self.factor).clamp(max=self.high)
        near = (divergence > 0.0) & (divergence < self.target / 2.0)
        kept = torch.where(near, higher, self.lr)
        self.lr.copy_(torch.where(divergence > self.target * 2.0, lower, kept))

    def state_dict(self) -> dict[str, Any]:
        return {"lr": self.lr}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        self.lr.copy_(state_dict["lr"])
        self._set()

    def _set(self) -> None:
        for group in self.optimizer.param_groups:
            group["lr"] = self.lr


@dataclass(frozen=True)
class LearningRate:
    """Sets the learning rate of a parameter group."""

    optimizer: torch.optim.Optimizer
    group: int

    def __call__(self, lr: float) -> None:
        # Looked up at each call: a loaded state puts new groups in the place of the old.
        self.optimizer.param_groups[self.group]["lr"] = lr
