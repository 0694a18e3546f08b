"""Networks from an environment's specs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tensordict import NestedKey
from torchrl.data import MultiOneHot, OneHot
from torchrl.envs import EnvBase

from torchrl_elegant.functional import is_image
from torchrl_elegant.modules.actions import (
    ActionSpaceError,
    bounded_action,
    kind_of,
    only_action,
)
from torchrl_elegant.modules.actor import SquashedGaussianActor
from torchrl_elegant.modules.categorical import CategoricalActor, DiscreteForm
from torchrl_elegant.modules.ensemble import EnsembleCritic
from torchrl_elegant.modules.gaussian import GaussianActor
from torchrl_elegant.modules.multi_categorical import MultiCategoricalActor
from torchrl_elegant.modules.policy import StochasticActor
from torchrl_elegant.modules.value import StateValue

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
