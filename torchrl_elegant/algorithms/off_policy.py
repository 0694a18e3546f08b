"""Bases of algorithms that learn from a replay buffer."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar, Literal

from tensordict.nn import TensorDictModuleBase
from torchrl.envs import EnvBase

from torchrl_elegant.algorithms.adam import LeanAdam
from torchrl_elegant.algorithms.base import (
    AlgorithmConfig,
    Parts,
    check,
    check_positive,
    check_unused,
    option,
)
from torchrl_elegant.algorithms.schedules import ActorSchedule, EveryUpdate, ramp_lr
from torchrl_elegant.data import MultiStepFold, Priority
from torchrl_elegant.modules import EnsembleCritic, build_critic
from torchrl_elegant.objectives import LeanSoftUpdate
from torchrl_elegant.objectives.common.value_target import BootstrappedLoss
from torchrl_elegant.objectives.off_policy.actor_critic import ActorCriticLoss
from torchrl_elegant.objectives.off_policy.return_fit import ReturnFit

# Handing over sixteen frames at once costs little more than one, and no policy ages in sixteen.
_FRAMES = 16


@dataclass(frozen=True, kw_only=True)
class OffPolicyConfig(AlgorithmConfig):
    """What all algorithms share that learn from a replay buffer."""

    actions: ClassVar[tuple[str, ...]] = ("continuous",)

    gamma: float = option(0.99, "discount factor")
    tau: float = option(0.005, "how far the target networks move at each update")
    batch_size: int = option(256, "transitions per update")
    buffer_size: int = option(1_000_000, "transitions the replay buffer holds")
    warmup: int = option(1_000, "frames of random actions before learning starts")
    updates_per_frame: float = option(1.0, "updates of the critics per collected frame")
    num_cells: tuple[int, ...] = option((256, 256), "sizes of the hidden layers of all networks")
    activation: str = option("relu", "activation of the hidden layers: relu, tanh, silu, elu, ...")
    max_grad_norm: float | None = option(None, "largest norm of the gradient; none: no clipping")
    lr_part: float | None = option(
        None, "part of all learning rates that is left at the run's end; none: all of it"
    )
    n_steps: int = option(1, "rewards that a target adds up before it looks at a value")
    priority_alpha: float | None = option(
        None, "exponent of the rows' priorities; none: rows are drawn evenly; try 0.6"
    )
    priority_beta: float = option(
        0.4, "how much of the priorities' bias the weights undo at first; all of it at the end"
    )
    return_fit: float = option(
        0.0, "weight of the pull of the mean value to the mean of longer returns; try 0.1"
    )
    return_fit_steps: int = option(16, "steps of those returns")

    def __post_init__(self) -> None:
        super().__post_init__()
        check(0.0 < self.tau <= 1.0, "tau", "lie in (0, 1]", self.tau)
        check(self.buffer_size >= 1, "buffer_size", "be at least 1", self.buffer_size)
        check(self.warmup >= 0, "warmup", "be 0 or more", self.warmup)
        rate = self.updates_per_frame
        check(0 < rate < math.inf, "updates_per_frame", "be positive and finite", rate)
        check(
            self.batch_size <= self.buffer_size,
            "batch_size",
            f"be at most buffer_size ({self.buffer_size})",
            self.batch_size,
        )
        part = self.lr_part
        check(part is None or 0.0 <= part <= 1.0, "lr_part", "lie in [0, 1], or be none", part)
        check(self.n_steps >= 1, "n_steps", "be at least 1", self.n_steps)
        fit, steps = self.return_fit, self.return_fit_steps
        check(0.0 <= fit < math.inf, "return_fit", "be 0 or more and finite", fit)
        if fit == 0:
            check_unused(self, "return_fit_steps", mode="return_fit=0", other="return_fit=0.1")
        more = f"exceed n_steps ({self.n_steps})"
        check(fit == 0 or steps > self.n_steps, "return_fit_steps", more, steps)
        alpha, beta = self.priority_alpha, self.priority_beta
        if alpha is None:
            check_unused(
                self, "priority_beta", mode="priority_alpha=none", other="priority_alpha=0.6"
            )
        else:
            check(0.0 <= alpha < math.inf, "priority_alpha", "be 0 or more, or none", alpha)
        check(0.0 <= beta <= 1.0, "priority_beta", "lie in [0, 1]", beta)
        known = self.hterm is None or self.hterm.baseline != "value"
        way_out = "there is no critic of states alone"
        check(known, "hterm.baseline", "be mean, zero or none off-policy", "value", way_out)

    def frames_per_batch(self, *, total_frames: int, num_envs: int) -> int:
        """The most steps up to the usual batch after which ``total_frames`` is met exactly.

        >>> from torchrl_elegant.algorithms import SACConfig
        >>> SACConfig().frames_per_batch(total_frames=30_000, num_envs=4)
        16
        """
        most = max(1, _FRAMES // num_envs)
        fitting = [n for n in range(1, most + 1) if total_frames % (n * num_envs) == 0]
        return num_envs * max(fitting, default=most)

    def check_budget(self, *, total_frames: int, frames_per_batch: int, num_envs: int = 1) -> None:
        where = f" in each of {num_envs} environments" if num_envs > 1 else ""
        must = f"exceed the {self.span} steps of one row{where}"
        enough = self.span == 1 or total_frames > self.span * num_envs
        check(enough, "total_frames", must, total_frames)
        updates = self.updates_per_frame * (total_frames - self.warmup)
        check(
            updates + 1e-6 >= 1,
            "total_frames",
            f"leave frames to learn from with warmup={self.warmup} and "
            f"updates_per_frame={self.updates_per_frame:g}",
            total_frames,
            "no update would ever be made: raise total_frames or lower warmup",
        )

    def assemble(self, env: EnvBase) -> Parts:
        parts = super().assemble(env)
        if self.lr_part is not None:
            parts.ramps += ramp_lr(parts.optimizer, self.lr_part)
        if self.return_fit:
            fits = isinstance(parts.loss, BootstrappedLoss)
            must = f"be 0 with {self.name}, whose loss is no BootstrappedLoss"
            check(fits, "return_fit", must, self.return_fit)
            parts.return_fit = ReturnFit(parts.loss, weight=self.return_fit)
        return parts

    @property
    def span(self) -> int:
        """Steps that a stored row reaches ahead."""
        return max(self.n_steps, self.return_fit_steps if self.return_fit else 1)

    @property
    def fold(self) -> Callable[[], MultiStepFold] | None:
        """Makes what turns collected steps into longer ones; None where they are stored as are."""
        if self.span == 1:
            return None
        ahead = self.return_fit_steps if self.return_fit else 0
        return partial(MultiStepFold, gamma=self.gamma, n_steps=self.n_steps, ahead_steps=ahead)

    def priority(self) -> Priority | None:
        """How the replay buffer weighs its rows; None for evenly."""
        if self.priority_alpha is None:
            return None
        return Priority(alpha=self.priority_alpha, beta=self.priority_beta)

    def share(self, ranks: int) -> OffPolicyConfig:
        return replace(
            self,
            batch_size=self.batch_size // ranks,
            buffer_size=-(-self.buffer_size // ranks),
            hterm=self.hterm and self.hterm.share(ranks),
        )


@dataclass(frozen=True, kw_only=True)
class DiscreteOffPolicyConfig(OffPolicyConfig):
    """What off-policy algorithms over discrete actions share: other defaults.

    Targets add up five rewards (Sutton 1988; Hessel et al. 2018 take three). With one, as in the
    papers of DQN and discrete SAC, values creep up everywhere alike before they tell actions apart,
    and many a CartPole is not balanced after 40,000 frames.
    """

    actions: ClassVar[tuple[str, ...]] = ("discrete",)
    example: ClassVar[str] = "CartPole-v1"

    batch_size: int = option(128, "transitions per update")
    buffer_size: int = option(100_000, "transitions the replay buffer holds")
    updates_per_frame: float = option(0.5, "updates of the critics per collected frame")
    num_cells: tuple[int, ...] = option((128, 128), "sizes of the hidden layers of all networks")
    n_steps: int = option(5, "rewards that a target adds up before it looks at a value")


@dataclass(frozen=True, kw_only=True)
class ActorCriticConfig(OffPolicyConfig):
    """What all off-policy algorithms share that have an actor beside Q(s, a) critics.

    A subclass says how many critics there are, and builds the actor and the loss.
    """

    actor_lr: float = option(3e-4, "learning rate of the actor")
    critic_lr: float = option(3e-4, "learning rate of the critics")
    actor_period: int = option(1, "updates of the critics per update of the actor")
    loss_function: Literal["l2", "smooth_l1", "l1"] = option("l2", "distance of value and target")

    def __post_init__(self) -> None:
        super().__post_init__()
        check_positive(self, "actor_lr", "critic_lr")
        check(self.actor_period >= 1, "actor_period", "be at least 1", self.actor_period)

    def build(self, env: EnvBase) -> Parts:
        actor = self.build_actor(env)
        critic = build_critic(
            env, num_critics=self.members, num_cells=self.num_cells, activation=self.activation
        )
        loss = self.build_loss(actor, critic)
        loss.make_value_estimator(gamma=self.gamma)
        return Parts(
            policy=actor,
            loss=loss,
            optimizer=LeanAdam(self.parameter_groups(loss)),
            target_updater=self.build_updater(loss),
            schedule=self.build_schedule(),
        )

    @property
    @abstractmethod
    def members(self) -> int:
        """How many critics there are."""

    @abstractmethod
    def build_actor(self, env: EnvBase) -> TensorDictModuleBase:
        """The actor that learns."""

    @abstractmethod
    def build_loss(self, actor: Any, critic: EnsembleCritic) -> ActorCriticLoss:
        """The loss over given networks."""

    def build_updater(self, loss: ActorCriticLoss) -> LeanSoftUpdate:
        """What moves the target networks."""
        return LeanSoftUpdate(loss, tau=self.tau)

    def build_schedule(self) -> ActorSchedule:
        """The rule that decides when the actor is updated."""
        return EveryUpdate(period=self.actor_period)

    def parameter_groups(self, loss: Any) -> list[dict[str, Any]]:
        """What the optimiser learns, and how fast."""
        return [
            {"params": list(loss.actor_network_params.parameters()), "lr": self.actor_lr},
            {"params": list(loss.qvalue_network_params.parameters()), "lr": self.critic_lr},
        ]
