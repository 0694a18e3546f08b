"""Base of all algorithm configurations, and the parts that they build."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

import torch
from tensordict import NestedKey, unravel_key
from tensordict.nn import TensorDictModuleBase
from torch import nn
from torchrl.envs import EnvBase
from torchrl.objectives import LossModule
from torchrl.objectives.utils import TargetNetUpdater

from torchrl_elegant.algorithms.add_ons import AddOn, HamiltonianAddOn
from torchrl_elegant.algorithms.hterm import HTermConfig
from torchrl_elegant.algorithms.scaling import Scaling
from torchrl_elegant.algorithms.schedules import ActorSchedule, EveryUpdate, KLRate, Ramp
from torchrl_elegant.config.options import check as check
from torchrl_elegant.config.options import check_options
from torchrl_elegant.config.options import check_unused as check_unused
from torchrl_elegant.config.options import option as option
from torchrl_elegant.data import ReturnScale
from torchrl_elegant.envs import EnvKeys
from torchrl_elegant.modules import (
    ACTIVATIONS,
    Memory,
    NormalizedActor,
    ObservationNorm,
    RecurrentActor,
    give_memory,
    layer_normalized,
    memory_of,
    normalizable,
    observation_shapes,
)
from torchrl_elegant.objectives.common.sequence_losses import SequenceLoss
from torchrl_elegant.objectives.hamiltonian.loss import Baseline

#: A network, or a callable that makes one for an environment.
Network = nn.Module | Callable[[EnvBase], nn.Module]


@dataclass(kw_only=True)
class Parts:
    """Parts that an algorithm builds for one environment; a learner is made of them.

    ``add_ons`` take part in every update beside the loss. ``ramps`` follow the run's progress.
    ``target_kl``, for losses with a ``divergence``, is how far a policy may move before the epochs
    over its rollout end; ``kl_rate`` follows that divergence.
    """

    policy: TensorDictModuleBase
    loss: LossModule
    optimizer: torch.optim.Optimizer
    target_updater: TargetNetUpdater | None = None
    schedule: ActorSchedule = field(default_factory=EveryUpdate)
    ramps: tuple[Ramp, ...] = ()
    add_ons: list[AddOn] = field(default_factory=list)
    target_kl: float | None = None
    kl_rate: KLRate | None = None
    max_grad_norm: float | None = None


@dataclass(frozen=True, kw_only=True)
class AlgorithmConfig(ABC):
    """Options of one algorithm, and how they become networks, loss and optimizer.

    ``networks`` puts networks of your own in the places ``"actor"`` and ``"critic"``. Each is a
    module, of which every run trains a copy, or a callable that makes one for an environment. The
    environment's actions lie between -1 and 1. A TensorDict module keeps TorchRL's contract:

    - actor: a ``ProbabilisticActor``, or what else writes ``action``; on-policy with
      ``return_log_prob=True``; of DDPG and TD3 without a distribution as well;
    - critic: writes ``state_action_value`` from observation and action (off-policy),
      ``action_value`` (discrete actions off-policy) or ``state_value`` (on-policy).

    A plain ``nn.Module`` is called with the observation's entries (a critic of states and actions
    with the action behind them). As an actor it gives the parameters of the action's distribution:
    logits; mean and raw spread side by side; for DDPG and TD3 the action before a tanh. A critic
    is copied ``num_critics`` times where an algorithm has several.

    A subclass can override ``build_actor`` and ``build_critic`` instead, which return the same.

    >>> from torchrl.modules import MLP
    >>> from torchrl_elegant.algorithms import SACConfig
    >>> from torchrl_elegant.envs import make_env
    >>> config = SACConfig(networks={"actor": MLP(in_features=3, out_features=2)})
    >>> type(config.build(make_env("Pendulum-v1")).policy.network).__name__
    'ProbabilisticActor'
    """

    name: ClassVar[str]
    #: The family whose store, loop and learner it uses: ``"off_policy"`` or ``"on_policy"``.
    family: ClassVar[str]
    #: Kinds of actions that it can choose; the error for other kinds names them.
    actions: ClassVar[tuple[str, ...]] = ("continuous", "discrete", "multi-discrete")
    #: Whether it trains a team of agents.
    teams: ClassVar[bool] = False
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
    layer_norm: Literal["none", "critics", "all"] = option(
        "none", "networks that normalize each hidden layer before its activation"
    )
    hidden_gain: float | None = option(
        None,
        "scale of the hidden layers' orthogonal weights at the start; none: 5/3 with tanh, else "
        "the square root of 2",
        above=0,
    )
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
    recurrent: bool = option(
        False, "give the networks a memory (GRU), and learn from sequences of steps", topic="memory"
    )
    hidden_size: int = option(64, "numbers that a memory holds", low=1)
    sequence_length: int = option(16, "steps of a sequence that is learned from", low=1)
    hterm: HTermConfig | None = option(
        None, "add the Hamiltonian term to the actor's loss", topic="H-term"
    )
    compile: bool | Literal["auto"] = option(
        "auto",
        "compile the update, which takes seconds at the start; auto: for runs of many updates",
        topic="speed",
    )
    networks: Mapping[str, Network | None] | None = option(None, has_text=False)

    def __post_init__(self) -> None:
        check_options(self)
        self._check_networks()
        known = self.activation in ACTIVATIONS
        check(known, "activation", f"be one of {', '.join(ACTIVATIONS)}", self.activation)
        if not self.has_actor:
            check(self.hterm is None, "hterm", "be false where there is no actor", "true")
            way_out = "set critic_keys"
            no_keys = self.actor_keys is None
            must = "be none where there is no actor"
            check(no_keys, "actor_keys", must, self.actor_keys, way_out)
        self._check_memory()
        if self.hterm is not None and not self.deterministic:
            mode, other = "a stochastic actor", "algorithm=td3"
            check_unused(self.hterm, "sigma", mode=mode, other=other, group="hterm")

    def _check_memory(self) -> None:
        if not self.recurrent:
            names = ("hidden_size", "sequence_length")
            check_unused(self, *names, mode="recurrent=false", other="recurrent=true")
            return
        length = self.sequence_length
        must = f"be a multiple of sequence_length ({length}) with recurrent=true"
        way_out = f"set batch_size={-(-self.batch_size // length) * length}"
        check(self.batch_size % length == 0, "batch_size", must, self.batch_size, way_out)
        own = sorted(self.networks or ())
        check(not own, "networks", "be None with recurrent=true", own)
        check(self.hterm is None, "hterm", "be false with recurrent=true", "true")
        must = "be false with recurrent=true, whose loop over time is written out already"
        check(self.compile is not True, "compile", must, True)

    def _check_networks(self) -> None:
        places = ("actor", "critic") if self.has_actor else ("critic",)
        given = self.networks or {}
        for name, network in given.items():
            must = f"be for {' or '.join(places)}"
            check(name in places, "networks", must, name)
            fits = network is None or callable(network)
            must = f"hold an nn.Module, or a callable that makes one, for the {name}"
            check(fits, "networks", must, network)
        if given.keys() >= set(places):
            mode, other = "networks of its own in all places", "networks=None"
            unused = ("num_cells", "activation", "layer_norm", "hidden_gain")
            check_unused(self, *unused, mode=mode, other=other)

    def place(self, name: str, env: EnvBase, build: Callable[[EnvBase], nn.Module]) -> nn.Module:
        """The network of the place ``name``: the one in ``networks``, or what ``build`` makes."""
        own = self.networks or {}
        if self.recurrent:
            network = build(env)
            give_memory(network, self.build_memory(name, env))
            return network
        if name not in own:
            return build(env)
        given = own[name]
        if given is None:
            raise ValueError(
                f"`networks` must hold the {name} that the run was started with, got none; call "
                f"resume(folder, networks={{'{name}': ...}})"
            )
        if isinstance(given, nn.Module):
            return deepcopy(given)
        try:
            return given(env)
        except Exception as error:
            raise ValueError(
                f"`networks` must make the {name} for the environment, got {type(error).__name__}: "
                f"{error}"
            ) from error

    def build_memory(self, name: str, env: EnvBase, **options: Any) -> Memory:
        """Make the memory of the network in the place ``name``."""
        acts = name == "actor" or not self.has_actor
        keys = self.own_keys(self.actor_keys if name == "actor" else self.critic_keys)
        memory = Memory(
            observation=observation_shapes(env, keys),
            hidden_size=self.hidden_size,
            out_key=f"{name}_memory",
            state_key="recurrent_state" if acts else f"{name}_recurrent_state",
            **options,
        )
        return memory if env.device is None else memory.to(env.device)

    def own_keys(self, keys: tuple[str, ...] | None) -> list[NestedKey] | None:
        """Entries to read, as keys of a TensorDict; None for all."""
        return None if keys is None else [unravel_key(tuple(key.split("."))) for key in keys]

    def network_options(
        self, keys: tuple[str, ...] | None, *, of: Literal["actor", "critics"] = "actor"
    ) -> dict[str, Any]:
        """Arguments that every network builder takes.

        Args:
            keys: the entries to read, or None.
            of: the networks that are built.
        """
        normalizes = self.layer_norm in ("all", of)
        activation = layer_normalized(self.activation) if normalizes else self.activation
        options: dict[str, Any] = {
            "num_cells": self.num_cells,
            "activation": activation,
            "hidden_gain": self.hidden_gain,
        }
        if self.recurrent:
            place = "actor" if of == "actor" else "critic"
            options["in_keys"] = {f"{place}_memory": (self.hidden_size,)}
        elif keys is not None:
            options["in_keys"] = self.own_keys(keys)
        return options

    def _read_keys(self) -> list[NestedKey] | None:
        """Entries that actor or critics read; None for all."""
        if self.actor_keys is None or self.critic_keys is None:
            return None
        return self.own_keys((*self.actor_keys, *self.critic_keys))

    def env_arguments(self, env: str) -> dict[str, Any]:
        """Arguments that the environment of this name gets unless the run sets them."""
        return {}

    @property
    def network_count(self) -> int:
        """Networks of ``num_cells``, those of the targets included."""
        return 2

    @property
    def settled(self) -> tuple[str, ...]:
        """Options that cannot change on resume, because what was learned depends on them."""
        networks = ("num_cells", "activation", "layer_norm", "hidden_gain")
        # Entries of equal sizes would be swapped without a word.
        read = ("actor_keys", "critic_keys", "normalize_observation", "normalize_value")
        memory = ("recurrent", "hidden_size", "sequence_length")
        return (*networks, *read, *memory)

    @property
    def rows_per_batch(self) -> int:
        """Rows of an update: transitions, or whole sequences of them."""
        return self.batch_size // (self.sequence_length if self.recurrent else 1)

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
        if self.recurrent:
            self._remember(parts)
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

    def _remember(self, parts: Parts) -> None:
        """Let the policy carry the states of all memories, and the loss unroll them."""
        loss, acting = self.sequence_loss(parts.loss), memory_of(parts.policy)
        beside = [memory for memory in loss.memories() if memory is not acting]
        parts.policy, parts.loss = RecurrentActor(parts.policy, beside), loss

    @abstractmethod
    def sequence_loss(self, loss: Any) -> SequenceLoss:
        """Make the loss over sequences of ``loss``, whose networks have memories."""

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
