"""Options of the H-term, which every algorithm with an actor takes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from tensordict import TensorDictBase
from torchrl.objectives import LossModule

from torchrl_elegant.config.options import check_options, check_unused, option
from torchrl_elegant.functional import Form
from torchrl_elegant.objectives import HamiltonianTerm
from torchrl_elegant.objectives.hamiltonian.loss import Baseline

# Counts of frames beyond it overflow.
_MOST = 2**31


@dataclass(frozen=True, kw_only=True)
class HTermConfig:
    """Options of the Hamiltonian term, which an algorithm adds to its actor's loss.

    >>> HTermConfig(horizon=4).horizon
    4
    """

    horizon: int = option(16, "steps of a slice, K", low=1, below=_MOST)
    weight: float = option(0.125, "weight of the term; bound limits its gradient", low=0)
    form: Form = option(
        "imitate",
        "weight of a step in the term: clipped ratio of policies, log-probability, or "
        "log-probability of better steps alone",
    )
    clip_epsilon: float = option(
        0.2, "distance of the ratio of policies from 1 at which it is clipped", above=0, below=1
    )
    gamma: float | None = option(
        None, "discount factor in a slice; none: the algorithm's", low=0, high=1
    )
    baseline: Baseline | None = option(
        None,
        "number that rewards are compared with: their running mean, a state's value, zero; none: "
        "value on-policy, mean off-policy",
    )
    slices: int = option(16, "slices in each term, L", low=1, below=_MOST)
    period: int = option(8, "updates of the actor per term", low=1, below=_MOST)
    bound: float | None = option(
        1.0, "largest norm of the term's gradient, as a multiple of the actor's; none: any", above=0
    )
    max_age: int = option(2_048, "frames after which a slice is dropped", low=1, below=_MOST)
    best: float = option(
        0.25, "fraction of the slices, the best of them, that terms draw from", above=0, high=1
    )
    capacity: int | None = option(
        None, "number of slices kept, the best of them; none: all up to max_age", low=1
    )
    sigma: float = option(
        0.1, "spread given to a deterministic actor, as a fraction of half its range", above=0
    )

    def __post_init__(self) -> None:
        check_options(self)
        if self.form != "ratio":
            check_unused(self, "clip_epsilon", mode=f"form={self.form}", other="form=ratio")

    def share(self, ranks: int) -> HTermConfig:
        """The options of one of several ranks, each of which has a store of its own.

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
        """Make the term over the actor of ``loss``.

        ``gamma`` and ``baseline`` are the algorithm's, used where the options set none;
        ``reward_scale`` is the factor already applied to the rewards.
        """
        return HamiltonianTerm.for_loss(
            loss,
            horizon=self.horizon,
            max_age=self.max_age,
            capacity=self.capacity,
            best=self.best,
            gamma=gamma if self.gamma is None else self.gamma,
            # The critic learned its values with the algorithm's own discount.
            value_gamma=gamma,
            # Differs between runs, and draws nothing from PyTorch's generator.
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
