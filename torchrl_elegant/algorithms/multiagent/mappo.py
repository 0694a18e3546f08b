"""MAPPO and IPPO: their options and their parts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from torch import nn
from torchrl.modules import PopArtValueNorm

from torchrl_elegant.algorithms.base import Parts, option
from torchrl_elegant.algorithms.multiagent.base import TeamOptions
from torchrl_elegant.algorithms.ppo import PPOConfig
from torchrl_elegant.algorithms.registry import register
from torchrl_elegant.algorithms.symmetry import SymmetryConfig
from torchrl_elegant.config.rates import Rate
from torchrl_elegant.modules.multiagent.build import build_team_value
from torchrl_elegant.modules.multiagent.critics import Sees
from torchrl_elegant.objectives import MAPPOLoss

# Steps of each environment in a rollout.
_STEPS = 100


@register("mappo")
@dataclass(frozen=True, kw_only=True)
class MAPPOConfig(TeamOptions, PPOConfig):
    """Multi-agent PPO (Yu et al. 2022, arXiv:2103.01955): a critic that sees the whole team.

    >>> from torchrl_elegant.envs import make_env
    >>> parts = MAPPOConfig(num_cells=(8,)).assemble(make_env("vmas/navigation", 2))
    >>> parts.loss.critic_network.out_keys
    [('agents', 'state_value')]
    """

    batch_size: int = 1024
    lr: Rate = 5e-4
    epochs: int = 15
    lmbda: float = 0.9
    # Of single agents.
    symmetry: SymmetryConfig | None = option(None, has_text=False)
    critic_sees: Sees = option(
        "all", "agents whose observations an agent's critic reads", topic="team"
    )
    value_norm: float | None = option(
        0.99,
        "part that the running mean and spread of value targets keep at each rollout, in units of "
        "which the critic predicts; none: in units of the reward",
        topic="critics",
        low=0,
        below=1,
    )

    @property
    def settled(self) -> tuple[str, ...]:
        return (*super().settled, "critic_sees", "value_norm")

    def build(self, env: Any) -> Parts:
        parts = super().build(env)
        # Groups do not share entries.
        names = ("advantage", "value_target")
        parts.loss.set_keys(**{name: env.key(name) for name in names})
        return parts

    def build_critic(self, env: Any) -> nn.Module:
        """Make the critic of the group ``env``."""
        networks = self.network_options(self.critic_keys, of="critics")
        return build_team_value(env, sees=self.critic_sees, **networks)

    def remembers_all(self, name: str) -> bool:
        return name == "critic" and self.critic_sees == "all"

    def build_loss(self, actor: Any, critic: Any) -> MAPPOLoss:
        norm = None if self.value_norm is None else PopArtValueNorm(beta=self.value_norm)
        if norm is not None:
            norm = norm.to(next(critic.parameters()).device)
        return MAPPOLoss(actor, critic, value_norm=norm, **self.loss_arguments())

    def frames_per_batch(self, *, total_frames: int, num_envs: int) -> int:
        """A hundred steps of each environment, or as of other on-policy algorithms if that is more.

        >>> MAPPOConfig().frames_per_batch(total_frames=300_000, num_envs=120)
        12000
        """
        usual = super().frames_per_batch(total_frames=total_frames, num_envs=num_envs)
        most = -(-total_frames // num_envs) * num_envs
        return max(usual, min(_STEPS * num_envs, most))


@register("ippo")
@dataclass(frozen=True, kw_only=True)
class IPPOConfig(MAPPOConfig):
    """Independent PPO (de Witt et al. 2020, arXiv:2011.09533): a critic that sees one agent.

    >>> IPPOConfig().critic_sees
    'own'
    """

    critic_sees: Sees = option("own", has_text=False)
