"""The H-term as a group of options that every algorithm with an actor takes."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal

import torch
from tensordict import TensorDictBase
from torchrl.objectives import LossModule

from torchrl_elegant.algorithms.checks import check, check_choices, option
from torchrl_elegant.objectives import HamiltonianTerm


@dataclass(frozen=True, kw_only=True)
class HTermConfig:
    """What the Hamiltonian term beside an algorithm's loss is made of.

    >>> HTermConfig(horizon=4).horizon
    4
    """

    horizon: int = option(16, "steps of a slice, K")
    weight: float = option(0.125, "weight of the term beside the loss")
    form: Literal["ratio", "log", "prob"] = option(
        "ratio", "how slices weigh: clipped ratio of policies, log-probability, probability"
    )
    clip_epsilon: float = option(0.2, "how far the ratio of policies over a slice is followed")
    gamma: float | None = option(None, "discount factor in a slice; none: the algorithm's")
    baseline: Literal["mean", "none"] = option(
        "mean", "what rewards are compared with: their running mean, or nothing"
    )
    slices: int = option(16, "slices of each term, L")
    period: int = option(8, "updates of the actor per term")
    capacity: int = option(256, "best slices that are kept")
    max_age: int = option(8_192, "frames after which a slice is dropped")
    sigma: float = option(0.1, "spread that a deterministic actor is given, of half its range")

    def __post_init__(self) -> None:
        check_choices(self)
        for name in ("horizon", "slices", "period", "capacity", "max_age"):
            check(getattr(self, name) >= 1, name, "be at least 1", getattr(self, name))
        weight, gamma = self.weight, self.gamma
        check(0.0 <= weight < math.inf, "weight", "be 0 or more and finite", weight)
        clip = self.clip_epsilon
        check(0.0 < clip < 1.0, "clip_epsilon", "lie in (0, 1)", clip)
        check(gamma is None or 0.0 <= gamma <= 1.0, "gamma", "lie in [0, 1], or be none", gamma)
        check(0.0 < self.sigma < math.inf, "sigma", "be positive and finite", self.sigma)

    def share(self, ranks: int) -> HTermConfig:
        """The part of one of several ranks, each of which has a store of its own.

        >>> HTermConfig(slices=16, capacity=255, max_age=100).share(2)  # doctest: +ELLIPSIS
        HTermConfig(...slices=8, period=8, capacity=128, max_age=50, ...)
        """
        names = ("slices", "capacity", "max_age")
        return replace(self, **{name: -(-getattr(self, name) // ranks) for name in names})

    def build(
        self,
        loss: LossModule,
        *,
        gamma: float,
        prepare: Callable[[TensorDictBase], TensorDictBase] | None,
    ) -> HamiltonianTerm:
        """The term over the actor of ``loss``; ``gamma`` is the algorithm's."""
        return HamiltonianTerm.for_loss(
            loss,
            horizon=self.horizon,
            capacity=self.capacity,
            max_age=self.max_age,
            gamma=gamma if self.gamma is None else self.gamma,
            # Differs from run to run, and leaves PyTorch's own numbers as they are.
            seed=torch.initial_seed(),
            slices=self.slices,
            period=self.period,
            prepare=prepare,
            weight=self.weight,
            form=self.form,
            clip_epsilon=self.clip_epsilon,
            baseline=self.baseline,
            sigma=self.sigma,
        )
