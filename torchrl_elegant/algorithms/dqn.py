"""DQN, Double DQN, Dueling DQN and D3QN: their options and parts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from torch import nn
from torchrl.envs import EnvBase
from torchrl.objectives.utils import TargetNetUpdater

from torchrl_elegant.algorithms.base import Parts, check, check_unused, option
from torchrl_elegant.algorithms.off_policy import DiscreteOffPolicyConfig
from torchrl_elegant.algorithms.registry import register
from torchrl_elegant.algorithms.schedules import Ramp, build_adam
from torchrl_elegant.config.rates import Rate, first_of
from torchrl_elegant.modules import (
    EpsilonGreedyActor,
    QNetwork,
    build_q_network,
    fit_q_network,
    refuse_batch_norm,
    trained,
)
from torchrl_elegant.objectives import DQNLoss, LeanHardUpdate, LeanSoftUpdate


@register("dqn")
@dataclass(frozen=True, kw_only=True)
class DQNConfig(DiscreteOffPolicyConfig):
    """Deep Q-learning (Mnih et al. 2015), discrete actions.

    >>> from torchrl_elegant.envs import make_env
    >>> parts = DQNConfig(num_cells=(8,)).build(make_env("CartPole-v1"))
    >>> parts.policy.explore(0.5), parts.loss.double_dqn
    (None, False)
    """

    has_actor: ClassVar[bool] = False
    dueling: ClassVar[bool] = False

    max_grad_norm: float | None = 1.0
    lr: Rate = option(1e-3, "learning rate", topic="learning", above=0, last=0)
    target_period: int | None = option(
        None, "updates between two copies to the target; none: it moves by tau at each", low=1
    )
    loss_function: Literal["l2", "smooth_l1", "l1"] = option(
        "smooth_l1", "distance of value and target"
    )
    epsilon: Rate = option(
        (1.0, 0.05), "fraction of random actions", topic="exploration", low=0, high=1
    )
    exploration_fraction: float = option(
        0.1, "fraction of the run after which epsilon has its last value", above=0, high=1
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.target_period is not None:
            mode = f"target_period={self.target_period}"
            check_unused(self, "tau", mode=mode, other="target_period=none")

    def build(self, env: EnvBase) -> Parts:
        given = self.place("critic", env, self.build_critic)
        network = fit_q_network(given, env, in_keys=self.own_keys(self.critic_keys))
        refuse_batch_norm("critic", network)  # It acts as well.
        single = isinstance(network, QNetwork) or self.num_members == 1
        check(single, "twin", "be false with a critic of one's own", True)
        if self.dueling and not isinstance(network, QNetwork):
            raise ValueError(
                f"`networks` must leave the critic of {self.name} to this package, whose network "
                f"alone has dueling heads, got {type(given).__name__}; choose algorithm=dqn or "
                "double_dqn"
            )
        loss = DQNLoss(trained(network), action_space=network.action_space, **self.loss_arguments())
        loss.make_value_estimator(gamma=self.gamma)
        return self.parts_of(network, loss, env)

    def parts_of(self, network: Any, loss: Any, env: EnvBase) -> Parts:
        """The parts around a network and its loss."""
        policy = EpsilonGreedyActor(network, epsilon=first_of(self.epsilon))
        policy = policy if env.device is None else policy.to(env.device)
        explore = Ramp(rate=self.epsilon, until=self.exploration_fraction, apply=policy.explore)
        optimizer, ramps = build_adam([(list(loss.parameters()), self.lr)])
        return Parts(
            policy=policy,
            loss=loss,
            optimizer=optimizer,
            target_updater=self.build_target_updater(loss),
            ramps=(*ramps, explore),
        )

    def build_critic(self, env: EnvBase) -> nn.Module:
        """Make the network that values each action."""
        return build_q_network(
            env,
            num_members=self.num_members,
            dueling=self.dueling,
            **self.network_options(self.critic_keys, of="critics"),
        )

    @property
    def network_count(self) -> int:
        return 2 * self.num_members

    @property
    def num_members(self) -> int:
        """Number of networks that estimate each value."""
        return 1

    def build_target_updater(self, loss: DQNLoss) -> TargetNetUpdater:
        """Make the updater of the target network."""
        if self.target_period is not None:
            return LeanHardUpdate(loss, period=self.target_period)
        return LeanSoftUpdate(loss, tau=self.tau)

    def loss_arguments(self) -> dict[str, Any]:
        """Keyword arguments of the loss."""
        return {"loss_function": self.loss_function}


@register("double_dqn")
@dataclass(frozen=True, kw_only=True)
class DoubleDQNConfig(DQNConfig):
    """DQN whose online network chooses the next action, and whose target network values it.

    That keeps maxima over noise out of the targets (van Hasselt et al. 2016, arXiv:1509.06461).
    With ``twin``, as in ElegantRL, a second network does so: the next action is the best by the
    minimum of two target networks.

    >>> from torchrl_elegant.envs import make_env
    >>> DoubleDQNConfig(num_cells=(8,)).build(make_env("CartPole-v1")).loss.double_dqn
    True
    """

    twin: bool = option(
        False, "use the minimum of two target networks, as ElegantRL does", topic="learning"
    )

    @property
    def settled(self) -> tuple[str, ...]:
        return (*super().settled, "twin")

    @property
    def num_members(self) -> int:
        return 2 if self.twin else 1

    def loss_arguments(self) -> dict[str, Any]:
        return super().loss_arguments() | {"double_dqn": not self.twin}


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
