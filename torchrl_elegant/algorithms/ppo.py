"""PPO: its options and their parts."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
from torchrl.envs import EnvBase

from torchrl_elegant.algorithms.base import Parts, check, option
from torchrl_elegant.algorithms.on_policy import OnPolicyConfig
from torchrl_elegant.algorithms.registry import register
from torchrl_elegant.algorithms.schedules import KLRate, Ramp, ramp_to
from torchrl_elegant.config.rates import Rate, ends_of, first_of, rate_text
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
    lr_kl: float | None = option(
        None,
        "divergence to keep by moving lr within 1e-5 to 1e-2: lr falls by a third after an epoch "
        "above twice this value, and rises by half after one below half of it; none: lr is as "
        "set; try 0.01",
        above=0,
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        first, last = ends_of(self.lr)
        way_out = f"set lr={first}, or lr_kl=none"
        stays = self.lr_kl is None or first == last
        check(stays, "lr", "be one number with lr_kl", rate_text(self.lr), way_out)

    @property
    def settled(self) -> tuple[str, ...]:
        return (*super().settled, *(() if self.lr_kl is None else ("lr",)))

    def build(self, env: EnvBase) -> Parts:
        parts = super().build(env)
        rate = None if self.lr_kl is None else KLRate(parts.optimizer, target=self.lr_kl)
        return replace(parts, target_kl=self.target_kl, kl_rate=rate)

    def build_loss(self, actor: Any, critic: Any) -> ClipPPOLoss:
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
