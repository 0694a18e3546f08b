"""TD3: what its configuration adds to DDPG's."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from torchrl_elegant.algorithms.base import check, option
from torchrl_elegant.algorithms.ddpg import DDPGConfig
from torchrl_elegant.algorithms.registry import register
from torchrl_elegant.config.options import check_not_negative
from torchrl_elegant.modules import DeterministicActor, EnsembleCritic
from torchrl_elegant.objectives import LeanSoftUpdate, TD3Loss
from torchrl_elegant.objectives.off_policy.actor_critic import ActorCriticLoss


@register("td3")
@dataclass(frozen=True, kw_only=True)
class TD3Config(DDPGConfig):
    """Twin delayed DDPG (Fujimoto et al. 2018, arXiv:1802.09477): DDPG with several critics, a
    smoothed target, and an actor that follows with all target networks at every second update.

    >>> TD3Config().num_critics, TD3Config().actor_period
    (2, 2)
    """

    actor_period: int = option(2, "updates of the critics per update of actor and target networks")
    num_critics: int = option(2, "size of the critic ensemble")
    actor_value: Literal["first", "min", "mean"] = option(
        "first", "what of the ensemble the actor raises"
    )
    policy_noise: float = option(0.2, "spread of the noise on the target's action")
    noise_clip: float = option(0.5, "largest noise on the target's action")

    def __post_init__(self) -> None:
        super().__post_init__()
        check(self.num_critics >= 1, "num_critics", "be at least 1", self.num_critics)
        check_not_negative(self, "policy_noise", "noise_clip")

    @property
    def members(self) -> int:
        return self.num_critics

    def build_loss(self, actor: DeterministicActor, critic: EnsembleCritic) -> TD3Loss:
        return TD3Loss(
            actor,
            critic,
            actor_value=self.actor_value,
            policy_noise=self.policy_noise,
            noise_clip=self.noise_clip,
            loss_function=self.loss_function,
        )

    def build_updater(self, loss: ActorCriticLoss) -> LeanSoftUpdate:
        return LeanSoftUpdate(loss, tau=self.tau, period=self.actor_period)
