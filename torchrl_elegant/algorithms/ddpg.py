"""DDPG: one configuration, and how it becomes a learner's parts."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal

from torchrl.envs import EnvBase

from torchrl_elegant.algorithms.base import Parts, option
from torchrl_elegant.algorithms.off_policy import ActorCriticConfig
from torchrl_elegant.algorithms.registry import register
from torchrl_elegant.algorithms.schedules import Ramp
from torchrl_elegant.config.options import check_not_negative
from torchrl_elegant.modules import (
    DeterministicActor,
    EnsembleCritic,
    GaussianNoise,
    Noise,
    NoisyActor,
    OrnsteinUhlenbeckNoise,
    build_deterministic_actor,
)
from torchrl_elegant.objectives import DDPGLoss


@register("ddpg")
@dataclass(frozen=True, kw_only=True)
class DDPGConfig(ActorCriticConfig):
    """Deep deterministic policy gradient (Lillicrap et al. 2015, arXiv:1509.02971).

    >>> from torchrl_elegant.envs import make_env
    >>> parts = DDPGConfig(num_cells=(8,), noise="ou").build(make_env("Pendulum-v1"))
    >>> parts.policy.noise.theta
    0.15
    """

    deterministic: ClassVar[bool] = True

    actor_lr: float = option(1e-3, "learning rate of the actor")
    critic_lr: float = option(1e-3, "learning rate of the critics")
    noise: Literal["gaussian", "ou"] = option(
        "gaussian", "exploration: drawn anew at each step, or drifting (Ornstein-Uhlenbeck)"
    )
    noise_std: float = option(
        0.1, "spread of the exploration, of actions from -1 to 1; sigma of ou"
    )
    noise_std_end: float | None = option(None, "the spread at the end of the run; none: it stays")

    def __post_init__(self) -> None:
        super().__post_init__()
        check_not_negative(self, "noise_std", "noise_std_end")

    def build(self, env: EnvBase) -> Parts:
        parts = super().build(env)
        noise = self.build_noise()
        end = self.noise_std if self.noise_std_end is None else self.noise_std_end
        # Also where it stays: a resumed run takes the spread from here, not from what was stored.
        ramp = Ramp(start=self.noise_std, end=end, apply=noise.set_scale)
        policy = NoisyActor(parts.policy, noise)
        return replace(
            parts,
            policy=policy if env.device is None else policy.to(env.device),
            ramps=(*parts.ramps, ramp),
        )

    @property
    def members(self) -> int:
        return 1

    def build_actor(self, env: EnvBase) -> DeterministicActor:
        return build_deterministic_actor(env, num_cells=self.num_cells, activation=self.activation)

    def build_noise(self) -> Noise:
        """What explores."""
        if self.noise == "ou":
            return OrnsteinUhlenbeckNoise(sigma=self.noise_std)
        return GaussianNoise(std=self.noise_std)

    def build_loss(self, actor: DeterministicActor, critic: EnsembleCritic) -> Any:
        return DDPGLoss(actor, critic, delay_actor=True, loss_function=self.loss_function)
