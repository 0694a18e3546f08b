"""PPO as a configuration."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from torchrl.envs import EnvBase

from torchrl_elegant.algorithms.base import Parts, check, option
from torchrl_elegant.algorithms.on_policy import OnPolicyConfig
from torchrl_elegant.algorithms.optimiser import LeanAdam
from torchrl_elegant.algorithms.registry import register
from torchrl_elegant.modules import build_stochastic_actor, build_value
from torchrl_elegant.objectives import ClipPPOLoss


@register("ppo")
@dataclass(frozen=True, kw_only=True)
class PPOConfig(OnPolicyConfig):
    """Proximal policy optimisation (Schulman et al. 2017, arXiv:1707.06347).

    Continuous and discrete actions; the actor is Gaussian or categorical accordingly.

    >>> from torchrl_elegant.envs import make_env
    >>> type(PPOConfig(num_cells=(8,)).build(make_env("CartPole-v1")).policy).__name__
    'CategoricalActor'
    """

    clip_epsilon: float = option(0.2, "how far the ratio of policies may leave 1 in one round")
    clip_value: float | None = option(
        None, "how far values may move in one round before their loss stops shrinking; none: any"
    )
    loss_function: Literal["l2", "smooth_l1", "l1"] = option("l2", "distance of value and target")

    def __post_init__(self) -> None:
        super().__post_init__()
        check(0.0 < self.clip_epsilon < 1.0, "clip_epsilon", "lie in (0, 1)", self.clip_epsilon)
        clip = self.clip_value
        check(clip is None or clip > 0, "clip_value", "be positive or none", clip)

    def build(self, env: EnvBase) -> Parts:
        networks: dict[str, Any] = {"num_cells": self.num_cells, "activation": self.activation}
        actor = build_stochastic_actor(env, log_std=self.log_std, **networks)
        loss = ClipPPOLoss(actor, build_value(env, **networks), **self.loss_arguments())
        loss.make_value_estimator(gamma=self.gamma, lmbda=self.lmbda)
        if self.compile:
            loss.compile_terms()
        return Parts(policy=actor, loss=loss, optimizer=LeanAdam(loss.parameters(), lr=self.lr))

    def loss_arguments(self) -> dict[str, Any]:
        """Keyword arguments of the loss."""
        return {
            "clip_epsilon": self.clip_epsilon,
            "clip_value": self.clip_value,
            "entropy_bonus": self.entropy_coeff > 0,
            "entropy_coeff": self.entropy_coeff,
            "critic_coeff": self.critic_coeff,
            "loss_critic_type": self.loss_function,
            "normalize_advantage": self.normalize_advantage,
        }
