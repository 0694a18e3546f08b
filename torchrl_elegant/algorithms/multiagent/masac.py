"""MASAC and ISAC: their options and their parts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from torchrl.data import TensorSpec

from torchrl_elegant.algorithms.base import option
from torchrl_elegant.algorithms.multiagent.base import TeamCriticOptions
from torchrl_elegant.algorithms.registry import register
from torchrl_elegant.algorithms.sac import SACConfig
from torchrl_elegant.config.rates import Rate
from torchrl_elegant.modules.multiagent.critics import Sees
from torchrl_elegant.objectives import MASACLoss
from torchrl_elegant.objectives.multiagent.team_critics import Others


@register("masac")
@dataclass(frozen=True, kw_only=True)
class MASACConfig(TeamCriticOptions, SACConfig):
    """Multi-agent SAC: critics that see the whole team, and one temperature for it.

    >>> from torchrl_elegant.envs import make_env
    >>> parts = MASACConfig(num_cells=(8,)).assemble(make_env("vmas/navigation", 2))
    >>> parts.loss.target_entropy.item()
    -2.0
    """

    alpha_lr: Rate = 5e-4
    # Critics of teams predict values alone.
    atoms: int | None = option(None, has_text=False)
    v_min: float | None = option(None, has_text=False)
    v_max: float | None = option(None, has_text=False)

    def build_loss(self, actor: Any, critic: Any, *, action_spec: TensorSpec) -> MASACLoss:
        return MASACLoss(
            actor,
            critic,
            others=self.acted_by_others,
            actor_q=self.actor_q,
            **self.loss_arguments(action_spec),
        )


@register("isac")
@dataclass(frozen=True, kw_only=True)
class ISACConfig(MASACConfig):
    """Independent SAC: each agent has critics of its own observation and action.

    >>> ISACConfig().critic_sees
    'own'
    """

    critic_sees: Sees = option("own", has_text=False)
    others: Others = option("stored", has_text=False)
