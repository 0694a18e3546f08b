"""Shared options and builders of algorithms that learn from a replay buffer."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar, Literal

from torch import Tensor, nn
from torchrl.data import TensorSpec
from torchrl.envs import EnvBase

from torchrl_elegant.algorithms.add_ons import LongReturnAddOn
from torchrl_elegant.algorithms.base import (
    AlgorithmConfig,
    Parts,
    check,
    check_unused,
    option,
)
from torchrl_elegant.algorithms.schedules import ActorSchedule, EveryUpdate, build_adam
from torchrl_elegant.config.rates import Rate, first_of
from torchrl_elegant.data import MultiStepFold, Priority
from torchrl_elegant.modules import build_critic, fit_actor, fit_critic, trained
from torchrl_elegant.modules.build import bounded_action
from torchrl_elegant.modules.fit import Kind
from torchrl_elegant.objectives import LeanSoftUpdate
from torchrl_elegant.objectives.common.sequence_losses import ReplaySequenceLoss, SequenceLoss
from torchrl_elegant.objectives.off_policy.base import OffPolicyLoss
from torchrl_elegant.objectives.off_policy.long_return import LongReturnFit

# To hand over 16 frames costs little more than one, and a policy does not age in 16 frames.
_FRAMES = 16
# Exponent with which priorities still have numbers.
_POWER = 10
# Between atoms, float32 still has numbers.
_WIDEST = 1e30
# Updates of a frame: with more, a run would never come to its second evaluation.
_MOST, _NEVER_ENDS = 10_000, "no run would come to its end with more"


@dataclass(frozen=True, kw_only=True)
class OffPolicyConfig(AlgorithmConfig):
    """Options of all algorithms that learn from a replay buffer."""

    family: ClassVar[str] = "off_policy"
    actions: ClassVar[tuple[str, ...]] = ("continuous",)

    batch_size: int = 256
    max_grad_norm: float | None = None
    num_cells: tuple[int, ...] = (256, 256)
    activation: str = "relu"
    tau: float = option(
        0.005, "step of the target networks at each update", topic="learning", above=0, high=1
    )
    updates_per_frame: float = option(1.0, "updates of the critics per collected frame", above=0)
    n_steps: int = option(1, "rewards that a target sums before it adds a value estimate", low=1)
    long_return_weight: float = option(
        0.0, "weight of the loss that moves the mean value to the mean long return; try 0.1", low=0
    )
    long_return_steps: int = option(16, "steps of those long returns", low=1)
    buffer_size: int = option(
        1_000_000, "transitions that the replay buffer holds", topic="replay", low=1
    )
    warmup: int = option(1_000, "frames of random actions before learning starts", low=0)
    priority_alpha: float | None = option(
        None, "exponent of prioritized replay; none: uniform sampling; try 0.6", low=0
    )
    priority_beta: Rate = option(
        (0.4, 1.0), "exponent of its importance weights, which undo its bias", low=0, high=1
    )

    burn_in: int = option(
        0,
        "steps before each sequence that only warm up its memory",
        topic="memory",
        low=0,
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        must = f"be at most buffer_size ({self.buffer_size})"
        check(self.batch_size <= self.buffer_size, "batch_size", must, self.batch_size)
        rate = self.updates_per_frame
        check(rate <= _MOST, "updates_per_frame", f"be at most {_MOST}", rate, _NEVER_ENDS)
        power = self.priority_alpha or 0
        check(power <= _POWER, "priority_alpha", f"be at most {_POWER}", power, "try 0.6")
        weight, steps = self.long_return_weight, self.long_return_steps
        if weight == 0:
            other = "long_return_weight=0.1"
            check_unused(self, "long_return_steps", mode="long_return_weight=0", other=other)
        more = f"exceed n_steps ({self.n_steps})"
        check(weight == 0 or steps > self.n_steps, "long_return_steps", more, steps)
        if self.priority_alpha is None:
            mode, other = "priority_alpha=none", "priority_alpha=0.6"
            check_unused(self, "priority_beta", mode=mode, other=other)
        if not self.recurrent:
            check_unused(self, "burn_in", mode="recurrent=false", other="recurrent=true")
        else:
            no_priority = self.priority_alpha is None
            must = "be none with recurrent=true, which draws sequences evenly"
            check(no_priority, "priority_alpha", must, self.priority_alpha)
            check(weight == 0, "long_return_weight", "be 0 with recurrent=true", weight)
        known = self.hterm is None or self.hterm.baseline != "value"
        way_out = "off-policy critics take an action, too"
        check(known, "hterm.baseline", "be mean, zero or none off-policy", "value", way_out)

    def frames_per_batch(self, *, total_frames: int, num_envs: int) -> int:
        """Largest batch of at most 16 frames that divides ``total_frames``.

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
        if self.long_return_weight:
            fits = isinstance(parts.loss, OffPolicyLoss)
            must = f"be 0 with {self.name}, whose loss is no OffPolicyLoss"
            check(fits, "long_return_weight", must, self.long_return_weight)
            fit = LongReturnFit(parts.loss, weight=self.long_return_weight)
            parts.add_ons.insert(0, LongReturnAddOn(fit))
        return parts

    @property
    def span(self) -> int:
        """Steps that a stored row looks ahead, or holds where it is a sequence."""
        if self.recurrent:
            return self.burn_in + self.sequence_length
        return max(self.n_steps, self.long_return_steps if self.long_return_weight else 1)

    @property
    def fold(self) -> Callable[..., MultiStepFold] | None:
        """Maker of the fold that sums rewards over several steps; None for single steps."""
        if self.span == 1 or self.recurrent:
            return None
        ahead = self.long_return_steps if self.long_return_weight else 0
        return partial(MultiStepFold, gamma=self.gamma, n_steps=self.n_steps, ahead_steps=ahead)

    @property
    def buffer_rows(self) -> int:
        """Rows that the replay buffer holds: transitions, or whole sequences of them."""
        return -(-self.buffer_size // (self.sequence_length if self.recurrent else 1))

    def sequence_loss(self, loss: Any) -> SequenceLoss:
        return ReplaySequenceLoss(
            loss, burn_in=self.burn_in, n_steps=self.n_steps, gamma=self.gamma
        )

    def priority(self) -> Priority | None:
        """Exponents of prioritized replay; None for uniform sampling."""
        if self.priority_alpha is None:
            return None
        return Priority(alpha=self.priority_alpha, beta=first_of(self.priority_beta))

    def stores(self) -> list[tuple[str, int, int]]:
        # Taken whole at once; a row has the observations before and after its step.
        seen = 2 if not self.recurrent else -(-2 * self.span // self.sequence_length)
        return [("buffer_size", self.buffer_size, seen), *super().stores()]

    @property
    def settled(self) -> tuple[str, ...]:
        return (*super().settled, "burn_in")

    def share(self, ranks: int) -> OffPolicyConfig:
        return replace(
            self,
            batch_size=self.batch_size // ranks,
            buffer_size=-(-self.buffer_size // ranks),
            hterm=self.hterm and self.hterm.share(ranks),
        )


@dataclass(frozen=True, kw_only=True)
class DiscreteOffPolicyConfig(OffPolicyConfig):
    """Defaults of off-policy algorithms for discrete actions.

    Targets sum five rewards (Sutton 1988; Hessel et al. 2018 take three). With one, as in the
    papers of DQN and discrete SAC, all values rise together before they differ between actions, and
    many runs do not balance CartPole within 40,000 frames.
    """

    actions: ClassVar[tuple[str, ...]] = ("discrete",)
    example: ClassVar[str] = "CartPole-v1"

    batch_size: int = 128
    buffer_size: int = 100_000
    updates_per_frame: float = 0.5
    num_cells: tuple[int, ...] = (128, 128)
    n_steps: int = 5


@dataclass(frozen=True, kw_only=True)
class ActorCriticConfig(OffPolicyConfig):
    """Options of off-policy algorithms with an actor beside Q(s, a) critics.

    A subclass gives the number of critics, and builds actor, loss and actor schedule. Networks may
    be of any class: see ``AlgorithmConfig``.
    """

    actor_lr: Rate = option(3e-4, "learning rate of the actor", topic="learning", above=0, last=0)
    critic_lr: Rate = option(3e-4, "learning rate of the critics", above=0, last=0)
    loss_function: Literal["l2", "smooth_l1", "l1"] = option("l2", "distance of value and target")

    def build(self, env: EnvBase) -> Parts:
        _, action_spec = bounded_action(env, algorithm=self.name)
        kind: Kind = "deterministic" if self.deterministic else "sampling"
        given = self.place("actor", env, self.build_actor)
        actor = fit_actor(given, env, kind=kind, in_keys=self.own_keys(self.actor_keys))
        given = self.place("critic", env, self.build_critic)
        critic = fit_critic(given, env, in_keys=self.own_keys(self.critic_keys))
        loss = self.build_loss(trained(actor), critic, action_spec=action_spec)
        loss.make_value_estimator(gamma=self.gamma)
        optimizer, ramps = build_adam(self.parameter_groups(loss))
        return Parts(
            policy=actor,
            loss=loss,
            optimizer=optimizer,
            target_updater=self.build_updater(loss),
            schedule=self.build_schedule(),
            ramps=ramps,
        )

    @property
    def network_count(self) -> int:
        return 1 + 2 * self.members

    @property
    @abstractmethod
    def members(self) -> int:
        """Number of critics."""

    @abstractmethod
    def build_actor(self, env: EnvBase) -> nn.Module:
        """Make the actor that learns."""

    def build_critic(self, env: EnvBase) -> nn.Module:
        """Make the critic of states and actions."""
        networks = self.network_options(self.critic_keys, of="critics")
        return build_critic(env, num_critics=self.members, **networks)

    @abstractmethod
    def build_loss(self, actor: Any, critic: Any, *, action_spec: TensorSpec) -> OffPolicyLoss:
        """Make the loss over these networks; it copies a critic that has one member."""

    @abstractmethod
    def build_schedule(self) -> ActorSchedule:
        """Make the rule that decides which updates include the actor."""

    def build_updater(self, loss: OffPolicyLoss) -> LeanSoftUpdate:
        """Make the updater of the target networks."""
        return LeanSoftUpdate(loss, tau=self.tau)

    def parameter_groups(self, loss: Any) -> list[tuple[list[Tensor], Rate]]:
        """Parameters of the optimizer with their learning rates."""
        return [
            (list(loss.actor_network_params.parameters()), self.actor_lr),
            (list(loss.qvalue_network_params.parameters()), self.critic_lr),
        ]


@dataclass(frozen=True, kw_only=True)
class PeriodicActorConfig(ActorCriticConfig):
    """Options of actor-critic algorithms whose actor learns at every ``actor_period``-th update."""

    actor_period: int = option(
        1, "updates of the critics per update of the actor", topic="learning", low=1
    )

    def build_schedule(self) -> ActorSchedule:
        return EveryUpdate(period=self.actor_period)


@dataclass(frozen=True, kw_only=True)
class DistributionalConfig(ActorCriticConfig):
    """Options of algorithms whose critics may predict distributions of returns."""

    atoms: int | None = option(
        None,
        "returns that critics tell apart, evenly spaced, each with a probability (C51); none: "
        "critics predict a value alone; try 101",
        topic="critics",
        low=2,
        high=10_000,
    )
    v_min: float | None = option(
        None, "smallest of these returns, as rewards are learned from; what is beyond counts as it"
    )
    v_max: float | None = option(None, "largest of these returns")

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.atoms is None:
            check_unused(self, "v_min", "v_max", mode="atoms=none", other="atoms=101")
            return
        self._check_range()
        mode, other = f"atoms={self.atoms}, whose loss is a cross-entropy", "atoms=none"
        check_unused(self, "loss_function", mode=mode, other=other)
        own = "critic" not in (self.networks or {})
        must = "hold no critic with atoms, which are those of a critic of this package"
        check(own, "networks", must, sorted(self.networks or ()), "set atoms=none")

    def _check_range(self) -> None:
        must = f"be given with atoms={self.atoms}"
        way_out = "name the discounted returns that a policy of the task may have"
        for name, bound in (("v_min", self.v_min), ("v_max", self.v_max)):
            check(bound is not None, name, must, "none", way_out)
        low, high = float(self.v_min or 0.0), float(self.v_max or 0.0)
        check(low < high, "v_min", f"lie below v_max ({high})", low)
        check(high - low < _WIDEST, "v_max", f"exceed v_min by less than {_WIDEST:g}", high)

    @property
    def settled(self) -> tuple[str, ...]:
        return (*super().settled, "atoms", "v_min", "v_max")

    def build_critic(self, env: EnvBase) -> nn.Module:
        if self.atoms is None:
            return super().build_critic(env)
        networks = self.network_options(self.critic_keys, of="critics")
        atoms: dict[str, Any] = {"atoms": self.atoms, "v_min": self.v_min, "v_max": self.v_max}
        return build_critic(env, num_critics=self.members, **networks, **atoms)
