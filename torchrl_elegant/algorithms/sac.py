"""SAC, and the options that it shares with ModSAC and REDQ."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from torch import Tensor, nn
from torchrl.data import TensorSpec
from torchrl.envs import EnvBase

from torchrl_elegant.algorithms.base import check, check_unused, option
from torchrl_elegant.algorithms.off_policy import (
    ActorCriticConfig,
    DistributionalConfig,
    OffPolicyConfig,
    PeriodicActorConfig,
)
from torchrl_elegant.algorithms.registry import register
from torchrl_elegant.config.rates import Rate
from torchrl_elegant.modules import (
    FixedTemperature,
    LearnedTemperature,
    Temperature,
    build_actor,
)
from torchrl_elegant.objectives import SACLoss


@dataclass(frozen=True, kw_only=True)
class TemperatureConfig(OffPolicyConfig):
    """Options of the temperature, the weight of entropy in SAC and in discrete SAC."""

    temperature: Literal["learned", "fixed"] = option(
        "learned", "learn the temperature alpha, or keep it", topic="temperature"
    )
    alpha: float = option(1.0, "temperature at the start, or for good when fixed", above=0)
    alpha_lr: Rate = option(3e-4, "learning rate of the temperature", above=0, last=0)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.temperature == "fixed":
            check_unused(self, "alpha_lr", mode="temperature=fixed", other="temperature=learned")

    @property
    def settled(self) -> tuple[str, ...]:
        started = ("alpha",) if self.temperature == "learned" else ()
        return (*super().settled, "temperature", *started)


@dataclass(frozen=True, kw_only=True)
class EntropyRegularizedConfig(ActorCriticConfig, TemperatureConfig):
    """Options that SAC, ModSAC and REDQ share: an ensemble of critics and an entropy to aim at."""

    target_entropy: float | None = option(
        None,
        "entropy that alpha aims at; none: minus the number of the action's dimensions",
        topic="temperature",
    )
    num_critics: int = option(2, "number of critics", topic="critics", low=1)
    target_members: int | None = option(
        None, "critics drawn anew for the minimum of each target; none: all", low=1
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        drawn = self.target_members or 1
        must = f"lie between 1 and num_critics ({self.num_critics})"
        check(drawn <= self.num_critics, "target_members", must, drawn)

    @property
    def settled(self) -> tuple[str, ...]:
        return (*super().settled, "num_critics")

    @property
    def members(self) -> int:
        return self.num_critics

    def build_actor(self, env: EnvBase) -> nn.Module:
        return build_actor(env, **self.network_options(self.actor_keys))

    def parameter_groups(self, loss: Any) -> list[tuple[list[Tensor], Rate]]:
        groups = super().parameter_groups(loss)
        if self.temperature == "learned":
            groups.append(([loss.log_alpha], self.alpha_lr))
        return groups

    def build_temperature(self) -> Temperature:
        """Make the temperature."""
        target = "auto" if self.target_entropy is None else self.target_entropy
        if self.temperature == "fixed":
            return FixedTemperature(alpha=self.alpha, target_entropy=target)
        return LearnedTemperature(alpha=self.alpha, target_entropy=target)

    def loss_arguments(self, action_spec: TensorSpec) -> dict[str, Any]:
        """Keyword arguments that the losses of SAC's family share."""
        return {
            "action_spec": action_spec,
            "num_qvalue_nets": self.num_critics,
            "target_members": self.target_members,
            "temperature": self.build_temperature(),
            "loss_function": self.loss_function,
        }


@register("sac")
@dataclass(frozen=True, kw_only=True)
class SACConfig(PeriodicActorConfig, EntropyRegularizedConfig, DistributionalConfig):
    """Soft actor-critic (Haarnoja et al. 2018, arXiv:1812.05905).

    >>> from torchrl_elegant.envs import make_env
    >>> parts = SACConfig(num_cells=(8,), num_critics=5).build(make_env("Pendulum-v1"))
    >>> parts.loss.num_qvalue_nets
    5
    """

    actor_q: Literal["min", "mean"] = option(
        "min", "Q-value that the actor maximizes: min or mean over the critics", topic="critics"
    )

    def build_loss(self, actor: Any, critic: Any, *, action_spec: TensorSpec) -> SACLoss:
        return SACLoss(actor, critic, actor_q=self.actor_q, **self.loss_arguments(action_spec))
