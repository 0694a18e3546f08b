"""Networks built from an environment's specs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias, TypeVar

from tensordict import NestedKey, unravel_key
from torch import nn
from torchrl.data import (
    Bounded,
    Categorical,
    MultiCategorical,
    MultiOneHot,
    OneHot,
    TensorSpec,
)
from torchrl.envs import EnvBase

from torchrl_elegant.functional import ACTION_MASK, JUNK, action_mask_of, is_image, path_of
from torchrl_elegant.modules.bounded_actor import (
    BoundedActor,
    DeterministicActor,
    SquashedGaussianActor,
)
from torchrl_elegant.modules.categorical import CategoricalActor, DiscreteForm
from torchrl_elegant.modules.ensemble import DistributionalCritic, EnsembleCritic
from torchrl_elegant.modules.gaussian import GaussianActor
from torchrl_elegant.modules.multi_categorical import MultiCategoricalActor
from torchrl_elegant.modules.multiagent.agents import Agents
from torchrl_elegant.modules.multiagent.groups import Group
from torchrl_elegant.modules.q_network import QNetwork
from torchrl_elegant.modules.stochastic_actor import StochasticActor
from torchrl_elegant.modules.value import StateValue

Network = TypeVar("Network", bound=nn.Module)
Actor = TypeVar("Actor", bound=BoundedActor)

#: Entries that a network reads, or their shapes by key; None for all of the environment.
InKeys: TypeAlias = Sequence[NestedKey] | Mapping[NestedKey, Sequence[int]] | None

_KINDS: dict[type[TensorSpec], str] = {
    **dict.fromkeys((OneHot, Categorical), "discrete"),
    **dict.fromkeys((MultiOneHot, MultiCategorical), "multi-discrete"),
}


class ActionSpaceError(ValueError):
    """An algorithm cannot take the environment's actions, which are of this ``kind``."""

    def __init__(self, message: str, *, kind: str) -> None:
        super().__init__(message)
        self.kind = kind


def only_action(env: EnvBase, *, algorithm: str) -> tuple[NestedKey, TensorSpec]:
    """Finds key and spec of the one action that ``algorithm`` needs."""
    leaves = list(env.full_action_spec_unbatched.items(True, True))
    if len(leaves) != 1:
        raise ValueError(f"{algorithm} needs one action entry, got `{[key for key, _ in leaves]}`")
    return leaves[0]


def kind_of(spec: TensorSpec) -> str:
    """Names the kind of actions of ``spec`` as configurations do; the class where none takes it.

    >>> kind_of(OneHot(3)), kind_of(MultiOneHot((2, 3)))
    ('discrete', 'multi-discrete')
    """
    if spec.dtype.is_floating_point:
        return "continuous"
    return _KINDS.get(type(spec), type(spec).__name__)


def bounded_action(env: EnvBase, *, algorithm: str) -> tuple[NestedKey, Bounded]:
    """Finds key and spec of the one bounded continuous action that ``algorithm`` needs."""
    key, spec = only_action(env, algorithm=algorithm)
    if not spec.dtype.is_floating_point:
        raise ActionSpaceError(
            f"{algorithm} needs a continuous action space, got `{type(spec).__name__}` with "
            f"{_choices(spec)}; choose an algorithm for discrete actions or a continuous variant "
            "of the environment",
            kind=kind_of(spec),
        )
    if not isinstance(spec, Bounded):
        raise ValueError(
            f"{algorithm} needs a bounded action space, got `{type(spec).__name__}`; wrap the "
            "environment in gymnasium.wrappers.RescaleAction or give its Box finite bounds"
        )
    return key, spec


def _choices(spec: TensorSpec) -> str:
    single = type(spec) in (OneHot, Categorical)  # classes of several choices derive from these
    return f"{spec.space.n} choices" if single else f"space `{spec.space}`"


# Counters of environments, from which a policy would learn the time; masks and flags are no input.
BOOKKEEPING = frozenset({"step_count", "episode_reward", "traj_ids", ACTION_MASK, JUNK})


