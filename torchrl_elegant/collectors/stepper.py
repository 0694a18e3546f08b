"""The simulators behind a TorchRL environment, in the form a rollout in numpy steps them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import gymnasium
import numpy as np
from tensordict import NestedKey

from torchrl_elegant.envs import BOOKKEEPING_KEYS, GymnasiumEnv
from torchrl_elegant.envs.spaces import ObservationLeaf


@dataclass(frozen=True, kw_only=True)
class Stepper:
    """All that a rollout has to know of an environment to step it without TensorDicts.

    Args:
        envs: the simulators, one per row of a batch.
        leaves: the observations: their keys, and how each is written into an array.
        decode: a batch of actions as the policy gives them -> one action per simulator.
        reset: starts an episode of the simulator in a row and returns its first observation.
        counters: which of `step_count`, `episode_reward` and `is_init` the environment writes.
        max_steps: where the environment truncates episodes, whatever its simulators say.
        live: the environment's own arrays `[n, ...]` of the present state, if it has any; they
            are kept true, so that it may be stepped between rollouts.

    >>> from functools import partial
    >>> env = GymnasiumEnv(factories=[partial(gymnasium.make, "CartPole-v1")] * 2)
    >>> stepper = stepper_of(env)
    >>> [leaf.key for leaf in stepper.leaves], stepper.decode(np.array([[0, 1], [1, 0]]))
    (['observation'], [1, 0])
    """

    envs: Sequence[gymnasium.Env]
    leaves: Sequence[ObservationLeaf]
    decode: Callable[[np.ndarray], Iterable[Any]]
    reset: Callable[[int], Any]
    counters: frozenset[str]
    max_steps: int | None = None
    live: Mapping[NestedKey, np.ndarray] | None = None


def stepper_of(env: GymnasiumEnv) -> Stepper:
    """The simulators of one of our own environments."""
    simulators = env.simulators
    return Stepper(
        envs=simulators.envs,
        leaves=simulators.leaves,
        decode=simulators.decode,
        reset=simulators.reset_one,
        counters=frozenset(BOOKKEEPING_KEYS),
        live=simulators.next,
    )
