"""What all algorithms share that learn from what the present policy has just collected."""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar, Literal

import torch
from torchrl.envs import EnvBase
from torchrl.objectives.utils import ValueEstimators

from torchrl_elegant.algorithms.adam import LeanAdam
from torchrl_elegant.algorithms.base import AlgorithmConfig, Parts, check_unused, option
from torchrl_elegant.algorithms.schedules import Ramp, ramp_lr, ramp_to
from torchrl_elegant.config.options import check, check_not_negative, check_positive
from torchrl_elegant.modules import (
    GaussianActor,
    StateValue,
    StochasticActor,
    build_stochastic_actor,
    build_value,
)
from torchrl_elegant.objectives.hamiltonian.loss import Baseline
from torchrl_elegant.objectives.on_policy.loss import OnPolicyLoss

# Frames of one rollout over all environments, as in Schulman et al. 2017, table 3.
_FRAMES = 2048


@dataclass(frozen=True, kw_only=True)
class OnPolicyConfig(AlgorithmConfig):
    """What all algorithms share that learn from what the present policy has just collected.

    Continuous, discrete and multi-discrete actions; the actor is Gaussian or categorical
    accordingly. Subclasses say what their loss is.
    """

    # A critic of states has seen its rollouts.
    hterm_baseline: ClassVar[Baseline] = "value"
    hterm_scaled: ClassVar[bool] = True

    gamma: float = option(0.99, "discount factor")
    lmbda: float = option(0.95, "decay of the advantages' sum: 0 for one step, 1 for whole returns")
    advantage: Literal["gae", "vtrace"] = option(
        "gae", "how advantages are estimated; vtrace corrects for data of an older policy"
    )
    epochs: int = option(10, "passes over each rollout")
    batch_size: int = option(64, "transitions per update")
    lr: float = option(3e-4, "learning rate of actor and critic")
    lr_end: float | None = option(None, "learning rate at the run's end; none: as at its start")
    critic_coeff: float = option(0.5, "weight of the critic's loss")
    entropy_coeff: float = option(0.0, "weight of the entropy bonus")
    entropy_coeff_end: float | None = option(
        None, "the same at the run's end; none: as at its start"
    )
    clip_value: float | None = option(
        None, "how far values may move in one round before their loss stops shrinking; none: any"
    )
    loss_function: Literal["l2", "smooth_l1", "l1"] = option("l2", "distance of value and target")
    normalize_advantage: bool = option(True, "scale the advantages of each update to mean 0, std 1")
    log_std: float = option(0.0, "logarithm of a continuous action's spread at the start")
    compile: bool = option(False, "compile what an update runs: seconds that pay in long runs")
    num_cells: tuple[int, ...] = option((64, 64), "sizes of the hidden layers of both networks")
    activation: str = option("tanh", "activation of the hidden layers: tanh, relu, silu, elu, ...")
    max_grad_norm: float | None = option(0.5, "largest norm of the gradient; none: no clipping")

    def __post_init__(self) -> None:
        super().__post_init__()
        check(0.0 <= self.lmbda <= 1.0, "lmbda", "lie in [0, 1]", self.lmbda)
        check(self.epochs >= 1, "epochs", "be at least 1", self.epochs)
        check_positive(self, "lr", "critic_coeff", "clip_value")
        check_not_negative(self, "entropy_coeff", "lr_end", "entropy_coeff_end")
        check(math.isfinite(self.log_std), "log_std", "be finite", self.log_std)
        single = self.batch_size > 1 or not self.normalize_advantage
        way_out = "a single advantage has no spread: raise batch_size or unset normalize_advantage"
        check(single, "batch_size", "exceed 1 to normalise", self.batch_size, way_out)

    @property
    def beginnings(self) -> tuple[str, ...]:
        return ("log_std",)

    @abstractmethod
    def build_loss(self, actor: StochasticActor, critic: StateValue) -> OnPolicyLoss:
        """The loss over these networks."""

    def build(self, env: EnvBase) -> Parts:
        networks: dict[str, Any] = {"num_cells": self.num_cells, "activation": self.activation}
        actor = build_stochastic_actor(env, log_std=self.log_std, **networks)
        if not isinstance(actor, GaussianActor):
            check_unused(self, "log_std", mode="discrete actions", other="continuous actions")
        loss = self.build_loss(actor, build_value(env, **networks))
        kind = {"gae": ValueEstimators.GAE, "vtrace": ValueEstimators.VTrace}[self.advantage]
        loss.make_value_estimator(kind, **self.estimator_arguments())
        if self.compile:
            loss.compile_terms()
        optimizer = self.build_optimizer(loss)
        ramps = self.build_ramps(loss, optimizer)
        return Parts(policy=actor, loss=loss, optimizer=optimizer, ramps=ramps)

    def build_optimizer(self, loss: OnPolicyLoss) -> torch.optim.Optimizer:
        """What moves actor and critic."""
        return LeanAdam(loss.parameters(), lr=self.lr)

    def build_ramps(self, loss: OnPolicyLoss, optimizer: torch.optim.Optimizer) -> tuple[Ramp, ...]:
        """What moves over a run."""
        set_entropy = partial(setattr, loss, "entropy_coeff")
        entropy = ramp_to(self.entropy_coeff, self.entropy_coeff_end, set_entropy)
        rate = () if self.lr_end is None else ramp_lr(optimizer, self.lr_end / self.lr)
        return (*rate, *entropy)

    def estimator_arguments(self) -> dict[str, Any]:
        """Keyword arguments of the value estimator."""
        return {"gamma": self.gamma, "lmbda": self.lmbda}

    def loss_arguments(self) -> dict[str, Any]:
        """Keyword arguments of the loss."""
        most = max(self.entropy_coeff, self.entropy_coeff_end or 0.0)
        return {
            "clip_value": self.clip_value,
            "entropy_bonus": most > 0,
            "entropy_coeff": most if self.entropy_coeff == 0 else self.entropy_coeff,
            "critic_coeff": self.critic_coeff,
            "loss_critic_type": self.loss_function,
        }

    def frames_per_batch(self, *, total_frames: int, num_envs: int) -> int:
        """2048 frames, or what ``total_frames`` allows, in whole steps of all environments.

        >>> from torchrl_elegant.algorithms import PPOConfig
        >>> PPOConfig().frames_per_batch(total_frames=100_000, num_envs=10)
        2050
        """
        return -(-min(_FRAMES, total_frames) // num_envs) * num_envs

    def check_budget(self, *, total_frames: int, frames_per_batch: int, num_envs: int = 1) -> None:
        check(
            self.batch_size <= frames_per_batch,
            "batch_size",
            f"be at most frames_per_batch ({frames_per_batch})",
            self.batch_size,
            "lower batch_size or raise frames_per_batch",
        )

    def share(self, ranks: int) -> OnPolicyConfig:
        hterm = self.hterm and self.hterm.share(ranks)
        return replace(self, batch_size=self.batch_size // ranks, hterm=hterm)
