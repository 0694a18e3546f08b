"""TD3: the options that it adds to those of DDPG."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from torchrl.data import TensorSpec

from torchrl_elegant.algorithms.base import option
from torchrl_elegant.algorithms.ddpg import DDPGConfig
from torchrl_elegant.algorithms.off_policy import DistributionalConfig
from torchrl_elegant.algorithms.registry import register
from torchrl_elegant.objectives import LeanSoftUpdate, TD3Loss
from torchrl_elegant.objectives.off_policy.base import OffPolicyLoss


@register("td3")
@dataclass(frozen=True, kw_only=True)
class TD3Config(DDPGConfig, DistributionalConfig):
    """Twin delayed DDPG (Fujimoto et al. 2018, arXiv:1802.09477): DDPG with several critics, a
    smoothed target, and an actor that follows with all target networks at every second update.

    >>> TD3Config().num_critics, TD3Config().actor_period
    (2, 2)
    """

    actor_period: int = option(2, "updates of the critics per update of actor and target networks")
    num_critics: int = option(2, "number of critics", topic="critics", low=1)
    actor_q: Literal["first", "min", "mean"] = option(
        "first",
        "Q-value that the actor maximizes: of the first critic, or min or mean over the critics",
    )
    policy_noise: float = option(0.2, "spread of the noise on the target's action", low=0)
    noise_clip: float = option(0.5, "largest noise on the target's action", low=0)

    @property
    def settled(self) -> tuple[str, ...]:
        return (*super().settled, "num_critics")

    @property
    def members(self) -> int:
        return self.num_critics

    def build_loss(self, actor: Any, critic: Any, *, action_spec: TensorSpec) -> TD3Loss:
        return TD3Loss(actor, critic, **self.loss_arguments(action_spec))

    def loss_arguments(self, action_spec: TensorSpec) -> dict[str, Any]:
        """Keyword arguments of the loss."""
        return {
            "action_spec": action_spec,
            "num_qvalue_nets": self.num_critics,
            "actor_q": self.actor_q,
            "policy_noise": self.policy_noise,
            "noise_clip": self.noise_clip,
            "loss_function": self.loss_function,
        }

    def build_updater(self, loss: OffPolicyLoss) -> LeanSoftUpdate:
        return LeanSoftUpdate(loss, tau=self.tau, period=self.actor_period)
