"""Discrete SAC as a configuration."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from torchrl.envs import EnvBase

from torchrl_elegant.algorithms.adam import LeanAdam
from torchrl_elegant.algorithms.base import Parts, check, check_positive, check_unused, option
from torchrl_elegant.algorithms.off_policy import DiscreteOffPolicyConfig
from torchrl_elegant.algorithms.registry import register
from torchrl_elegant.modules import (
    FixedTemperature,
    LearnedTemperature,
    Temperature,
    build_categorical_actor,
    build_q_network,
)
from torchrl_elegant.objectives import DiscreteSACLoss, LeanSoftUpdate


@register("discrete_sac")
@dataclass(frozen=True, kw_only=True)
class DiscreteSACConfig(DiscreteOffPolicyConfig):
    """SAC over discrete actions (Christodoulou 2019, arXiv:1910.07207).

    >>> from torchrl_elegant.envs import make_env
    >>> parts = DiscreteSACConfig(num_cells=(8,)).build(make_env("CartPole-v1"))
    >>> type(parts.policy).__name__, parts.loss.num_qvalue_nets
    ('CategoricalActor', 2)
    """

    tau: float = option(0.01, "how far the target networks move at each update")
    actor_lr: float = option(1e-3, "learning rate of the actor")
    critic_lr: float = option(1e-3, "learning rate of the critics")
    alpha_lr: float = option(1e-3, "learning rate of the temperature")
    num_critics: int = option(2, "size of the critic ensemble")
    temperature: Literal["learned", "fixed"] = option("learned", "is alpha learnt or kept")
    alpha: float = option(1.0, "temperature at the start, or for good when fixed")
    # With a tenth, policies stay where the cart of CartPole drifts out after 300 steps.
    entropy_part: float = option(
        0.6, "entropy alpha aims at, or is reported against, as a part of the largest there is"
    )
    loss_function: Literal["l2", "smooth_l1", "l1"] = option("l2", "distance of value and target")

    def __post_init__(self) -> None:
        super().__post_init__()
        check_positive(self, "actor_lr", "critic_lr", "alpha_lr", "alpha")
        if self.temperature == "fixed":
            check_unused(self, "alpha_lr", mode="temperature=fixed", other="temperature=learned")
        check(self.num_critics >= 1, "num_critics", "be at least 1", self.num_critics)
        part = self.entropy_part
        check(0.0 <= part <= 1.0, "entropy_part", "lie in [0, 1]", part)

    @property
    def beginnings(self) -> tuple[str, ...]:
        return ("alpha",) if self.temperature == "learned" else ()

    def build(self, env: EnvBase) -> Parts:
        networks: dict[str, Any] = {"num_cells": self.num_cells, "activation": self.activation}
        actor = build_categorical_actor(env, **networks)
        loss = DiscreteSACLoss(
            actor,
            build_q_network(env, num_members=self.num_critics, **networks),
            temperature=self.build_temperature(),
            target_entropy_weight=self.entropy_part,
            loss_function=self.loss_function,
        )
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
        )

    def build_temperature(self) -> Temperature:
        """The temperature as an object."""
        kind = FixedTemperature if self.temperature == "fixed" else LearnedTemperature
        return kind(alpha=self.alpha)
