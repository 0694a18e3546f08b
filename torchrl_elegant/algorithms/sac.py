"""SAC: one configuration, and how it becomes a learner's parts."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal

from torchrl.envs import EnvBase

from torchrl_elegant.algorithms.base import check, check_positive, check_unused, option
from torchrl_elegant.algorithms.off_policy import ActorCriticConfig
from torchrl_elegant.algorithms.registry import register
from torchrl_elegant.modules import (
    EnsembleCritic,
    FixedTemperature,
    LearnedTemperature,
    SquashedGaussianActor,
    Temperature,
    build_actor,
)
from torchrl_elegant.objectives import SACLoss


@register("sac")
@dataclass(frozen=True, kw_only=True)
class SACConfig(ActorCriticConfig):
    """Soft actor-critic (Haarnoja et al. 2018, arXiv:1812.05905).

    >>> from torchrl_elegant.envs import make_env
    >>> parts = SACConfig(num_cells=(8,), num_critics=5).build(make_env("Pendulum-v1"))
    >>> parts.loss.num_qvalue_nets
    5
    """

    alpha_lr: float = option(3e-4, "learning rate of the temperature")
    num_critics: int = option(2, "size of the critic ensemble")
    target_members: int | None = option(
        None, "critics drawn anew for each target's minimum; none: all"
    )
    actor_value: Literal["min", "mean"] = option("min", "what of the ensemble the actor raises")
    temperature: Literal["learned", "fixed"] = option("learned", "is alpha learnt or kept")
    alpha: float = option(1.0, "temperature at the start, or for good when fixed")
    target_entropy: float | None = option(
        None, "entropy alpha aims at, or is reported against; none: minus the action's dimensions"
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        check_positive(self, "alpha_lr", "alpha")
        aim = self.target_entropy
        check(aim is None or math.isfinite(aim), "target_entropy", "be finite or none", aim)
        if self.temperature == "fixed":
            check_unused(self, "alpha_lr", mode="temperature=fixed", other="temperature=learned")
        check(self.num_critics >= 1, "num_critics", "be at least 1", self.num_critics)
        if type(self).build_schedule is not ActorCriticConfig.build_schedule:
            # Whoever decides by a rule of its own when the actor learns does not ask the period.
            mode = f"the actor schedule of {type(self).__name__}"
            check_unused(self, "actor_period", mode=mode, other="algorithm=sac")
        members = self.target_members
        check(
            members is None or 1 <= members <= self.num_critics,
            "target_members",
            f"lie between 1 and num_critics ({self.num_critics})",
            members,
        )

    @property
    def beginnings(self) -> tuple[str, ...]:
        return ("alpha",) if self.temperature == "learned" else ()

    @property
    def members(self) -> int:
        return self.num_critics

    def build_actor(self, env: EnvBase) -> SquashedGaussianActor:
        return build_actor(env, num_cells=self.num_cells, activation=self.activation)

    def build_loss(self, actor: SquashedGaussianActor, critic: EnsembleCritic) -> SACLoss:
        return SACLoss(actor, critic, **self.loss_arguments())

    def parameter_groups(self, loss: SACLoss) -> list[dict[str, Any]]:
        groups = super().parameter_groups(loss)
        if self.temperature == "learned":
            groups.append({"params": [loss.log_alpha], "lr": self.alpha_lr})
        return groups

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
