"""What all off-policy algorithms share that have an actor beside Q(s, a) critics."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import Any, Literal

from tensordict.nn import TensorDictModuleBase
from torchrl.envs import EnvBase

from torchrl_elegant.algorithms.base import Parts, check, check_positive, option
from torchrl_elegant.algorithms.off_policy import OffPolicyConfig
from torchrl_elegant.algorithms.optimiser import LeanAdam
from torchrl_elegant.algorithms.schedule import ActorSchedule, EveryUpdate
from torchrl_elegant.modules import EnsembleCritic, build_critic
from torchrl_elegant.objectives import LeanSoftUpdate
from torchrl_elegant.objectives.actor_critic import ActorCriticLoss


@dataclass(frozen=True, kw_only=True)
class ActorCriticConfig(OffPolicyConfig):
    """What all off-policy algorithms share that have an actor beside Q(s, a) critics.

    A subclass says how many critics there are, and builds the actor and the loss.
    """

    actor_lr: float = option(3e-4, "learning rate of the actor")
    critic_lr: float = option(3e-4, "learning rate of the critics")
    actor_period: int = option(1, "updates of the critics per update of the actor")
    loss_function: Literal["l2", "smooth_l1", "l1"] = option("l2", "distance of value and target")

    def __post_init__(self) -> None:
        super().__post_init__()
        check_positive(self, "actor_lr", "critic_lr")
        check(self.actor_period >= 1, "actor_period", "be at least 1", self.actor_period)

    def build(self, env: EnvBase) -> Parts:
        actor = self.build_actor(env)
        critic = build_critic(
            env, num_critics=self.members, num_cells=self.num_cells, activation=self.activation
        )
        loss = self.build_loss(actor, critic)
        loss.make_value_estimator(gamma=self.gamma)
        return Parts(
            policy=actor,
            loss=loss,
            optimizer=LeanAdam(self.parameter_groups(loss)),
            target_updater=self.build_updater(loss),
            schedule=self.build_schedule(),
        )

    @property
    @abstractmethod
    def members(self) -> int:
        """How many critics there are."""

    @abstractmethod
    def build_actor(self, env: EnvBase) -> TensorDictModuleBase:
        """The actor that learns."""

    @abstractmethod
    def build_loss(self, actor: Any, critic: EnsembleCritic) -> ActorCriticLoss:
        """The loss over given networks."""

    def build_updater(self, loss: ActorCriticLoss) -> LeanSoftUpdate:
        """What moves the target networks."""
        return LeanSoftUpdate(loss, tau=self.tau)

    def build_schedule(self) -> ActorSchedule:
        """The rule that decides when the actor is updated."""
        return EveryUpdate(period=self.actor_period)

    def parameter_groups(self, loss: Any) -> list[dict[str, Any]]:
        """What the optimiser learns, and how fast."""
        return [
            {"params": list(loss.actor_network_params.parameters()), "lr": self.actor_lr},
            {"params": list(loss.qvalue_network_params.parameters()), "lr": self.critic_lr},
        ]
