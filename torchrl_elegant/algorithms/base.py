"""Base of all algorithm configurations, and the parts that they build."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import Any, ClassVar

import torch
from tensordict import NestedKey, unravel_key
from tensordict.nn import TensorDictModuleBase
from torchrl.envs import EnvBase
from torchrl.objectives import LossModule
from torchrl.objectives.utils import TargetNetUpdater

from torchrl_elegant.algorithms.add_ons import AddOn, HamiltonianAddOn
from torchrl_elegant.algorithms.hterm import HTermConfig
from torchrl_elegant.algorithms.scaling import Scaling
from torchrl_elegant.algorithms.schedules import ActorSchedule, EveryUpdate, Ramp
from torchrl_elegant.config.options import check as check
from torchrl_elegant.config.options import check_options
from torchrl_elegant.config.options import check_unused as check_unused
from torchrl_elegant.config.options import option as option
from torchrl_elegant.data import ReturnScale
from torchrl_elegant.envs import EnvKeys
from torchrl_elegant.modules import ACTIVATIONS, NormalizedActor, ObservationNorm, normalizable
from torchrl_elegant.objectives.hamiltonian.loss import Baseline


@dataclass(kw_only=True)
class Parts:
    """Parts that an algorithm builds for one environment; a learner is made of them.

    ``add_ons`` take part in every update beside the loss. ``ramps`` follow the run's progress.
    ``target_kl``, for losses with a ``divergence``, is how far a policy may move before the epochs
    over its rollout end.
    """

    policy: TensorDictModuleBase
    loss: LossModule
    optimizer: torch.optim.Optimizer
    target_updater: TargetNetUpdater | None = None
    schedule: ActorSchedule = field(default_factory=EveryUpdate)
    ramps: tuple[Ramp, ...] = ()
    add_ons: list[AddOn] = field(default_factory=list)
    target_kl: float | None = None
    max_grad_norm: float | None = None


@dataclass(frozen=True, kw_only=True)
class AlgorithmConfig(ABC):
    """Options of one algorithm, and how they become networks, loss and optimizer."""

    name: ClassVar[str]
    #: The family whose store, loop and learner it uses: ``"off_policy"`` or ``"on_policy"``.
    family: ClassVar[str]
    #: Kinds of actions that it can choose; the error for other kinds names them.
    actions: ClassVar[tuple[str, ...]] = ("continuous", "discrete", "multi-discrete")
    #: Environment that it trains on unless another is given.
    example: ClassVar[str] = "Pendulum-v1"
    #: Whether it has an actor beside its value networks.
    has_actor: ClassVar[bool] = True
    #: Baseline of the H-term unless its options set one.
    hterm_baseline: ClassVar[Baseline] = "mean"
    #: Whether ``reward_scale`` is part of the rewards that the H-term sees.
    hterm_scaled: ClassVar[bool] = False
    #: Whether the actor is deterministic, so that exploration noise is added to its actions.
    deterministic: ClassVar[bool] = False
    gamma: float = option(0.99, "discount factor", topic="learning", low=0, high=1)
    batch_size: int = option(help="transitions per update", low=1)
    max_grad_norm: float | None = option(
        help="largest norm of the gradient; none: no clipping", above=0
    )
    num_cells: tuple[int, ...] = option(
        help="sizes of the hidden layers of each network", topic="networks", low=1
    )
    activation: str = option(help=f"activation of the hidden layers: {', '.join(ACTIVATIONS)}")
    actor_keys: tuple[str, ...] | None = option(
        None, "observation entries that the actor reads, nested ones as agent.position; none: all"
    )
    critic_keys: tuple[str, ...] | None = option(
        None, "observation entries that the critics read; none: all"
    )
    reward_scale: float = option(
        1.0, "factor of all rewards that are learned from", topic="scaling", above=0
    )
    normalize_observation: bool = option(
        False, "subtract the running mean of observations and divide by their running spread"
    )
    normalize_value: bool = option(
        False, "divide rewards by the running spread of discounted returns"
    )
    hterm: HTermConfig | None = option(
        None, "add the Hamiltonian term to the actor's loss", topic="H-term"
    )

    def __post_init__(self) -> None:
        check_options(self)
        known = self.activation in ACTIVATIONS
        check(known, "activation", f"be one of {', '.join(ACTIVATIONS)}", self.activation)
        if not self.has_actor:
            check(self.hterm is None, "hterm", "be false where there is no actor", "true")
            way_out = "set critic_keys"
            no_keys = self.actor_keys is None
            must = "be none where there is no actor"
            check(no_keys, "actor_keys", must, self.actor_keys, way_out)
        if self.hterm is not None and not self.deterministic:
            mode, other = "a stochastic actor", "algorithm=td3"
            check_unused(self.hterm, "sigma", mode=mode, other=other, group="hterm")

    def network_options(self, keys: tuple[str, ...] | None) -> dict[str, Any]:
        """Arguments that every network builder takes; ``keys`` are the entries to read, or None."""
        options: dict[str, Any] = {"num_cells": self.num_cells, "activation": self.activation}
        if keys is not None:
            options["in_keys"] = [unravel_key(tuple(key.split("."))) for key in keys]
        return options

    def _read_keys(self) -> list[NestedKey] | None:
        """Entries that actor or critics read; None for all."""
        if self.actor_keys is None or self.critic_keys is None:
            return None
        options = self.network_options((*self.actor_keys, *self.critic_keys))
        return options["in_keys"]

    @property
    def beginnings(self) -> tuple[str, ...]:
        """Options that say where a learned number starts."""
        return ()

    @abstractmethod
    def build(self, env: EnvBase) -> Parts:
        """Networks, loss, optimizer and rules that fit ``env``, on its device."""

    def assemble(self, env: EnvBase) -> Parts:
        """Build the parts, and the add-ons that the options ask for."""
        parts, keys = self.build(env), EnvKeys.of(env)
        parts.max_grad_norm = self.max_grad_norm
        if keys != EnvKeys():
            parts.loss.set_keys(
                action=keys.action,
                reward=keys.reward,
                done=keys.done,
                terminated=keys.terminated,
            )
        scaling = self._scaling(parts, env, keys)
        if self.hterm is not None:
            term = self.hterm.build(
                parts.loss,
                gamma=self.gamma,
                baseline=self.hterm_baseline,
                prepare=None if scaling is None else scaling.show_states,
                reward_scale=self.reward_scale if self.hterm_scaled else 1.0,
            )
            # Before the scales: new steps are taken in by the scales that they were acted by.
            parts.add_ons.append(HamiltonianAddOn(term))
        if scaling is not None:
            parts.add_ons.append(scaling)
        return parts

    def _scaling(self, parts: Parts, env: EnvBase, keys: EnvKeys) -> Scaling | None:
        norm = returns = None
        if self.normalize_observation:
            norm = ObservationNorm(normalizable(env, self._read_keys())).to(env.device)
            parts.policy = NormalizedActor(parts.policy, norm)
        if self.normalize_value:
            returns = ReturnScale(gamma=self.gamma)
        if norm is None and returns is None and self.reward_scale == 1.0:
            return None
        return Scaling(
            reward_scale=self.reward_scale,
            norm=norm,
            returns=returns,
            reward_key=keys.reward,
            done_key=keys.done,
        )

    @abstractmethod
    def frames_per_batch(self, *, total_frames: int, num_envs: int) -> int:
        """Frames between two rounds of updates unless the run sets them: whole steps of all
        environments."""

    @abstractmethod
    def check_budget(self, *, total_frames: int, frames_per_batch: int, num_envs: int = 1) -> None:
        """Refuse a run in which nothing would be learned."""

    def stores(self) -> list[tuple[str, int, int]]:
        """Stores of observations: the option that sizes each, its rows, observations of a row."""
        if self.hterm is None:
            return []
        age, most = self.hterm.max_age, self.hterm.capacity
        if most is None:
            return [("hterm.max_age", age, 1)]
        return [("hterm.capacity", most, self.hterm.horizon)]

    @abstractmethod
    def share(self, ranks: int) -> AlgorithmConfig:
        """The configuration of one of several ranks, which together do the work of one."""
