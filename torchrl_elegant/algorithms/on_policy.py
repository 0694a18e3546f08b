"""What all algorithms share that learn from what the present policy has just collected."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from torchrl_elegant.algorithms.base import AlgorithmConfig, check, option

# Frames of one rollout over all environments, as in Schulman et al. 2017, table 3.
_FRAMES = 2048


@dataclass(frozen=True, kw_only=True)
class OnPolicyConfig(AlgorithmConfig):
    """What all algorithms share that learn from what the present policy has just collected."""

    gamma: float = option(0.99, "discount factor")
    lmbda: float = option(0.95, "decay of the advantages' sum: 0 for one step, 1 for whole returns")
    epochs: int = option(10, "passes over each rollout")
    batch_size: int = option(64, "transitions per update")
    lr: float = option(3e-4, "learning rate of actor and critic")
    critic_coeff: float = option(0.5, "weight of the critic's loss")
    entropy_coeff: float = option(0.0, "weight of the entropy bonus")
    normalize_advantage: bool = option(True, "scale the advantages of each update to mean 0, std 1")
    log_std: float = option(0.0, "logarithm of a continuous action's spread at the start")
    compile: bool = option(False, "compile the loss: half a minute that pays in long runs")
    num_cells: tuple[int, ...] = option((64, 64), "sizes of the hidden layers of both networks")
    activation: str = option("tanh", "activation of the hidden layers: tanh, relu, silu, elu, ...")
    max_grad_norm: float | None = option(0.5, "largest norm of the gradient; none: no clipping")

    def __post_init__(self) -> None:
        super().__post_init__()
        check(0.0 <= self.lmbda <= 1.0, "lmbda", "lie in [0, 1]", self.lmbda)
        check(self.epochs >= 1, "epochs", "be at least 1", self.epochs)
        check(self.lr > 0, "lr", "be positive", self.lr)
        for name in ("critic_coeff", "entropy_coeff"):
            value = getattr(self, name)
            check(0.0 <= value < math.inf, name, "be 0 or more and finite", value)
        check(self.critic_coeff > 0, "critic_coeff", "be positive", self.critic_coeff)
        check(math.isfinite(self.log_std), "log_std", "be finite", self.log_std)
        single = self.batch_size > 1 or not self.normalize_advantage
        way_out = "a single advantage has no spread: raise batch_size or unset normalize_advantage"
        check(single, "batch_size", "exceed 1 to normalise", self.batch_size, way_out)

    def frames_per_batch(self, *, total_frames: int, num_envs: int) -> int:
        """2048 frames, or what ``total_frames`` allows, in whole steps of all environments.

        >>> from torchrl_elegant.algorithms import PPOConfig
        >>> PPOConfig().frames_per_batch(total_frames=100_000, num_envs=10)
        2050
        """
        return -(-min(_FRAMES, total_frames) // num_envs) * num_envs

    def check_budget(self, *, total_frames: int, frames_per_batch: int) -> None:
        check(
            self.batch_size <= frames_per_batch,
            "batch_size",
            f"be at most frames_per_batch ({frames_per_batch})",
            self.batch_size,
            "lower batch_size or raise frames_per_batch",
        )

    def share(self, ranks: int) -> OnPolicyConfig:
        return replace(self, batch_size=self.batch_size // ranks)
