"""What off-policy algorithms over discrete actions share."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torchrl_elegant.algorithms.base import option
from torchrl_elegant.algorithms.off_policy import OffPolicyConfig


@dataclass(frozen=True, kw_only=True)
class DiscreteOffPolicyConfig(OffPolicyConfig):
    """What off-policy algorithms over discrete actions share: other defaults.

    Targets add up five rewards (Sutton 1988; Hessel et al. 2018 take three). With one, as in the
    papers of DQN and discrete SAC, values creep up everywhere alike before they tell actions apart,
    and many a CartPole is not balanced after 40,000 frames.
    """

    actions: ClassVar[tuple[str, ...]] = ("discrete",)
    example: ClassVar[str] = "CartPole-v1"

    batch_size: int = option(128, "transitions per update")
    buffer_size: int = option(100_000, "transitions the replay buffer holds")
    updates_per_frame: float = option(0.5, "updates of the critics per collected frame")
    num_cells: tuple[int, ...] = option((128, 128), "sizes of the hidden layers of all networks")
    n_steps: int = option(5, "rewards that a target adds up before it looks at a value")
