"""Shared options and builders of algorithms that learn from the current policy's rollouts."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar, Literal

import torch
from torch import nn
from torchrl.envs import EnvBase
from torchrl.objectives.utils import ValueEstimators

from torchrl_elegant.algorithms.adam import LeanAdam
from torchrl_elegant.algorithms.base import AlgorithmConfig, Parts, check, check_unused, option
from torchrl_elegant.algorithms.schedules import Ramp, ramp_lr, ramp_to
from torchrl_elegant.algorithms.symmetry import SymmetryConfig
from torchrl_elegant.config.rates import Rate, ends_of, first_of
from torchrl_elegant.modules import (
    ForeignActor,
    GaussianActor,
    build_stochastic_actor,
    build_value,
    fit_actor,
    fit_value,
    trained,
)
from torchrl_elegant.objectives.common.sequence_losses import RolloutSequenceLoss, SequenceLoss
from torchrl_elegant.objectives.hamiltonian.loss import Baseline
from torchrl_elegant.objectives.on_policy.base import OnPolicyLoss

# Frames of one rollout over all environments, as in Schulman et al. 2017, table 3.
_FRAMES, _MOST = 2048, 10_000


@dataclass(frozen=True, kw_only=True)
class OnPolicyConfig(AlgorithmConfig):
    """Options of all algorithms that learn from rollouts of the current policy.

    Actions may be continuous, discrete or multi-discrete; the actor is Gaussian or categorical
    accordingly, or of any class: see ``AlgorithmConfig``. Subclasses build the loss.
    """

    family: ClassVar[str] = "on_policy"
    # The critic has valued the states of each rollout.
    hterm_baseline: ClassVar[Baseline] = "value"
    hterm_scaled: ClassVar[bool] = True

    batch_size: int = 64
    max_grad_norm: float | None = 0.5
    num_cells: tuple[int, ...] = (64, 64)
    activation: str = "tanh"
    log_std: float = option(
        0.0, "logarithm of the spread of continuous actions at the start", topic="networks"
    )
    lr: Rate = option(3e-4, "learning rate of actor and critic", topic="learning", above=0, last=0)
    epochs: int = option(10, "passes over each rollout", low=1)
    critic_coeff: float = option(0.5, "weight of the critic's loss", above=0)
    loss_function: Literal["l2", "smooth_l1", "l1"] = option("l2", "distance of value and target")
    clip_value: float | None = option(
        None, "largest move of a value in one rollout that its loss rewards; none: any", above=0
    )
    entropy_coeff: Rate = option(0.0, "weight of the entropy bonus", low=0)
    lmbda: float = option(
        0.95,
        "decay of the advantages' sum: 0 for one step, 1 for whole returns",
        topic="advantages",
        low=0,
        high=1,
    )
    advantage: Literal["gae", "vtrace"] = option(
        "gae", "estimator of the advantages; vtrace corrects for data of an older policy"
    )
    normalize_advantage: bool = option(True, "scale the advantages of each update to mean 0, std 1")
    symmetry: SymmetryConfig | None = option(
        None, "learn that the mirror image of what is good is as good", topic="symmetry"
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        many = self.epochs <= _MOST
        check(many, "epochs", f"be at most {_MOST}", self.epochs, "no run would come to its end")
        single = self.batch_size > 1 or not self.normalize_advantage
        way_out = "a single advantage has no spread: raise batch_size or unset normalize_advantage"
        check(single, "batch_size", "exceed 1 to normalize", self.batch_size, way_out)

        if self.symmetry is not None:
            must = "be false with symmetry"
            check(not self.recurrent, "recurrent", f"{must}: a memory has no mirror image", True)
            check(self.hterm is None, "hterm", must, "true")
            scaled = self.normalize_observation and not self.symmetry.augment
            must = "be false with symmetry.augment=false: its scales would not suit mirror images"
            check(not scaled, "normalize_observation", must, True, "set symmetry.augment=true")

    @property
    def settled(self) -> tuple[str, ...]:
        return (*super().settled, "log_std")

    def assemble(self, env: EnvBase) -> Parts:
        parts = super().assemble(env)
        if self.symmetry is not None:
            # First: scales are those of rollouts with their mirror images.
            parts.add_ons.insert(0, self.symmetry.build(env, parts.loss))
        return parts

    def sequence_loss(self, loss: Any) -> SequenceLoss:
        return RolloutSequenceLoss(loss, length=self.sequence_length)

    @abstractmethod
    def build_loss(self, actor: Any, critic: Any) -> OnPolicyLoss:
        """Make the loss over these networks."""

    def build_actor(self, env: EnvBase) -> nn.Module:
        """Make the actor that learns."""
        options = self.network_options(self.actor_keys)
        return build_stochastic_actor(env, log_std=self.log_std, **options)

    def build_critic(self, env: EnvBase) -> nn.Module:
        """Make the critic of states."""
        return build_value(env, **self.network_options(self.critic_keys, of="critics"))

    def build(self, env: EnvBase) -> Parts:
        given = self.place("actor", env, self.build_actor)
        actor = fit_actor(given, env, kind="rollout", in_keys=self.own_keys(self.actor_keys))
        if not isinstance(actor, GaussianActor):
            foreign = isinstance(actor, ForeignActor)
            mode = "an actor of one's own" if foreign else "discrete actions"
            other = "networks=None" if foreign else "continuous actions"
            check_unused(self, "log_std", mode=mode, other=other)
        given = self.place("critic", env, self.build_critic)
        critic = fit_value(given, env, in_keys=self.own_keys(self.critic_keys))
        loss = self.build_loss(trained(actor), critic)
        kind = {"gae": ValueEstimators.GAE, "vtrace": ValueEstimators.VTrace}[self.advantage]
        loss.make_value_estimator(kind, **self.estimator_arguments())
        optimizer = self.build_optimizer(loss)
        ramps = self.build_ramps(loss, optimizer)
        return Parts(policy=actor, loss=loss, optimizer=optimizer, ramps=ramps)

    def build_optimizer(self, loss: OnPolicyLoss) -> torch.optim.Optimizer:
        """Make the optimizer of actor and critic."""
        return LeanAdam(loss.parameters(), lr=first_of(self.lr))

    def build_ramps(self, loss: OnPolicyLoss, optimizer: torch.optim.Optimizer) -> tuple[Ramp, ...]:
        """Make the ramps of numbers that change over the run."""
        set_entropy = partial(setattr, loss, "entropy_coeff")
        return (*ramp_lr(optimizer, self.lr), *ramp_to(self.entropy_coeff, set_entropy))

    def estimator_arguments(self) -> dict[str, Any]:
        """Keyword arguments of the value estimator."""
        return {"gamma": self.gamma, "lmbda": self.lmbda}

    def loss_arguments(self) -> dict[str, Any]:
        """Keyword arguments of the loss."""
        first, last = ends_of(self.entropy_coeff)
        return {
            "clip_value": self.clip_value,
            "entropy_bonus": max(first, last) > 0,
            "entropy_coeff": first or last,
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
        steps = frames_per_batch // num_envs
        must = f"be at most the {steps} steps that each environment makes in a rollout"
        fits = not self.recurrent or self.sequence_length <= steps
        way_out = "lower it, or raise frames_per_batch"
        check(fits, "sequence_length", must, self.sequence_length, way_out)

    def share(self, ranks: int) -> OnPolicyConfig:
        hterm = self.hterm and self.hterm.share(ranks)
        return replace(self, batch_size=self.batch_size // ranks, hterm=hterm)
