"""Discrete SAC: its options and their parts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from torch import nn
from torchrl.envs import EnvBase

from torchrl_elegant.algorithms.base import Parts, option
from torchrl_elegant.algorithms.off_policy import DiscreteOffPolicyConfig
from torchrl_elegant.algorithms.registry import register
from torchrl_elegant.algorithms.sac import TemperatureConfig
from torchrl_elegant.algorithms.schedules import build_adam
from torchrl_elegant.config.rates import Rate
from torchrl_elegant.modules import (
    FixedTemperature,
    LearnedTemperature,
    Temperature,
    build_categorical_actor,
    build_q_network,
    fit_actor,
    fit_q_network,
    trained,
)
from torchrl_elegant.objectives import DiscreteSACLoss, LeanSoftUpdate


@register("discrete_sac")
@dataclass(frozen=True, kw_only=True)
class DiscreteSACConfig(DiscreteOffPolicyConfig, TemperatureConfig):
    """SAC over discrete actions (Christodoulou 2019, arXiv:1910.07207).

    >>> from torchrl_elegant.envs import make_env
    >>> parts = DiscreteSACConfig(num_cells=(8,)).build(make_env("CartPole-v1"))
    >>> type(parts.policy).__name__, parts.loss.num_qvalue_nets
    ('CategoricalActor', 2)
    """

    tau: float = 0.01
    actor_lr: Rate = option(1e-3, "learning rate of the actor", topic="learning", above=0, last=0)
    critic_lr: Rate = option(1e-3, "learning rate of the critics", above=0, last=0)
    loss_function: Literal["l2", "smooth_l1", "l1"] = option("l2", "distance of value and target")
    num_critics: int = option(2, "number of critics", topic="critics", low=1)
    alpha_lr: Rate = 1e-3
    # With 0.1, policies stay where the cart of CartPole drifts out after 300 steps.
    target_entropy_weight: float = option(
        0.6,
        "entropy that alpha aims at, as a fraction of the largest possible",
        topic="temperature",
        low=0,
        high=1,
    )

    @property
    def settled(self) -> tuple[str, ...]:
        return (*super().settled, "num_critics")

    @property
    def network_count(self) -> int:
        return 1 + 2 * self.num_critics

    def build(self, env: EnvBase) -> Parts:
        given = self.place("actor", env, self.build_actor)
        actor = fit_actor(given, env, kind="sampling", in_keys=self.own_keys(self.actor_keys))
        given = self.place("critic", env, self.build_critic)
        critic = fit_q_network(given, env, in_keys=self.own_keys(self.critic_keys))
        loss = DiscreteSACLoss(
            trained(actor),
            trained(critic),
            action_space=critic.action_space,
            num_actions=critic.choices,
            num_qvalue_nets=self.num_critics,
            temperature=self.build_temperature(),
            target_entropy_weight=self.target_entropy_weight,
            loss_function=self.loss_function,
        )
        loss.make_value_estimator(gamma=self.gamma)
        groups = [
            (list(loss.actor_network_params.parameters()), self.actor_lr),
            (list(loss.qvalue_network_params.parameters()), self.critic_lr),
        ]
        if self.temperature == "learned":
            groups.append(([loss.log_alpha], self.alpha_lr))
        optimizer, ramps = build_adam(groups)
        return Parts(
            policy=actor,
            loss=loss,
            optimizer=optimizer,
            target_updater=LeanSoftUpdate(loss, tau=self.tau),
            ramps=ramps,
        )

    def build_actor(self, env: EnvBase) -> nn.Module:
        """Make the actor that learns."""
        return build_categorical_actor(env, **self.network_options(self.actor_keys))

    def build_critic(self, env: EnvBase) -> nn.Module:
        """Make the network that values each action."""
        networks = self.network_options(self.critic_keys, of="critics")
        return build_q_network(env, num_members=self.num_critics, **networks)

    def build_temperature(self) -> Temperature:
        """Make the temperature."""
        kind = FixedTemperature if self.temperature == "fixed" else LearnedTemperature
        return kind(alpha=self.alpha)
