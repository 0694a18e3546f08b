"""ModSAC: what its configuration adds to SAC's."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from torchrl_elegant.algorithms.base import check, option
from torchrl_elegant.algorithms.registry import register
from torchrl_elegant.algorithms.sac import SACConfig
from torchrl_elegant.algorithms.schedules import ActorSchedule, CriticTrust
from torchrl_elegant.config.options import check_not_negative
from torchrl_elegant.modules import EnsembleCritic, SquashedGaussianActor
from torchrl_elegant.objectives import ModSACLoss


@register("modsac")
@dataclass(frozen=True, kw_only=True)
class ModSACConfig(SACConfig):
    """SAC with an ensemble of critics and an actor whose updates follow their error.

    >>> ModSACConfig().num_critics
    8
    """

    num_critics: int = option(8, "size of the critic ensemble")
    actor_value: Literal["min", "mean"] = option("mean", "what of the ensemble the actor raises")
    trust_decay: float = option(0.995, "memory of the running critic error")
    trust_window: int = option(1_000, "updates after which the rule's counters start again")
    std_pull: float = option(0.0, "weight of the pull of the policy's std to its mean; try 0.0625")

    def __post_init__(self) -> None:
        super().__post_init__()
        check(0.0 <= self.trust_decay < 1.0, "trust_decay", "lie in [0, 1)", self.trust_decay)
        check(self.trust_window >= 1, "trust_window", "be at least 1", self.trust_window)
        check_not_negative(self, "std_pull")

    def build_loss(self, actor: SquashedGaussianActor, critic: EnsembleCritic) -> ModSACLoss:
        return ModSACLoss(actor, critic, std_pull=self.std_pull, **self.loss_arguments())

    def build_schedule(self) -> ActorSchedule:
        return CriticTrust(decay=self.trust_decay, window=self.trust_window)