def observation_shapes(env: EnvBase, in_keys: InKeys = None) -> dict[NestedKey, tuple[int, ...]]:
    """Lists shapes, without batch dimensions, of the entries that a network reads.

    Args:
        env: the environment.
        in_keys: entries in the order in which a network reads them; None for all but counters and
            action masks. Shapes by key are given back as they are: a network may read what another
            one writes.

    >>> from torchrl.envs import GymEnv
    >>> observation_shapes(GymEnv("Pendulum-v1"))
    {'observation': (3,)}
    """
    if isinstance(in_keys, Mapping):
        return {key: tuple(shape) for key, shape in in_keys.items()}
    leaves = dict(env.observation_spec_unbatched.items(True, True))
    if in_keys is None:
        keys = [key for key in leaves if path_of(key)[-1] not in BOOKKEEPING]
    else:
        keys = [unravel_key(key) for key in in_keys]
    if strange := [key for key in keys if key not in leaves]:
        raise ValueError(
            f"`in_keys` must be among the observations {list(leaves)}, got {strange[0]!r}"
        )
    for key in keys:
        leaf = leaves[key]
        if not (leaf.dtype.is_floating_point or leaf.ndim < 2 or is_image(leaf.shape)):
            raise ValueError(
                f"observation `{key}` must be a vector or a picture with its channels, got shape "
                f"`{tuple(leaf.shape)}` of `{leaf.dtype}`; give a picture three dimensions in a "
                "wrapper, or flatten what is none"
            )
    if not keys:
        raise ValueError(f"`env` must have an observation, got specs `{env.observation_spec}`")
    return {key: tuple(leaves[key].shape) for key in keys}


def _on_device_of(env: EnvBase, network: Network) -> Network:
    return network if env.device is None else network.to(env.device)


def build_actor(
    env: EnvBase,
    *,
    num_cells: Sequence[int] = (256, 256),
    activation: str = "relu",
    hidden_gain: float | None = None,
    in_keys: InKeys = None,
) -> SquashedGaussianActor:
    """Builds a squashed Gaussian actor for ``env``, over the observations ``in_keys``.

    >>> from torchrl.envs import GymEnv
    >>> build_actor(GymEnv("Pendulum-v1"), num_cells=(8,)).high.tolist()
    [2.0]
    """
    return _bounded_actor(
        SquashedGaussianActor,
        env,
        "a squashed Gaussian actor",
        in_keys,
        num_cells=num_cells,
        activation=activation,
        hidden_gain=hidden_gain,
    )


def build_deterministic_actor(
    env: EnvBase,
    *,
    num_cells: Sequence[int] = (256, 256),
    activation: str = "relu",
    hidden_gain: float | None = None,
    in_keys: InKeys = None,
) -> DeterministicActor:
    """Builds a deterministic actor for ``env``, over the observations ``in_keys``.

    >>> from torchrl.envs import GymEnv
    >>> build_deterministic_actor(GymEnv("Pendulum-v1"), num_cells=(8,)).high.tolist()
    [2.0]
    """
    return _bounded_actor(
        DeterministicActor,
        env,
        "a deterministic actor",
        in_keys,
        num_cells=num_cells,
        activation=activation,
        hidden_gain=hidden_gain,
    )


def _bounded_actor(
    kind: type[Actor],
    env: EnvBase,
    algorithm: str,
    in_keys: InKeys,
    **networks: Any,
) -> Actor:
    key, spec = bounded_action(env, algorithm=algorithm)
    actor = kind(
        observation=observation_shapes(env, in_keys),
        low=spec.space.low,
        high=spec.space.high,
        action_key=key,
        agents=agents_of(env),
        **networks,
    )
    return _on_device_of(env, actor)


def agents_of(env: EnvBase | Group) -> Agents | None:
    """Agents of a group that stands in the place of an environment; None for an environment."""
    return env.agents if isinstance(env, Group) else None


def build_critic(
    env: EnvBase,
    *,
    num_critics: int = 2,
    num_cells: Sequence[int] = (256, 256),
    activation: str = "relu",
    hidden_gain: float | None = None,
    in_keys: InKeys = None,
    **distribution: Any,
) -> EnsembleCritic:
    """Builds an ensemble of Q networks for ``env``, over the observations ``in_keys``.

    With ``atoms``, ``v_min`` and ``v_max`` it is a ``DistributionalCritic``.

    >>> from torchrl.envs import GymEnv
    >>> build_critic(GymEnv("Pendulum-v1"), num_critics=5, num_cells=(8,)).num_critics
    5
    """
    key, spec = bounded_action(env, algorithm="a Q(s, a) critic")
    critic = (DistributionalCritic if distribution else EnsembleCritic)(
        observation=observation_shapes(env, in_keys),
        action_shape=spec.shape,
        num_critics=num_critics,
        num_cells=num_cells,
        activation=activation,
        hidden_gain=hidden_gain,
        action_key=key,
        **distribution,
    )
    return _on_device_of(env, critic)


