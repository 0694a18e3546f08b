"""PPO: its options and their parts."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
from torchrl.envs import EnvBase

from torchrl_elegant.algorithms.base import Parts, option
from torchrl_elegant.algorithms.on_policy import OnPolicyConfig
from torchrl_elegant.algorithms.registry import register
from torchrl_elegant.algorithms.schedules import Ramp, ramp_to
from torchrl_elegant.config.rates import Rate, first_of
from torchrl_elegant.modules import StateValue, StochasticActor
from torchrl_elegant.objectives import ClipPPOLoss
from torchrl_elegant.objectives.on_policy.base import OnPolicyLoss


@register("ppo")
@dataclass(frozen=True, kw_only=True)
class PPOConfig(OnPolicyConfig):
    """Proximal policy optimization (Schulman et al. 2017, arXiv:1707.06347).

    >>> from torchrl_elegant.envs import make_env
    >>> type(PPOConfig(num_cells=(8,)).build(make_env("CartPole-v1")).policy).__name__
    'CategoricalActor'
    """

    clip_epsilon: Rate = option(
        0.2,
        "distance of the ratio of policies from 1 at which it is clipped",
        topic="learning",
        above=0,
        below=1,
    )
    target_kl: float | None = option(
        None, "divergence from the collecting policy that ends the epochs; none: any", above=0
    )

    def build(self, env: EnvBase) -> Parts:
        return replace(super().build(env), target_kl=self.target_kl)

    def build_loss(self, actor: StochasticActor, critic: StateValue) -> ClipPPOLoss:
        return ClipPPOLoss(actor, critic, **self.loss_arguments())

    def build_ramps(self, loss: OnPolicyLoss, optimizer: torch.optim.Optimizer) -> tuple[Ramp, ...]:
        set_bound = partial(setattr, loss, "clip_epsilon")
        return (*super().build_ramps(loss, optimizer), *ramp_to(self.clip_epsilon, set_bound))

    def estimator_arguments(self) -> dict[str, Any]:
        # The surrogate weighs by the ratio of policies itself.
        own = {"weighted": False} if self.advantage == "vtrace" else {}
        return super().estimator_arguments() | own

    def loss_arguments(self) -> dict[str, Any]:
        own = {
            "clip_epsilon": first_of(self.clip_epsilon),
            "normalize_advantage": self.normalize_advantage,
        }
        return super().loss_arguments() | own
