"""PPO as a configuration."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
from torchrl.envs import EnvBase

from torchrl_elegant.algorithms.base import Parts, check, option
from torchrl_elegant.algorithms.on_policy import OnPolicyConfig
from torchrl_elegant.algorithms.registry import register
from torchrl_elegant.algorithms.schedules import Ramp, ramp_to
from torchrl_elegant.config.options import check_positive
from torchrl_elegant.modules import StateValue, StochasticActor
from torchrl_elegant.objectives import ClipPPOLoss
from torchrl_elegant.objectives.on_policy.loss import OnPolicyLoss


@register("ppo")
@dataclass(frozen=True, kw_only=True)
class PPOConfig(OnPolicyConfig):
    """Proximal policy optimisation (Schulman et al. 2017, arXiv:1707.06347).

    >>> from torchrl_elegant.envs import make_env
    >>> type(PPOConfig(num_cells=(8,)).build(make_env("CartPole-v1")).policy).__name__
    'CategoricalActor'
    """

    clip_epsilon: float = option(0.2, "how far the ratio of policies may leave 1 in one round")
    clip_epsilon_end: float | None = option(
        None, "the same at the run's end; none: as at its start"
    )
    target_kl: float | None = option(
        None, "divergence from the policy that collected a rollout that ends its epochs; none: any"
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("clip_epsilon", "clip_epsilon_end"):
            value = getattr(self, name)
            unset = value is None and name == "clip_epsilon_end"
            check(unset or 0.0 < value < 1.0, name, "lie in (0, 1)", value)
        check_positive(self, "target_kl")

    def build(self, env: EnvBase) -> Parts:
        return replace(super().build(env), target_kl=self.target_kl)

    def build_loss(self, actor: StochasticActor, critic: StateValue) -> ClipPPOLoss:
        return ClipPPOLoss(actor, critic, **self.loss_arguments())

    def build_ramps(self, loss: OnPolicyLoss, optimizer: torch.optim.Optimizer) -> tuple[Ramp, ...]:
        set_bound = partial(setattr, loss, "clip_epsilon")
        bound = ramp_to(self.clip_epsilon, self.clip_epsilon_end, set_bound)
        return (*super().build_ramps(loss, optimizer), *bound)

    def estimator_arguments(self) -> dict[str, Any]:
        # The surrogate weighs by the ratio of policies itself.
        own = {"weighted": False} if self.advantage == "vtrace" else {}
        return super().estimator_arguments() | own

    def loss_arguments(self) -> dict[str, Any]:
        own = {
            "clip_epsilon": self.clip_epsilon,
            "normalize_advantage": self.normalize_advantage,
        }
        return super().loss_arguments() | own
