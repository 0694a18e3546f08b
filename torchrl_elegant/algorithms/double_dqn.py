"""Double DQN: what its configuration adds to DQN's."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from torchrl_elegant.algorithms.base import option
from torchrl_elegant.algorithms.dqn import DQNConfig
from torchrl_elegant.algorithms.registry import register


@register("double_dqn")
@dataclass(frozen=True, kw_only=True)
class DoubleDQNConfig(DQNConfig):
    """DQN whose online network chooses the next action and whose target judges it.

    That keeps maxima over noise out of the targets (van Hasselt et al. 2016, arXiv:1509.06461).
    ElegantRL's version, with ``twin``, does so by a second network instead: the next action is the
    best by the minimum of two targets.

    >>> from torchrl_elegant.envs import make_env
    >>> DoubleDQNConfig(num_cells=(8,)).build(make_env("CartPole-v1")).loss.double_dqn
    True
    """

    twin: bool = option(False, "two networks, their minimum the target, in place of the choice")

    @property
    def num_members(self) -> int:
        return 2 if self.twin else 1

    def loss_arguments(self) -> dict[str, Any]:
        return super().loss_arguments() | {"double_dqn": not self.twin}
