"""Access to the Gymnasium simulators inside TorchRL environments, to step them directly.

This file and `policy_calls.py` are the border to the objects of TorchRL and Gymnasium: they ask
for types and private attributes, because an unknown part must go through TorchRL's own rollout.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import gymnasium
import numpy as np
import torch
from gymnasium import spaces
from tensordict import NestedKey
from torchrl.data import Bounded, Categorical, OneHot, TensorSpec, Unbounded
from torchrl.envs import EnvBase, GymEnv, GymWrapper, SerialEnv, TransformedEnv
from torchrl.envs.transforms import (
    Compose,
    DoubleToFloat,
    InitTracker,
    RewardSum,
    StepCounter,
    Transform,
)

from torchrl_elegant.envs import BOOKKEEPING_KEYS, GymnasiumEnv
from torchrl_elegant.envs.spaces import ObservationLeaf
from torchrl_elegant.envs.wrap import SteadySerialEnv


@dataclass(frozen=True, kw_only=True)
class SimulatorAccess:
    """Simulators of an environment, and how to write their actions and observations.

    Args:
        envs: the simulators, one per row of a batch.
        leaves: keys of the observations, and how each is written into an array.
        decode: turns a batch of the policy's actions into one action per simulator.
        reset: starts an episode in a row and returns its first observation.
        counters: those of `step_count`, `episode_reward` and `is_init` that the environment writes.
        max_steps: steps after which the environment itself truncates episodes.
        live: the environment's own arrays `[n, ...]` of the present state, if it has any. A
            rollout keeps them up to date, so that others may step the environment in between.

    >>> from functools import partial
    >>> env = GymnasiumEnv(factories=[partial(gymnasium.make, "CartPole-v1")] * 2)
    >>> access = simulators_of(env)
    >>> [leaf.key for leaf in access.leaves], access.decode(np.array([[0, 1], [1, 0]]))
    (['observation'], [1, 0])
    """

    envs: Sequence[gymnasium.Env]
    leaves: Sequence[ObservationLeaf]
    decode: Callable[[np.ndarray], Iterable[Any]]
    reset: Callable[[int], Any]
    counters: frozenset[str]
    max_steps: int | None = None
    live: Mapping[NestedKey, np.ndarray] | None = None


def simulators_of(env: EnvBase) -> SimulatorAccess | None:
    """Access to the simulators of `env`; None if their rows need more than counts and casts.

    Known are `GymnasiumEnv`, and TorchRL's `GymEnv` and `GymWrapper`, alone, in a `SerialEnv`, or
    under `StepCounter`, `RewardSum`, `InitTracker` and `DoubleToFloat` with their usual keys, in
    any order and at any depth.

    >>> access = simulators_of(TransformedEnv(GymEnv("Pendulum-v1"), StepCounter(50)))
    >>> sorted(access.counters), access.max_steps, len(access.envs)
    (['step_count'], 50, 1)
    >>> simulators_of(GymEnv("Pendulum-v1", frame_skip=2)) is None
    True
    """
    if type(env) is not GymnasiumEnv:
        return _torchrl_simulators(env)
    simulators = env.simulators
    return SimulatorAccess(
        envs=simulators.envs,
        leaves=simulators.leaves,
        decode=simulators.decode,
        reset=simulators.reset_one,
        counters=frozenset(BOOKKEEPING_KEYS),
        live=simulators.next,
    )


# Keys that the transforms around an environment write; the step count with its limit.
_Written = tuple[tuple[str, int | None], ...]

_DTYPES = {
    torch.float64: np.float64,
    torch.float32: np.float32,
    torch.int64: np.int64,
    torch.int32: np.int32,
    torch.int8: np.int8,
    torch.uint8: np.uint8,
}


def _torchrl_simulators(env: EnvBase) -> SimulatorAccess | None:
    peeled = _peel(env)
    if peeled is None:
        return None
    base, written = peeled
    wrappers = [base]
    if type(base) in (SerialEnv, SteadySerialEnv):
        children = [child for child in map(_peel, base._envs) if child is not None]
        if len(children) < base.num_workers or len({keys for _, keys in children}) > 1:
            return None
        wrappers, written = [child for child, _ in children], (*written, *children[0][1])
    if not all(map(_is_plain, wrappers)) or len({key for key, _ in written}) < len(written):
        return None
    return _checked(env, wrappers, dict(written))


def _peel(env: EnvBase) -> tuple[EnvBase, _Written] | None:
    written: list[tuple[str, int | None]] = []
    while type(env) is TransformedEnv:
        for transform in _flat(env.transform):
            keys = _written_by(transform)
            if keys is None:
                return None
            written += keys
        env = env.base_env
    return env, tuple(written)


def _flat(transform: Transform) -> Iterator[Transform]:
    if type(transform) is Compose:
        for child in transform.transforms:
            yield from _flat(child)
    else:
        yield transform


def _written_by(transform: Transform) -> _Written | None:
    kind = type(transform)
    if kind is StepCounter:
        names = (transform.step_count_key, transform.truncated_key)
        usual = names == ("step_count", "truncated") and transform.update_done
        return (("step_count", transform.max_steps),) if usual else None
    if kind is RewardSum:
        keys = (transform.in_keys, transform.out_keys, transform.reset_keys)
        usual = keys == (["reward"], ["episode_reward"], ["_reset"])
        return (("episode_reward", None),) if usual else None
    if kind is InitTracker:
        return (("is_init", None),) if transform.init_key == "is_init" else None
    if kind is DoubleToFloat:
        # Its effect on each entry shows in the specs.
        return ()
    return None


def _is_plain(env: EnvBase) -> bool:
    return (
        type(env) in (GymEnv, GymWrapper)
        and isinstance(env._env, gymnasium.Env)
        and env.wrapper_frame_skip == 1
        and env._convert_actions_to_numpy
        and not env.info_dict_reader
        and not env.from_pixels
        and not env.batch_size
    )


def _checked(
    env: EnvBase, wrappers: Sequence[EnvBase], written: dict[str, int | None]
) -> SimulatorAccess | None:
    first = wrappers[0]
    leaves = _leaves(first._env.observation_space, env)
    decode = _decode(first.action_spec, first._env.action_space)
    if leaves is None or decode is None or not _same_spaces(wrappers):
        return None
    written_keys = {leaf.key for leaf in leaves} | written.keys()
    if written_keys != set(env.full_observation_spec.keys(True, True)):
        return None
    if (
        not _has_usual_outputs(env)
        or env.full_action_spec["action"].dtype != first.action_spec.dtype
    ):
        return None
    resets = [wrapper._env.reset for wrapper in wrappers]
    return SimulatorAccess(
        envs=[wrapper._env for wrapper in wrappers],
        leaves=leaves,
        decode=decode,
        reset=lambda row: resets[row]()[0],
        counters=frozenset(written),
        max_steps=written.get("step_count"),
    )


def _same_spaces(wrappers: Sequence[EnvBase]) -> bool:
    first = wrappers[0]
    return all(
        other._env.observation_space == first._env.observation_space
        and other._env.action_space == first._env.action_space
        and type(other.action_spec) is type(first.action_spec)
        for other in wrappers[1:]
    )


def _has_usual_outputs(env: EnvBase) -> bool:
    return (
        set(env.done_keys) == {"done", "terminated", "truncated"}
        and env.reward_keys == ["reward"]
        and env.action_keys == ["action"]
        and env.full_reward_spec["reward"].dtype == torch.float32
        and tuple(env.full_reward_spec["reward"].shape) == (*env.batch_size, 1)
        and env.__dict__.get("_compiled_step_and_maybe_reset") is None
    )


def _leaves(space: spaces.Space, env: EnvBase) -> list[ObservationLeaf] | None:
    leaves: list[ObservationLeaf] = []
    if isinstance(space, spaces.Dict) and "state" in space.spaces:
        return None  # TorchRL renames it
    for source, child in _children(space, ()):
        key: NestedKey = "observation"
        if source:
            key = source[0] if len(source) == 1 else source
        spec = env.full_observation_spec.get(key, None)
        leaf = None if spec is None else _leaf(child, key, source, spec, len(env.batch_size))
        if leaf is None:
            return None
        leaves.append(leaf)
    return leaves


def _children(
    space: spaces.Space, source: tuple[str, ...]
) -> Iterator[tuple[tuple[str, ...], spaces.Space]]:
    if type(space) is not spaces.Dict:
        yield source, space
        return
    for name, child in space.spaces.items():
        yield from _children(child, (*source, name))


def _leaf(
    space: spaces.Space, key: NestedKey, source: tuple[str, ...], spec: TensorSpec, dims: int
) -> ObservationLeaf | None:
    shape, dtype = tuple(spec.shape[dims:]), _DTYPES.get(spec.dtype)
    offsets = None
    if type(space) is spaces.Discrete:
        if space.start != 0 or not isinstance(spec, (OneHot, Categorical)):
            return None
        offsets = np.zeros(1, np.int64) if isinstance(spec, OneHot) else None
    elif type(space) is not spaces.Box or shape != (space.shape or (1,)):
        return None
    if dtype is None:
        return None
    # The spec of one simulator: it gives its arrays their shape.
    row = spec if not dims else spec[0]
    return ObservationLeaf(key=key, source=source, spec=row, dtype=np.dtype(dtype), offsets=offsets)


def _decode(spec: TensorSpec, space: spaces.Space) -> Callable[[np.ndarray], Iterable[Any]] | None:
    if type(space) is spaces.Box and isinstance(spec, (Bounded, Unbounded)):
        return _unchanged
    if type(space) is spaces.Discrete and isinstance(spec, OneHot) and not spec.use_register:
        return _positions
    if type(space) is spaces.Discrete and isinstance(spec, Categorical):
        return np.ndarray.tolist
    return None


def _unchanged(action: np.ndarray) -> np.ndarray:
    return action


def _positions(one_hot: np.ndarray) -> list[int]:
    whole = one_hot if one_hot.dtype.kind in "biu" else one_hot.astype(np.int64)
    return whole.argmax(-1).tolist()
