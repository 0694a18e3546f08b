"""DQN, Double DQN, Dueling DQN and D3QN: configurations and parts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from torchrl.envs import EnvBase
from torchrl.objectives.utils import TargetNetUpdater

from torchrl_elegant.algorithms.adam import LeanAdam
from torchrl_elegant.algorithms.base import Parts, check, check_positive, check_unused, option
from torchrl_elegant.algorithms.off_policy import DiscreteOffPolicyConfig
from torchrl_elegant.algorithms.registry import register
from torchrl_elegant.algorithms.schedules import Ramp
from torchrl_elegant.modules import EpsilonGreedyActor, build_q_network
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

    max_grad_norm: float | None = option(1.0, "largest norm of the gradient; none: no clipping")
    lr: float = option(1e-3, "learning rate")
    target_period: int | None = option(
        None, "updates after which the target is a new copy; none: it moves by tau at each"
    )
    epsilon_start: float = option(1.0, "part of random actions at the start")
    epsilon_end: float = option(0.05, "part of random actions once it has fallen")
    epsilon_part: float = option(0.1, "part of the run over which epsilon falls")
    loss_function: Literal["l2", "smooth_l1", "l1"] = option(
        "smooth_l1", "distance of value and target"
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        check_positive(self, "lr")
        period = self.target_period
        check(period is None or period >= 1, "target_period", "be at least 1 or none", period)
        if period is not None:
            check_unused(self, "tau", mode=f"target_period={period}", other="target_period=none")
        for name in ("epsilon_start", "epsilon_end"):
            value = getattr(self, name)
            check(0.0 <= value <= 1.0, name, "lie in [0, 1]", value)
        check(0.0 < self.epsilon_part <= 1.0, "epsilon_part", "lie in (0, 1]", self.epsilon_part)

    def build(self, env: EnvBase) -> Parts:
        network = build_q_network(
            env,
            num_members=self.num_members,
            num_cells=self.num_cells,
            activation=self.activation,
            dueling=self.dueling,
        )
        loss = DQNLoss(network, **self.loss_arguments())
        loss.make_value_estimator(gamma=self.gamma)
        policy = EpsilonGreedyActor(network, epsilon=self.epsilon_start)
        policy = policy if env.device is None else policy.to(env.device)
        ramp = Ramp(
            start=self.epsilon_start,
            end=self.epsilon_end,
            until=self.epsilon_part,
            apply=policy.explore,
        )
        return Parts(
            policy=policy,
            loss=loss,
            optimizer=LeanAdam(loss.parameters(), lr=self.lr),
            target_updater=self.build_target_updater(loss),
            ramps=(ramp,),
        )

    @property
    def num_members(self) -> int:
        """How many networks estimate each value."""
        return 1

    def build_target_updater(self, loss: DQNLoss) -> TargetNetUpdater:
        """How the target follows."""
        if self.target_period is not None:
            return LeanHardUpdate(loss, period=self.target_period)
        return LeanSoftUpdate(loss, tau=self.tau)

    def loss_arguments(self) -> dict[str, Any]:
        """Keyword arguments of the loss."""
        return {"loss_function": self.loss_function}


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
