"""What all algorithms share that learn from a replay buffer."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import ClassVar

from torchrl_elegant.algorithms.base import AlgorithmConfig, check, option

# Handing over sixteen frames at once costs little more than one, and no policy ages in sixteen.
_FRAMES = 16


@dataclass(frozen=True, kw_only=True)
class OffPolicyConfig(AlgorithmConfig):
    """What all algorithms share that learn from a replay buffer."""

    actions: ClassVar[tuple[str, ...]] = ("continuous",)

    gamma: float = option(0.99, "discount factor")
    tau: float = option(0.005, "how far the target networks move at each update")
    batch_size: int = option(256, "transitions per update")
    buffer_size: int = option(1_000_000, "transitions the replay buffer holds")
    warmup: int = option(1_000, "frames of random actions before learning starts")
    updates_per_frame: float = option(1.0, "updates of the critics per collected frame")
    num_cells: tuple[int, ...] = option((256, 256), "sizes of the hidden layers of all networks")
    activation: str = option("relu", "activation of the hidden layers: relu, tanh, silu, elu, ...")
    max_grad_norm: float | None = option(None, "largest norm of the gradient; none: no clipping")

    def __post_init__(self) -> None:
        super().__post_init__()
        check(0.0 < self.tau <= 1.0, "tau", "lie in (0, 1]", self.tau)
        check(self.buffer_size >= 1, "buffer_size", "be at least 1", self.buffer_size)
        check(self.warmup >= 0, "warmup", "be 0 or more", self.warmup)
        rate = self.updates_per_frame
        check(0 < rate < math.inf, "updates_per_frame", "be positive and finite", rate)
        check(
            self.batch_size <= self.buffer_size,
            "batch_size",
            f"be at most buffer_size ({self.buffer_size})",
            self.batch_size,
        )

    def frames_per_batch(self, *, total_frames: int, num_envs: int) -> int:
        """The most steps up to the usual batch after which ``total_frames`` is met exactly.

        >>> from torchrl_elegant.algorithms import SACConfig
        >>> SACConfig().frames_per_batch(total_frames=30_000, num_envs=4)
        16
        """
        most = max(1, _FRAMES // num_envs)
        fitting = [n for n in range(1, most + 1) if total_frames % (n * num_envs) == 0]
        return num_envs * max(fitting, default=most)

    def check_budget(self, *, total_frames: int, frames_per_batch: int) -> None:
        updates = self.updates_per_frame * (total_frames - self.warmup)
        check(
            updates + 1e-6 >= 1,
            "total_frames",
            f"leave frames to learn from with warmup={self.warmup} and "
            f"updates_per_frame={self.updates_per_frame:g}",
            total_frames,
            "no update would ever be made: raise total_frames or lower warmup",
        )

    def share(self, ranks: int) -> OffPolicyConfig:
        return replace(
            self, batch_size=self.batch_size // ranks, buffer_size=-(-self.buffer_size // ranks)
        )
