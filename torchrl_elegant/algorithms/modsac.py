"""ModSAC: the options that it adds to those of SAC's family."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from torchrl.data import TensorSpec

from torchrl_elegant.algorithms.base import option
from torchrl_elegant.algorithms.registry import register
from torchrl_elegant.algorithms.sac import EntropyRegularizedConfig
from torchrl_elegant.algorithms.schedules import ActorSchedule, CriticTrust
from torchrl_elegant.objectives import ModSACLoss


@register("modsac")
@dataclass(frozen=True, kw_only=True)
class ModSACConfig(EntropyRegularizedConfig):
    """SAC with an ensemble of critics, whose error decides how often the actor learns.

    >>> ModSACConfig().num_critics
    8
    """

    num_critics: int = 8
    actor_q: Literal["min", "mean"] = option(
        "mean", "Q-value that the actor maximizes: min or mean over the critics", topic="critics"
    )
    std_regularization: float = option(
        0.0,
        "weight of the loss that moves the policy's std to its mean; try 0.0625",
        topic="actor",
        low=0,
    )
    trust_decay: float = option(0.995, "decay of the running critic error", low=0, below=1)
    trust_window: int = option(
        1_000, "updates after which the count of actor updates starts anew", low=1
    )

    def build_loss(self, actor: Any, critic: Any, *, action_spec: TensorSpec) -> ModSACLoss:
        return ModSACLoss(
            actor,
            critic,
            actor_q=self.actor_q,
            std_regularization=self.std_regularization,
            **self.loss_arguments(action_spec),
        )

    def build_schedule(self) -> ActorSchedule:
        return CriticTrust(decay=self.trust_decay, window=self.trust_window)
