"""Base of all algorithm configurations, and the parts that they build."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import ClassVar

import torch
from tensordict.nn import TensorDictModuleBase
from torchrl.envs import EnvBase
from torchrl.objectives import LossModule
from torchrl.objectives.utils import TargetNetUpdater

from torchrl_elegant.algorithms.hterm import HTermConfig
from torchrl_elegant.algorithms.scaling import Preparation
from torchrl_elegant.algorithms.schedules import ActorSchedule, EveryUpdate, Ramp
from torchrl_elegant.config.options import check as check
from torchrl_elegant.config.options import check_fields
from torchrl_elegant.config.options import check_positive as check_positive
from torchrl_elegant.config.options import check_unused as check_unused
from torchrl_elegant.config.options import option as option
from torchrl_elegant.data import ReturnScale
from torchrl_elegant.modules import ACTIVATIONS, NormalisedActor, ObservationNorm, normalisable
from torchrl_elegant.objectives import HamiltonianTerm
from torchrl_elegant.objectives.hamiltonian.loss import Baseline
from torchrl_elegant.objectives.off_policy.return_fit import ReturnFit


@dataclass(kw_only=True)
class Parts:
    """What an algorithm builds for one environment; a learner is made of it.

    ``prepare`` stands between data and loss; ``return_fit`` and ``hterm`` are terms beside the
    loss's own.
    ``ramps`` are set to the run's progress after each batch of frames. ``target_kl``, of losses
    with a ``divergence``, is how far a policy may move before the epochs over its rollout end.
    """

    policy: TensorDictModuleBase
    loss: LossModule
    optimizer: torch.optim.Optimizer
    target_updater: TargetNetUpdater | None = None
    schedule: ActorSchedule = field(default_factory=EveryUpdate)
    ramps: tuple[Ramp, ...] = ()
    prepare: Preparation | None = None
    return_fit: ReturnFit | None = None
    hterm: HamiltonianTerm | None = None
    target_kl: float | None = None
    max_grad_norm: float | None = None


@dataclass(frozen=True, kw_only=True)
class AlgorithmConfig(ABC):
    """Hyper-parameters of one algorithm, and how they become networks, loss and optimiser."""

    name: ClassVar[str]
    # Kinds of actions it can choose among; named where an environment has others.
    actions: ClassVar[tuple[str, ...]] = ("continuous", "discrete", "multi-discrete")
    #: What it learns where nobody says.
    example: ClassVar[str] = "Pendulum-v1"
    #: Whether there is an actor beside the values.
    has_actor: ClassVar[bool] = True
    #: What the H-term compares rewards with where its options say none.
    hterm_baseline: ClassVar[Baseline] = "mean"
    #: Whether rewards come to the H-term with ``reward_scale`` in them.
    hterm_scaled: ClassVar[bool] = False
    #: Whether the actor is given its spread from outside.
    deterministic: ClassVar[bool] = False
    # Every family has these, each with defaults of its own.
    gamma: float
    num_cells: tuple[int, ...]
    activation: str
    max_grad_norm: float | None
    batch_size: int
    # These are the same for all.
    reward_scale: float = option(1.0, "factor of all rewards that are learnt from")
    normalize_observation: bool = option(
        False, "show the networks observations in units of their running spread"
    )
    normalize_value: bool = option(
        False, "divide rewards by the running spread of discounted returns"
    )
    hterm: HTermConfig | None = option(
        None, "the Hamiltonian term beside the loss: steers to the best of the latest slices"
    )

    def __post_init__(self) -> None:
        check_fields(self)
        check(0.0 <= self.gamma <= 1.0, "gamma", "lie in [0, 1]", self.gamma)
        check(self.batch_size >= 1, "batch_size", "be at least 1", self.batch_size)
        norm = self.max_grad_norm
        check(norm is None or norm > 0, "max_grad_norm", "be positive or none", norm)
        sound = len(self.num_cells) > 0 and min(self.num_cells) > 0
        check(sound, "num_cells", "hold positive sizes", self.num_cells)
        check_positive(self, "reward_scale")
        kind = isinstance(self.hterm, HTermConfig | None)
        check(kind, "hterm", "be an HTermConfig or none", self.hterm, "write hterm=HTermConfig()")
        fits = self.hterm is None or self.has_actor
        check(fits, "hterm", "be false where there is no actor", "true")
        if self.hterm is not None and not self.deterministic:
            mode, other = "a stochastic actor", "algorithm=td3"
            check_unused(self.hterm, "sigma", mode=mode, other=other, group="hterm")
        known = self.activation in ACTIVATIONS
        check(known, "activation", f"be one of {', '.join(ACTIVATIONS)}", self.activation)

    @property
    def beginnings(self) -> tuple[str, ...]:
        """Fields that say where something begins that is learnt from then on."""
        return ()

    @abstractmethod
    def build(self, env: EnvBase) -> Parts:
        """Networks, loss, optimiser and rules that fit ``env``, on its device."""

    def assemble(self, env: EnvBase) -> Parts:
        """What ``build`` makes, with what the options put between data and loss."""
        parts = self.build(env)
        parts.max_grad_norm = self.max_grad_norm
        if self.normalize_observation or self.normalize_value or self.reward_scale != 1.0:
            self._prepare(parts, env)
        if self.hterm is not None:
            prepare = parts.prepare and parts.prepare.states
            parts.hterm = self.hterm.build(
                parts.loss,
                gamma=self.gamma,
                baseline=self.hterm_baseline,
                prepare=prepare,
                reward_scale=self.reward_scale if self.hterm_scaled else 1.0,
            )
        return parts

    def _prepare(self, parts: Parts, env: EnvBase) -> None:
        norm = returns = None
        if self.normalize_observation:
            norm = ObservationNorm(normalisable(env)).to(env.device)
            parts.policy = NormalisedActor(parts.policy, norm)
        if self.normalize_value:
            returns = ReturnScale(gamma=self.gamma)
        parts.prepare = Preparation(reward_scale=self.reward_scale, norm=norm, returns=returns)

    @abstractmethod
    def frames_per_batch(self, *, total_frames: int, num_envs: int) -> int:
        """Frames between two rounds of updates where the run does not say: whole steps of all
        environments."""

    @abstractmethod
    def check_budget(self, *, total_frames: int, frames_per_batch: int, num_envs: int = 1) -> None:
        """Refuse a run in which nothing would be learnt."""

    @abstractmethod
    def share(self, ranks: int) -> AlgorithmConfig:
        """The part of one of several ranks, so that all together do what one would alone."""
