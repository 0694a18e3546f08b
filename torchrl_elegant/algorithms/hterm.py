"""The H-term as a group of options that every algorithm with an actor takes."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from tensordict import TensorDictBase
from torchrl.objectives import LossModule

from torchrl_elegant.config.options import check, check_fields, check_unused, option
from torchrl_elegant.functional import Form
from torchrl_elegant.objectives import HamiltonianTerm
from torchrl_elegant.objectives.hamiltonian.loss import Baseline

# Beyond it frames cannot be counted.
_MOST = 2**31


@dataclass(frozen=True, kw_only=True)
class HTermConfig:
    """What the Hamiltonian term beside an algorithm's loss is made of.

    >>> HTermConfig(horizon=4).horizon
    4
    """

    horizon: int = option(16, "steps of a slice, K")
    weight: float = option(0.125, "weight of the term beside the loss, which bound limits")
    form: Form = option(
        "imitate",
        "how slices weigh: by the clipped ratio of policies, by log-probability, by probability, "
        "or by log-probability of what went well alone",
    )
    clip_epsilon: float = option(0.2, "how far the ratio of policies over a slice is followed")
    gamma: float | None = option(None, "discount factor in a slice; none: the algorithm's")
    baseline: Baseline | None = option(
        None,
        "what rewards are compared with: their running mean, what a state value expected, a zero; "
        "none: value on-policy, mean with a replay buffer",
    )
    slices: int = option(16, "slices of each term, L")
    period: int = option(8, "updates of the actor per term")
    bound: float | None = option(
        1.0, "largest norm of the term's gradient, in norms of the actor's own; none: any"
    )
    max_age: int = option(2_048, "frames after which a slice is dropped")
    best: float = option(0.25, "part of the slices that terms are drawn from, the best of them")
    capacity: int | None = option(None, "slices kept at most, the best; none: all that are young")
    sigma: float = option(0.1, "spread that a deterministic actor is given, of half its range")

    def __post_init__(self) -> None:
        check_fields(self)
        for name in ("horizon", "slices", "period", "max_age"):
            value = getattr(self, name)
            check(value >= 1, name, "be at least 1", value)
            check(value < _MOST, name, f"be below {_MOST}", value)
        most, best, bound = self.capacity, self.best, self.bound
        check(most is None or most >= 1, "capacity", "be at least 1, or none", most)
        check(0.0 < best <= 1.0, "best", "lie in (0, 1]", best)
        sound = bound is None or 0.0 < bound < math.inf
        check(sound, "bound", "be positive and finite, or none", bound)
        weight, gamma = self.weight, self.gamma
        check(0.0 <= weight < math.inf, "weight", "be 0 or more and finite", weight)
        clip = self.clip_epsilon
        check(0.0 < clip < 1.0, "clip_epsilon", "lie in (0, 1)", clip)
        if self.form != "ratio":
            check_unused(self, "clip_epsilon", mode=f"form={self.form}", other="form=ratio")
        check(gamma is None or 0.0 <= gamma <= 1.0, "gamma", "lie in [0, 1], or be none", gamma)
        check(0.0 < self.sigma < math.inf, "sigma", "be positive and finite", self.sigma)

    def share(self, ranks: int) -> HTermConfig:
        """The part of one of several ranks, each of which has a store of its own.

        >>> HTermConfig(slices=16, capacity=255, max_age=101).share(2)  # doctest: +ELLIPSIS
        HTermConfig(...slices=8, ...max_age=51, best=0.25, capacity=128, ...)
        """
        whole = {name: getattr(self, name) for name in ("slices", "capacity", "max_age")}
        return replace(self, **{name: n and -(-n // ranks) for name, n in whole.items()})

    def build(
        self,
        loss: LossModule,
        *,
        gamma: float,
        baseline: Baseline,
        prepare: Callable[[TensorDictBase], TensorDictBase] | None,
        reward_scale: float = 1.0,
    ) -> HamiltonianTerm:
        """The term over the actor of ``loss``; ``gamma`` and ``baseline`` are what the algorithm
        takes where nothing is said, ``reward_scale`` is a factor that rewards come with."""
        return HamiltonianTerm.for_loss(
            loss,
            horizon=self.horizon,
            max_age=self.max_age,
            capacity=self.capacity,
            best=self.best,
            gamma=gamma if self.gamma is None else self.gamma,
            # A critic's values are worth what they are by the discount that it learns with.
            value_gamma=gamma,
            # Differs from run to run, and leaves PyTorch's own numbers as they are.
            seed=torch.initial_seed(),
            slices=self.slices,
            period=self.period,
            bound=self.bound,
            prepare=prepare,
            reward_scale=reward_scale,
            weight=self.weight,
            form=self.form,
            clip_epsilon=self.clip_epsilon,
            baseline=self.baseline or baseline,
            sigma=self.sigma,
        )