def build_stochastic_actor(
    env: EnvBase,
    *,
    num_cells: Sequence[int] = (64, 64),
    activation: str = "tanh",
    hidden_gain: float | None = None,
    log_std: float = 0.0,
    in_keys: InKeys = None,
) -> StochasticActor:
    """Builds a Gaussian or categorical actor for the actions of ``env``, one choice or several.

    >>> from torchrl.envs import GymEnv
    >>> build_stochastic_actor(GymEnv("CartPole-v1"), num_cells=(8,)).choices
    2
    """
    key, spec = only_action(env, algorithm="a stochastic actor")
    shared: dict[str, Any] = {
        "observation": observation_shapes(env, in_keys),
        "num_cells": num_cells,
        "activation": activation,
        "hidden_gain": hidden_gain,
        "action_key": key,
        "agents": agents_of(env),
    }
    actor: StochasticActor
    kind = kind_of(spec)
    if kind == "continuous":
        actor = GaussianActor(action_shape=spec.shape, log_std=log_std, **shared)
    elif kind == "discrete":
        form: DiscreteForm = "one_hot" if isinstance(spec, OneHot) else "categorical"
        mask = action_mask_of(env)
        actor = CategoricalActor(choices=spec.space.n, form=form, action_mask=mask, **shared)
    elif kind == "multi-discrete":
        form = "one_hot" if isinstance(spec, MultiOneHot) else "categorical"
        mask = action_mask_of(env)
        if shared.pop("agents") is not None:
            raise ActionSpaceError(
                "an actor of a team needs one action for each agent, got several choices of shape "
                f"`{tuple(spec.shape)}`; flatten the choices into one in a wrapper",
                kind=kind,
            )
        actor = MultiCategoricalActor(choices=spec.nvec, form=form, action_mask=mask, **shared)
    else:
        raise ActionSpaceError(
            f"a stochastic actor needs one continuous action or discrete ones, got "
            f"`{type(spec).__name__}` of shape `{tuple(spec.shape)}`; flatten the choices into one "
            "in a wrapper",
            kind=kind,
        )
    return _on_device_of(env, actor)


def build_value(
    env: EnvBase,
    *,
    num_cells: Sequence[int] = (64, 64),
    activation: str = "tanh",
    hidden_gain: float | None = None,
    in_keys: InKeys = None,
) -> StateValue:
    """Builds a state value network for ``env``, over the observations ``in_keys``.

    >>> from torchrl.envs import GymEnv
    >>> build_value(GymEnv("CartPole-v1"), num_cells=(8,)).out_keys
    ['state_value']
    """
    critic = StateValue(
        observation=observation_shapes(env, in_keys),
        num_cells=num_cells,
        activation=activation,
        hidden_gain=hidden_gain,
    )
    return _on_device_of(env, critic)


def build_q_network(
    env: EnvBase,
    *,
    num_members: int = 1,
    num_cells: Sequence[int] = (64, 64),
    activation: str = "relu",
    hidden_gain: float | None = None,
    dueling: bool = False,
    in_keys: InKeys = None,
) -> QNetwork:
    """Builds Q(s, .) for ``env``, over the observations ``in_keys``.

    >>> from torchrl.envs import GymEnv
    >>> build_q_network(GymEnv("CartPole-v1"), num_cells=(8,)).choices
    2
    """
    shared = _discrete(env, "a Q network over actions", in_keys)
    network = QNetwork(
        num_members=num_members,
        dueling=dueling,
        num_cells=num_cells,
        activation=activation,
        hidden_gain=hidden_gain,
        **shared,
    )
    return _on_device_of(env, network)


def build_categorical_actor(
    env: EnvBase,
    *,
    num_cells: Sequence[int] = (64, 64),
    activation: str = "relu",
    hidden_gain: float | None = None,
    in_keys: InKeys = None,
) -> CategoricalActor:
    """Builds an actor over discrete actions for ``env``, over the observations ``in_keys``.

    >>> from torchrl.envs import GymEnv
    >>> build_categorical_actor(GymEnv("CartPole-v1"), num_cells=(8,)).choices
    2
    """
    shared = _discrete(env, "a categorical actor", in_keys)
    actor = CategoricalActor(
        num_cells=num_cells, activation=activation, hidden_gain=hidden_gain, **shared
    )
    return _on_device_of(env, actor)


def _discrete(env: EnvBase, algorithm: str, in_keys: InKeys) -> dict[str, Any]:
    key, spec = only_action(env, algorithm=algorithm)
    kind = kind_of(spec)
    if kind != "discrete":
        found = f"`{type(spec).__name__}` of shape `{tuple(spec.shape)}`"
        if kind == "continuous":
            raise ActionSpaceError(
                f"{algorithm} needs a discrete action space, got {found}; choose an algorithm for "
                "continuous actions or a discrete variant of the environment",
                kind=kind,
            )
        raise ActionSpaceError(
            f"{algorithm} needs one choice, got {found}; flatten the choices into one in a wrapper",
            kind=kind,
        )
    return {
        "observation": observation_shapes(env, in_keys),
        "choices": spec.space.n,
        "form": "one_hot" if isinstance(spec, OneHot) else "categorical",
        "action_key": key,
        "action_mask": action_mask_of(env),
        "agents": agents_of(env),
    }
