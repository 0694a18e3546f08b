"""MADDPG and MATD3: their options and their parts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from torchrl.data import TensorSpec

from torchrl_elegant.algorithms.base import option
from torchrl_elegant.algorithms.ddpg import DDPGConfig
from torchrl_elegant.algorithms.multiagent.base import TeamCriticOptions
from torchrl_elegant.algorithms.registry import register
from torchrl_elegant.algorithms.td3 import TD3Config
from torchrl_elegant.config.rates import Rate
from torchrl_elegant.objectives import MADDPGLoss, MATD3Loss


@register("maddpg")
@dataclass(frozen=True, kw_only=True)
class MADDPGConfig(TeamCriticOptions, DDPGConfig):
    """Multi-agent DDPG (Lowe et al. 2017, arXiv:1706.02275): critics that see the whole team.

    >>> from torchrl_elegant.envs import make_env
    >>> parts = MADDPGConfig(num_cells=(8,)).assemble(make_env("vmas/navigation", 2))
    >>> parts.policy.out_keys
    [('agents', 'action')]
    """

    noise_std: Rate = (0.8, 0.05)

    def build_loss(self, actor: Any, critic: Any, *, action_spec: TensorSpec) -> MADDPGLoss:
        return MADDPGLoss(
            actor,
            critic,
            others=self.acted_by_others,
            delay_actor=True,
            loss_function=self.loss_function,
        )


@register("matd3")
@dataclass(frozen=True, kw_only=True)
class MATD3Config(TeamCriticOptions, TD3Config):
    """Multi-agent TD3 (Ackermann et al. 2019, arXiv:1910.01465).

    >>> MATD3Config().num_critics, MATD3Config().actor_period
    (2, 2)
    """

    noise_std: Rate = (0.8, 0.05)
    # Critics of teams predict values alone.
    atoms: int | None = option(None, has_text=False)
    v_min: float | None = option(None, has_text=False)
    v_max: float | None = option(None, has_text=False)

    def build_loss(self, actor: Any, critic: Any, *, action_spec: TensorSpec) -> MATD3Loss:
        arguments = self.loss_arguments(action_spec)
        return MATD3Loss(actor, critic, others=self.acted_by_others, **arguments)
