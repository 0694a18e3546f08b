"""A2C: its options and their parts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import torch

from torchrl_elegant.algorithms.base import check, option
from torchrl_elegant.algorithms.on_policy import OnPolicyConfig
from torchrl_elegant.algorithms.registry import register
from torchrl_elegant.config.rates import Rate, first_of
from torchrl_elegant.objectives import A2CLoss
from torchrl_elegant.objectives.on_policy.base import OnPolicyLoss


@register("a2c")
@dataclass(frozen=True, kw_only=True)
class A2CConfig(OnPolicyConfig):
    """Advantage actor-critic (Mnih et al. 2016, arXiv:1602.01783), all environments in step.

    One update per short rollout, which is one batch unless ``frames_per_batch`` says otherwise.

    >>> A2CConfig(batch_size=64).frames_per_batch(total_frames=10_000, num_envs=10)
    60
    """

    epochs: int = 1
    batch_size: int = option(64, "most transitions per update; as many make a rollout")
    lr: Rate = 7e-4
    optimizer: Literal["adam", "rmsprop"] = option(
        "adam", "adam, or rmsprop as in the paper", topic="learning"
    )
    normalize_advantage: bool = option(
        False, "scale the advantages of each rollout to mean 0, std 1"
    )

    def frames_per_batch(self, *, total_frames: int, num_envs: int) -> int:
        """Whole steps of all environments that make at most one batch."""
        return max(1, min(self.batch_size, total_frames) // num_envs) * num_envs

    def check_budget(self, *, total_frames: int, frames_per_batch: int, num_envs: int = 1) -> None:
        single = frames_per_batch > 1 or not self.normalize_advantage
        way_out = "a single advantage has no spread: raise it or unset normalize_advantage"
        check(single, "frames_per_batch", "exceed 1 to normalize", frames_per_batch, way_out)

    def build_loss(self, actor: Any, critic: Any) -> A2CLoss:
        return A2CLoss(actor, critic, **self.loss_arguments())

    def build_optimizer(self, loss: OnPolicyLoss) -> torch.optim.Optimizer:
        if self.optimizer == "adam":
            return super().build_optimizer(loss)
        # Decay and epsilon of the paper's implementation, as Stable-Baselines3 has them.
        return torch.optim.RMSprop(loss.parameters(), lr=first_of(self.lr), alpha=0.99, eps=1e-5)

    def estimator_arguments(self) -> dict[str, Any]:
        name = {"gae": "average_gae", "vtrace": "average_adv"}[self.advantage]
        return super().estimator_arguments() | {name: self.normalize_advantage}
