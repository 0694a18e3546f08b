"""Networks built from an environment's specs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tensordict import NestedKey
from torchrl.data import (
    Bounded,
    Categorical,
    Composite,
    MultiCategorical,
    MultiOneHot,
    OneHot,
    TensorSpec,
)
from torchrl.envs import EnvBase

from torchrl_elegant.functional import is_image
from torchrl_elegant.modules.bounded_actor import DeterministicActor, SquashedGaussianActor
from torchrl_elegant.modules.categorical import CategoricalActor, DiscreteForm
from torchrl_elegant.modules.ensemble import EnsembleCritic
from torchrl_elegant.modules.gaussian import GaussianActor
from torchrl_elegant.modules.multi_categorical import MultiCategoricalActor
from torchrl_elegant.modules.q_network import QNetwork
from torchrl_elegant.modules.stochastic_actor import StochasticActor
from torchrl_elegant.modules.value import StateValue

_KINDS: dict[type[TensorSpec], str] = {
    **dict.fromkeys((OneHot, Categorical), "discrete"),
    **dict.fromkeys((MultiOneHot, MultiCategorical), "multi-discrete"),
}


class ActionSpaceError(ValueError):
    """An environment whose actions, of the ``kind`` named, an algorithm cannot take."""

    def __init__(self, message: str, *, kind: str) -> None:
        super().__init__(message)
        self.kind = kind


def only_action(env: EnvBase, *, algorithm: str) -> tuple[NestedKey, TensorSpec]:
    """Key and spec of the one action that ``algorithm`` needs."""
    leaves = list(env.full_action_spec_unbatched.items(True, True))
    if len(leaves) != 1:
        raise ValueError(f"{algorithm} needs one action entry, got `{[key for key, _ in leaves]}`")
    return leaves[0]


def kind_of(spec: TensorSpec) -> str:
    """What configurations call actions of ``spec``; those that none takes by their class's name.

    >>> kind_of(OneHot(3)), kind_of(MultiOneHot((2, 3)))
    ('discrete', 'multi-discrete')
    """
    if spec.dtype.is_floating_point:
        return "continuous"
    return _KINDS.get(type(spec), type(spec).__name__)


def bounded_action(env: EnvBase, *, algorithm: str) -> tuple[NestedKey, Bounded]:
    """Key and spec of the one bounded continuous action that ``algorithm`` needs."""
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


def _choices(spec: TensorSpec | Composite) -> str:
    return f"{spec.space.n} choices" if hasattr(spec.space, "n") else f"space `{spec.space}`"


# Written by environments for bookkeeping; a policy that read them would play the clock.
BOOKKEEPING = frozenset({"step_count", "episode_reward", "traj_ids"})


def observation_shapes(env: EnvBase) -> dict[NestedKey, tuple[int, ...]]:
    """Shape, without batch dimensions, of every entry that a policy should see.

    >>> from torchrl.envs import GymEnv
    >>> observation_shapes(GymEnv("Pendulum-v1"))
    {'observation': (3,)}
    """
    shapes: dict[NestedKey, tuple[int, ...]] = {}
    for key, leaf in env.observation_spec_unbatched.items(True, True):
        name = key if isinstance(key, str) else key[-1]
        if name in BOOKKEEPING:
            continue
        if not (leaf.dtype.is_floating_point or leaf.ndim < 2 or is_image(leaf.shape)):
            raise ValueError(
                f"observation `{key}` must be a vector or a picture with its channels, got shape "
                f"`{tuple(leaf.shape)}` of `{leaf.dtype}`; give a picture three dimensions in a "
                "wrapper, or flatten what is none"
            )
        shapes[key] = tuple(leaf.shape)
    if not shapes:
        raise ValueError(f"`env` must have an observation, got specs `{env.observation_spec}`")
    return shapes


def build_actor(
    env: EnvBase, *, num_cells: Sequence[int] = (256, 256), activation: str = "relu"
) -> SquashedGaussianActor:
    """A squashed Gaussian actor that fits ``env``.

    >>> from torchrl.envs import GymEnv
    >>> build_actor(GymEnv("Pendulum-v1"), num_cells=(8,)).high.tolist()
    [2.0]
    """
    key, spec = bounded_action(env, algorithm="a squashed Gaussian actor")
    actor = SquashedGaussianActor(
        observation=observation_shapes(env),
        low=spec.space.low,
        high=spec.space.high,
        num_cells=num_cells,
        activation=activation,
        action_key=key,
    )
    return actor.to(env.device) if env.device is not None else actor


def build_critic(
    env: EnvBase,
    *,
    num_critics: int = 2,
    num_cells: Sequence[int] = (256, 256),
    activation: str = "relu",
) -> EnsembleCritic:
    """An ensemble of Q networks that fits ``env``.

    >>> from torchrl.envs import GymEnv
    >>> build_critic(GymEnv("Pendulum-v1"), num_critics=5, num_cells=(8,)).num_critics
    5
    """
    key, spec = bounded_action(env, algorithm="a Q(s, a) critic")
    critic = EnsembleCritic(
        observation=observation_shapes(env),
        action_shape=spec.shape,
        num_critics=num_critics,
        num_cells=num_cells,
        activation=activation,
        action_key=key,
    )
    return critic.to(env.device) if env.device is not None else critic


def build_stochastic_actor(
    env: EnvBase,
    *,
    num_cells: Sequence[int] = (64, 64),
    activation: str = "tanh",
    log_std: float = 0.0,
) -> StochasticActor:
    """A Gaussian or a categorical actor, of one choice or several, as the actions of ``env`` are.

    >>> from torchrl.envs import GymEnv
    >>> build_stochastic_actor(GymEnv("CartPole-v1"), num_cells=(8,)).choices
    2
    """
    key, spec = only_action(env, algorithm="a stochastic actor")
    shared: dict[str, Any] = {
        "observation": observation_shapes(env),
        "num_cells": num_cells,
        "activation": activation,
        "action_key": key,
    }
    actor: StochasticActor
    kind = kind_of(spec)
    if kind == "continuous":
        actor = GaussianActor(action_shape=spec.shape, log_std=log_std, **shared)
    elif kind == "discrete":
        form: DiscreteForm = "one_hot" if isinstance(spec, OneHot) else "categorical"
        actor = CategoricalActor(choices=spec.space.n, form=form, **shared)
    elif kind == "multi-discrete":
        form = "one_hot" if isinstance(spec, MultiOneHot) else "categorical"
        actor = MultiCategoricalActor(choices=spec.nvec, form=form, **shared)
    else:
        raise ActionSpaceError(
            f"a stochastic actor needs one continuous action or discrete ones, got "
            f"`{type(spec).__name__}` of shape `{tuple(spec.shape)}`; flatten the choices into one "
            "in a wrapper",
            kind=kind,
        )
    return actor.to(env.device) if env.device is not None else actor


def build_value(
    env: EnvBase, *, num_cells: Sequence[int] = (64, 64), activation: str = "tanh"
) -> StateValue:
    """A state value network that fits ``env``.

    >>> from torchrl.envs import GymEnv
    >>> build_value(GymEnv("CartPole-v1"), num_cells=(8,)).out_keys
    ['state_value']
    """
    critic = StateValue(
        observation=observation_shapes(env), num_cells=num_cells, activation=activation
    )
    return critic.to(env.device) if env.device is not None else critic


def build_deterministic_actor(
    env: EnvBase, *, num_cells: Sequence[int] = (256, 256), activation: str = "relu"
) -> DeterministicActor:
    """A deterministic actor that fits ``env``.

    >>> from torchrl.envs import GymEnv
    >>> build_deterministic_actor(GymEnv("Pendulum-v1"), num_cells=(8,)).high.tolist()
    [2.0]
    """
    key, spec = bounded_action(env, algorithm="a deterministic actor")
    actor = DeterministicActor(
        observation=observation_shapes(env),
        low=spec.space.low,
        high=spec.space.high,
        num_cells=num_cells,
        activation=activation,
        action_key=key,
    )
    return actor.to(env.device) if env.device is not None else actor


def build_q_network(
    env: EnvBase,
    *,
    num_members: int = 1,
    num_cells: Sequence[int] = (64, 64),
    activation: str = "relu",
    dueling: bool = False,
) -> QNetwork:
    """Q(s, .) that fits ``env``.

    >>> from torchrl.envs import GymEnv
    >>> build_q_network(GymEnv("CartPole-v1"), num_cells=(8,)).choices
    2
    """
    shared = _discrete(env, "a Q network over actions", num_cells, activation)
    network = QNetwork(num_members=num_members, dueling=dueling, **shared)
    return network.to(env.device) if env.device is not None else network


def build_categorical_actor(
    env: EnvBase, *, num_cells: Sequence[int] = (64, 64), activation: str = "relu"
) -> CategoricalActor:
    """An actor over discrete actions that fits ``env``.

    >>> from torchrl.envs import GymEnv
    >>> build_categorical_actor(GymEnv("CartPole-v1"), num_cells=(8,)).choices
    2
    """
    actor = CategoricalActor(**_discrete(env, "a categorical actor", num_cells, activation))
    return actor.to(env.device) if env.device is not None else actor


def _discrete(
    env: EnvBase, algorithm: str, num_cells: Sequence[int], activation: str
) -> dict[str, Any]:
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
        "observation": observation_shapes(env),
        "choices": spec.space.n,
        "form": "one_hot" if isinstance(spec, OneHot) else "categorical",
        "num_cells": num_cells,
        "activation": activation,
        "action_key": key,
    }
