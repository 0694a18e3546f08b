"""Gymnasium spaces as TorchRL specs, and conversions of observations and actions in numpy."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from math import isfinite
from typing import Any, Literal

import gymnasium
import numpy as np
import torch
from gymnasium import spaces
from torchrl.data import (
    Binary,
    Bounded,
    Categorical,
    MultiCategorical,
    MultiOneHot,
    OneHot,
    TensorSpec,
    Unbounded,
)

from torchrl_elegant.functional import JUNK, allowed_choices, choose, uniform_sample

DiscreteActions = Literal["one_hot", "categorical"]

#: Keys the environment writes beside the observations of the simulator.
BOOKKEEPING_KEYS = ("step_count", "episode_reward")

_RESERVED = frozenset(
    {
        *("action", "reward", "done", "terminated", "truncated", "next", "collector", JUNK),
        *BOOKKEEPING_KEYS,
    }
)
_TORCH_DTYPES = {
    np.dtype(name): getattr(torch, name)
    for name in ("bool", "uint8", "int8", "int16", "int32", "int64", "float16", "float32")
}


class UnsupportedSpaceError(TypeError):
    """A space that has no tensor form here; the message says what to do."""

    def __init__(self, *, role: str, space: spaces.Space, env_name: str) -> None:
        super().__init__(
            f"the {role} space of {env_name} must be {_SUPPORTED[role]}, got `{space}`. "
            f"The way out: convert it in a wrapper ({_WAY_OUT[role]}) and pass a callable that "
            "returns the wrapped environment, or pass a callable that returns a TorchRL EnvBase."
        )


class BadActionError(FloatingPointError):
    """A policy's action that is not a finite number, which no simulator is given.

    >>> str(BadActionError(value=np.nan, row=1, env_name="toy").at_frame(7)).partition(";")[0]
    '`action` must be finite, got `nan` from the policy for sub environment 1 of toy at frame 7'
    """

    def __init__(self, *, value: float, row: int, env_name: str, when: str = "") -> None:
        self.value, self.row, self.env_name = value, row, env_name
        super().__init__(
            f"`action` must be finite, got `{value}` from the policy for sub environment {row} of "
            f"{env_name}{when}; the networks have diverged: lower the learning rate or set "
            "max_grad_norm"
        )

    def at_frame(self, frame: int) -> BadActionError:
        """The same error, with the frame at which the action was to be taken."""
        when = f" at frame {frame}"
        return BadActionError(value=self.value, row=self.row, env_name=self.env_name, when=when)


_SUPPORTED = {
    "observation": "Box, Discrete, MultiDiscrete, MultiBinary or a Dict of these",
    "action": "Box of floats, Discrete, MultiDiscrete or MultiBinary",
}
_WAY_OUT = {
    "observation": "gymnasium.wrappers.FlattenObservation or TransformObservation",
    "action": "gymnasium.wrappers.TransformAction",
}


@dataclass(frozen=True, kw_only=True)
class ObservationLeaf:
    """One tensor of an observation: key, spec, and a method that writes a value of the simulator.

    `source` is the path through the simulator's dicts, empty for a bare value. `offsets` is None
    for arrays; for discrete values it is the start of each one-hot block minus the smallest value
    of that block.
    """

    key: str | tuple[str, ...]
    source: tuple[str, ...]
    spec: TensorSpec
    dtype: np.dtype
    offsets: np.ndarray | None = None

    def write(self, array: np.ndarray, row: int, observation: Any) -> None:
        for name in self.source:
            observation = observation[name]
        if self.offsets is None:
            array[row] = observation
        else:
            array[row] = 0
            array[row, self.offsets + np.asarray(observation).reshape(-1)] = 1


def observation_leaves(space: spaces.Space, *, env_name: str) -> list[ObservationLeaf]:
    """Lists the tensors of an observation space; a bare one is called `observation`.

    >>> from gymnasium.spaces import Box, Dict, Discrete
    >>> space = Dict(arm=Dict(angle=Box(-1, 1, (2,))), room=Discrete(3))
    >>> [(leaf.key, tuple(leaf.spec.shape)) for leaf in observation_leaves(space, env_name="toy")]
    [(('arm', 'angle'), (2,)), ('room', (3,))]
    """
    leaves = list(_leaves(space, (), env_name))
    roots = {leaf.key if isinstance(leaf.key, str) else leaf.key[0] for leaf in leaves}
    if clashes := sorted(roots & _RESERVED):
        raise ValueError(
            f"the observation entries of {env_name} must not use TorchRL's own keys, got "
            f"`{clashes}`; rename them in a gymnasium.ObservationWrapper"
        )
    return leaves


def _leaves(
    space: spaces.Space, source: tuple[str, ...], env_name: str
) -> Iterator[ObservationLeaf]:
    if isinstance(space, spaces.Dict):
        for name, child in space.spaces.items():
            yield from _leaves(child, (*source, name), env_name)
        return
    spec, dtype, offsets = _observation_spec(space, env_name)
    key = (source[0] if len(source) == 1 else source) if source else "observation"
    yield ObservationLeaf(key=key, source=source, spec=spec, dtype=dtype, offsets=offsets)


def _observation_spec(
    space: spaces.Space, env_name: str
) -> tuple[TensorSpec, np.dtype, np.ndarray | None]:
    if isinstance(space, spaces.Box) and (space.dtype in _TORCH_DTYPES or space.dtype == "float64"):
        dtype = np.dtype(np.float32) if space.dtype == np.float64 else np.dtype(space.dtype)
        return _box_spec(space, dtype), dtype, None
    if isinstance(space, spaces.MultiBinary):
        return _binary_spec(space), np.dtype(np.int8), None
    if isinstance(space, (spaces.Discrete, spaces.MultiDiscrete)):
        sizes, starts = _sizes_and_starts(space)
        one_hot = OneHot(sizes[0]) if isinstance(space, spaces.Discrete) else MultiOneHot(sizes)
        # float32, so that a one-hot feeds a linear layer as it is.
        offsets = np.cumsum([0, *sizes[:-1]]) - starts
        return one_hot.to(torch.float32), np.dtype(np.float32), offsets
    raise UnsupportedSpaceError(role="observation", space=space, env_name=env_name)


def _binary_spec(space: spaces.MultiBinary) -> Binary:
    return Binary(shape=tuple(np.atleast_1d(space.n)), dtype=torch.int8)


def _sizes_and_starts(
    space: spaces.Discrete | spaces.MultiDiscrete,
) -> tuple[list[int], np.ndarray]:
    if isinstance(space, spaces.Discrete):
        return [int(space.n)], np.array([space.start])
    return [int(size) for size in space.nvec.reshape(-1)], space.start.reshape(-1)


def _box_spec(space: spaces.Box, dtype: np.dtype) -> TensorSpec:
    shape = space.shape or (1,)
    torch_dtype = _TORCH_DTYPES[dtype]
    if dtype.kind == "f":
        unbounded = np.isinf(space.low).all() and np.isinf(space.high).all()
    else:
        # bool has no iinfo; its whole range is {0, 1}.
        limits = (0, 1) if dtype.kind == "b" else (np.iinfo(dtype).min, np.iinfo(dtype).max)
        unbounded = (space.low == limits[0]).all() and (space.high == limits[1]).all()
    with np.errstate(over="ignore"):
        low, high = (bound.astype(dtype).reshape(shape) for bound in (space.low, space.high))
    if unbounded or (np.isinf(low).all() and np.isinf(high).all()):
        return Unbounded(shape, dtype=torch_dtype)
    return Bounded(torch.from_numpy(low), torch.from_numpy(high), shape, dtype=torch_dtype)


@dataclass(frozen=True, kw_only=True)
class ActionCodec:
    """Spec of the policy's action, and `decode`, which turns a batch of them into the simulator's.

    `start` is the smallest action of the simulator, which a policy calls 0. `sizes` are the numbers
    of choices where an action makes several at once.
    """

    spec: TensorSpec
    decode: Callable[[np.ndarray], np.ndarray]
    low: np.ndarray | None = None
    high: np.ndarray | None = None
    start: int | np.ndarray = 0
    sizes: tuple[int, ...] | None = None


def action_codec(
    space: spaces.Space, *, discrete_actions: DiscreteActions, env_name: str
) -> ActionCodec:
    """Makes the codec between the policy's actions and those of `space`.

    >>> space = spaces.Box(np.float32([0.0]), np.float32([4.0]))
    >>> codec = action_codec(space, discrete_actions="one_hot", env_name="toy")
    >>> codec.decode(np.float32([[-1.0], [0.5]])).tolist()
    [[0.0], [3.0]]
    """
    if isinstance(space, spaces.Box) and np.issubdtype(space.dtype, np.floating):
        return _box_codec(space, env_name)
    if isinstance(space, spaces.MultiBinary):
        return ActionCodec(spec=_binary_spec(space), decode=np.copy)
    if isinstance(space, (spaces.Discrete, spaces.MultiDiscrete)):
        return _discrete_codec(space, discrete_actions)
    raise UnsupportedSpaceError(role="action", space=space, env_name=env_name)


def _box_codec(space: spaces.Box, env_name: str) -> ActionCodec:
    shape, low, high = space.shape or (1,), space.low, space.high
    flat = (lambda a: a.reshape(len(a))) if not space.shape else (lambda a: a)
    # Always a copy: a simulator may write into the action that it is given.
    if not (np.isfinite(low).all() and np.isfinite(high).all()):
        unbounded = Unbounded(shape, dtype=torch.float32)
        return ActionCodec(
            spec=unbounded, decode=lambda a: _finite(flat(a), env_name).astype(space.dtype)
        )
    center, half = _center_and_half(low, high)

    def decode(action: np.ndarray) -> np.ndarray:
        # A normal distribution has no bounds: the simulator gets the nearest action within its own.
        inside = np.minimum(np.maximum(flat(action), -1.0), 1.0)
        return center + half * _finite(inside, env_name)

    spec = Bounded(-1.0, 1.0, shape, dtype=torch.float32)
    return ActionCodec(spec=spec, decode=decode, low=low, high=high)


def _finite(action: np.ndarray, env_name: str) -> np.ndarray:
    # One sum in place of a mask; huge finite values may overflow in it, and are told apart below.
    if not isfinite(action.sum()) and not np.isfinite(action).all():
        row = int(np.argwhere(~np.isfinite(action))[0][0])
        value = float(action[row].flat[np.flatnonzero(~np.isfinite(action[row]))[0]])
        raise BadActionError(value=value, row=row, env_name=env_name)
    return action


def _center_and_half(low: np.ndarray, high: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    # Each half before the sum: high - low may overflow where both bounds are huge.
    center = (low / 2 + high / 2).astype(low.dtype)
    half = (high / 2 - low / 2).astype(low.dtype)
    # Rounding may push an end point one step outside; rounding is monotone, so once both ends
    # are inside, every action in [-1, 1] is.
    step = np.spacing(np.maximum(np.abs(low), np.abs(high)))
    for _ in range(2):
        outside = (center + half > high) | (center - half < low)
        half = np.where(outside, np.maximum(half - step, 0), half)
    return center, half


def _discrete_codec(
    space: spaces.Discrete | spaces.MultiDiscrete, discrete_actions: DiscreteActions
) -> ActionCodec:
    sizes, starts = _sizes_and_starts(space)
    single = isinstance(space, spaces.Discrete)
    shape = () if isinstance(space, spaces.Discrete) else space.nvec.shape
    first, every = (int(starts[0]), None) if single else (starts.reshape(shape), tuple(sizes))
    if discrete_actions == "categorical":
        spec = Categorical(sizes[0]) if single else MultiCategorical(sizes)
        return ActionCodec(
            spec=spec, decode=lambda a: (a + starts).reshape(-1, *shape), start=first, sizes=every
        )
    if single:
        spec = OneHot(sizes[0], dtype=torch.int64)  # as TorchRL's own policies write it
        return ActionCodec(spec=spec, decode=lambda a: a.argmax(-1) + first, start=first)

    def decode(action: np.ndarray) -> np.ndarray:
        blocks = np.split(action, np.cumsum(sizes)[:-1], axis=-1)
        return (np.stack([b.argmax(-1) for b in blocks], -1) + starts).reshape(-1, *shape)

    multi = MultiOneHot(sizes, dtype=torch.int64)
    return ActionCodec(spec=multi, decode=decode, start=first, sizes=every)


def random_allowed(spec: TensorSpec, mask: torch.Tensor) -> torch.Tensor:
    """Draws actions evenly from those that ``mask`` ``[*B, n]`` allows; other specs have no masks.

    >>> random_allowed(OneHot(3, dtype=torch.int64), torch.tensor([[0, 1, 0]])).tolist()
    [[0, 1, 0]]
    """
    several = isinstance(spec, (MultiOneHot, MultiCategorical))
    sizes = [int(n) for n in spec.nvec] if several else [spec.space.n]
    form = "one_hot" if isinstance(spec, (OneHot, MultiOneHot)) else "categorical"
    blocks = allowed_choices(mask, sizes).split(sizes, -1)
    drawn = [choose(uniform_sample(block), block.shape[-1], form) for block in blocks]
    if not several:
        return drawn[0].to(spec.dtype)
    joined = torch.cat(drawn, -1) if form == "one_hot" else torch.stack(drawn, -1)
    return joined.to(spec.dtype)


def environment_name(env: gymnasium.Env) -> str:
    """Gives the id that an environment was made from, or the name of its class."""
    return env.spec.id if env.spec is not None else type(env.unwrapped).__name__
