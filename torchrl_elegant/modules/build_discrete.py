"""Networks over one discrete action, from an environment's specs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torchrl.data import OneHot
from torchrl.envs import EnvBase

from torchrl_elegant.modules.actions import ActionSpaceError, kind_of, only_action
from torchrl_elegant.modules.build import observation_shapes
from torchrl_elegant.modules.categorical import CategoricalActor
from torchrl_elegant.modules.q_network import QNetwork


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
