"""SAC: one configuration, and how it becomes a learner's parts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from torchrl.envs import EnvBase

from torchrl_elegant.algorithms.base import Parts, check, check_unused, option
from torchrl_elegant.algorithms.off_policy import OffPolicyConfig
from torchrl_elegant.algorithms.optimiser import LeanAdam
from torchrl_elegant.algorithms.registry import register
from torchrl_elegant.algorithms.schedule import ActorSchedule, EveryUpdate
from torchrl_elegant.modules import (
    EnsembleCritic,
    FixedTemperature,
    LearnedTemperature,
    SquashedGaussianActor,
    Temperature,
    build_actor,
    build_critic,
)
from torchrl_elegant.objectives import LeanSoftUpdate, SACLoss


@register("sac")
@dataclass(frozen=True, kw_only=True)
class SACConfig(OffPolicyConfig):
    """Soft actor-critic (Haarnoja et al. 2018, arXiv:1812.05905).

    >>> from torchrl_elegant.envs import make_env
    >>> parts = SACConfig(num_cells=(8,), num_critics=5).build(make_env("Pendulum-v1"))
    >>> parts.loss.num_qvalue_nets
    5
    """

    actor_lr: float = option(3e-4, "learning rate of the actor")
    critic_lr: float = option(3e-4, "learning rate of the critics")
    alpha_lr: float = option(3e-4, "learning rate of the temperature")
    num_critics: int = option(2, "size of the critic ensemble")
    target_members: int | None = option(
        None, "critics drawn anew for each target's minimum; none: all"
    )
    actor_value: Literal["min", "mean"] = option("min", "what of the ensemble the actor raises")
    actor_period: int = option(1, "updates of the critics per update of actor and temperature")
    temperature: Literal["learned", "fixed"] = option("learned", "is alpha learnt or kept")
    alpha: float = option(1.0, "temperature at the start, or for good when fixed")
    target_entropy: float | None = option(
        None, "entropy alpha aims at, or is reported against; none: minus the action's dimensions"
    )
    loss_function: Literal["l2", "smooth_l1", "l1"] = option("l2", "distance of value and target")

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("actor_lr", "critic_lr", "alpha_lr", "alpha"):
            check(getattr(self, name) > 0, name, "be positive", getattr(self, name))
        if self.temperature == "fixed":
            check_unused(self, "alpha_lr", mode="temperature=fixed", other="temperature=learned")
        check(self.num_critics >= 1, "num_critics", "be at least 1", self.num_critics)
        check(self.actor_period >= 1, "actor_period", "be at least 1", self.actor_period)
        if type(self).build_schedule is not SACConfig.build_schedule:
            # Whoever decides by a rule of its own when the actor learns does not ask the period.
            mode = f"the actor schedule of {type(self).__name__}"
            check_unused(self, "actor_period", mode=mode, other="SACConfig")
        members = self.target_members
        check(
            members is None or 1 <= members <= self.num_critics,
            "target_members",
            f"lie between 1 and num_critics ({self.num_critics})",
            members,
        )

    def build(self, env: EnvBase) -> Parts:
        actor = build_actor(env, num_cells=self.num_cells, activation=self.activation)
        critic = build_critic(
            env,
            num_critics=self.num_critics,
            num_cells=self.num_cells,
            activation=self.activation,
        )
        loss = self.build_loss(actor, critic)
        loss.make_value_estimator(gamma=self.gamma)
        groups = [
            {"params": list(loss.actor_network_params.parameters()), "lr": self.actor_lr},
            {"params": list(loss.qvalue_network_params.parameters()), "lr": self.critic_lr},
        ]
        if self.temperature == "learned":
            groups.append({"params": [loss.log_alpha], "lr": self.alpha_lr})
        return Parts(
            policy=actor,
            loss=loss,
            optimizer=LeanAdam(groups),
            target_updater=LeanSoftUpdate(loss, tau=self.tau),
            schedule=self.build_schedule(),
        )

    def build_loss(self, actor: SquashedGaussianActor, critic: EnsembleCritic) -> SACLoss:
        """The loss over given networks."""
        return SACLoss(actor, critic, **self.loss_arguments())

    def build_schedule(self) -> ActorSchedule:
        """The rule that decides when the actor is updated."""
        return EveryUpdate(period=self.actor_period)

    def build_temperature(self) -> Temperature:
        """The temperature as an object."""
        target = "auto" if self.target_entropy is None else self.target_entropy
        if self.temperature == "fixed":
            return FixedTemperature(alpha=self.alpha, target_entropy=target)
        return LearnedTemperature(alpha=self.alpha, target_entropy=target)

    def loss_arguments(self) -> dict[str, Any]:
        """Keyword arguments that SAC's losses share."""
        return {
            "target_members": self.target_members,
            "actor_value": self.actor_value,
            "temperature": self.build_temperature(),
            "loss_function": self.loss_function,
        }
