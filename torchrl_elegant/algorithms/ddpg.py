"""DDPG: its options and their parts."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal

from torch import nn
from torchrl.data import TensorSpec
from torchrl.envs import EnvBase

from torchrl_elegant.algorithms.base import Parts, check, check_unused, option
from torchrl_elegant.algorithms.off_policy import PeriodicActorConfig
from torchrl_elegant.algorithms.registry import register
from torchrl_elegant.algorithms.schedules import Ramp
from torchrl_elegant.config.rates import Rate, ends_of, first_of, rate_text
from torchrl_elegant.modules import (
    GaussianNoise,
    MixedNoise,
    Noise,
    NoisyActor,
    OrnsteinUhlenbeckNoise,
    build_deterministic_actor,
)
from torchrl_elegant.objectives import DDPGLoss


@register("ddpg")
@dataclass(frozen=True, kw_only=True)
class DDPGConfig(PeriodicActorConfig):
    """Deep deterministic policy gradient (Lillicrap et al. 2015, arXiv:1509.02971).

    >>> from torchrl_elegant.envs import make_env
    >>> parts = DDPGConfig(num_cells=(8,), noise="ou").build(make_env("Pendulum-v1"))
    >>> parts.policy.noise.theta
    0.15
    """

    deterministic: ClassVar[bool] = True

    actor_lr: Rate = 1e-3
    critic_lr: Rate = 1e-3
    noise: Literal["gaussian", "ou", "mixed"] = option(
        "gaussian",
        "exploration noise: new at each step, or drifting (Ornstein-Uhlenbeck); mixed: new at each "
        "step, with a spread for each environment that is drawn anew for each episode",
        topic="exploration",
    )
    noise_std: Rate = option(
        0.1, "spread of the noise for actions from -1 to 1; sigma of ou, largest of mixed", low=0
    )
    noise_least: float = option(0.0, "smallest spread of mixed noise", low=0)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.noise != "mixed":
            check_unused(self, "noise_least", mode=f"noise={self.noise}", other="noise=mixed")
        most = min(ends_of(self.noise_std))
        must = f"be at most noise_std ({rate_text(self.noise_std)})"
        check(self.noise_least <= most, "noise_least", must, self.noise_least)

    def build(self, env: EnvBase) -> Parts:
        parts = super().build(env)
        noise = self.build_noise()
        # Also where it stays: a resumed run takes the spread from here, not from what was stored.
        ramp = Ramp(rate=self.noise_std, apply=noise.set_scale)
        policy = NoisyActor(parts.policy, noise)
        return replace(
            parts,
            policy=policy if env.device is None else policy.to(env.device),
            ramps=(*parts.ramps, ramp),
        )

    @property
    def members(self) -> int:
        return 1

    def build_actor(self, env: EnvBase) -> nn.Module:
        return build_deterministic_actor(env, **self.network_options(self.actor_keys))

    def build_noise(self) -> Noise:
        """Make the exploration noise."""
        if self.noise == "ou":
            return OrnsteinUhlenbeckNoise(sigma=first_of(self.noise_std))
        if self.noise == "mixed":
            return MixedNoise(std=first_of(self.noise_std), least=self.noise_least)
        return GaussianNoise(std=first_of(self.noise_std))

    def build_loss(self, actor: Any, critic: Any, *, action_spec: TensorSpec) -> Any:
        return DDPGLoss(actor, critic, delay_actor=True, loss_function=self.loss_function)
