"""Dueling networks: what they add to DQN and to Double DQN."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torchrl_elegant.algorithms.double_dqn import DoubleDQNConfig
from torchrl_elegant.algorithms.dqn import DQNConfig
from torchrl_elegant.algorithms.registry import register


@register("dueling_dqn")
@dataclass(frozen=True, kw_only=True)
class DuelingDQNConfig(DQNConfig):
    """DQN with values made of state value and advantage (Wang et al. 2016, arXiv:1511.06581).

    >>> from torchrl_elegant.envs import make_env
    >>> DuelingDQNConfig(num_cells=(8,)).build(make_env("CartPole-v1")).policy.network.dueling
    True
    """

    dueling: ClassVar[bool] = True


@register("d3qn")
@dataclass(frozen=True, kw_only=True)
class D3QNConfig(DoubleDQNConfig, DuelingDQNConfig):
    """Dueling Double DQN; with ``twin`` it is ElegantRL's D3QN.

    >>> from torchrl_elegant.envs import make_env
    >>> parts = D3QNConfig(num_cells=(8,), twin=True).build(make_env("CartPole-v1"))
    >>> parts.policy.network.dueling, parts.policy.network.num_members
    (True, 2)
    """
