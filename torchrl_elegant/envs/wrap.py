"""Wrappers around a user's environment."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torchrl.data import Bounded, TensorSpec
from torchrl.envs import EnvBase, ParallelEnv, SerialEnv, TransformedEnv
from torchrl.envs.transforms import (
    ActionScaling,
    ClipTransform,
    Compose,
    DoubleToFloat,
    RewardSum,
    StepCounter,
    Transform,
)


class _KeepsThreads:
    """Closing gives back as many threads as there were, whatever TorchRL thinks it had taken."""

    def close(self, **kwargs: Any) -> None:
        threads = torch.get_num_threads()
        try:
            super().close(**kwargs)  # type: ignore[misc]
        finally:
            torch.set_num_threads(threads)


class SteadySerialEnv(_KeepsThreads, SerialEnv):
    """``SerialEnv`` that leaves the number of threads alone when it is closed."""


class SteadyParallelEnv(_KeepsThreads, ParallelEnv):
    """``ParallelEnv`` that leaves the number of threads alone when it is closed."""


@dataclass(frozen=True, kw_only=True)
class Completion:
    """The transforms still needed, and the action bounds before they hide them."""

    transforms: tuple[Callable[[], Transform], ...]
    action_low: np.ndarray | None
    action_high: np.ndarray | None

    def around(self, env: EnvBase) -> EnvBase:
        if not self.transforms:
            return env
        return TransformedEnv(env, Compose(*(make() for make in self.transforms)))


class ActionClipping(ClipTransform):
    """The nearest action in [-1, 1], for policies that know no bounds."""

    def __init__(self) -> None:
        super().__init__(in_keys=[], in_keys_inv=["action"], low=-1.0, high=1.0)


def complete_env(env: EnvBase) -> Completion:
    """Which transforms `env` lacks.

    >>> from torchrl.envs import GymEnv
    >>> [make.__name__ for make in complete_env(GymEnv("Pendulum-v1")).transforms]
    ['ActionScaling', 'StepCounter', 'RewardSum', 'ActionClipping']
    """
    specs = [env.full_observation_spec, env.full_reward_spec, env.full_action_spec]
    leaves = [leaf for spec in specs for leaf in spec.values(True, True)]
    missing: list[Callable[[], Transform]] = []
    if any(leaf.dtype == torch.float64 for leaf in leaves):
        missing.append(DoubleToFloat)
    low, high = _bounds(env)
    if low is not None and not (np.all(low == -1) and np.all(high == 1)):
        missing.append(ActionScaling)
    names = {_last(key) for key in env.full_observation_spec.keys(True, True)}
    if "step_count" not in names:
        missing.append(StepCounter)
    if "episode_reward" not in names:
        missing.append(RewardSum)
    if low is not None:
        missing.append(ActionClipping)
    return Completion(transforms=tuple(missing), action_low=low, action_high=high)


def with_truncated(factory: Callable[[], EnvBase]) -> EnvBase:
    """The environment of `factory`, with a `truncated` key beside every `done`."""
    env = factory()
    if not any(_last(key) == "truncated" for key in env.done_keys):
        env.add_truncated_keys()
    return env


def _bounds(env: EnvBase) -> tuple[np.ndarray | None, np.ndarray | None]:
    actions: list[TensorSpec] = list(env.full_action_spec.values(True, True))
    # A scaled action is one tensor; several (multi-agent groups) keep their own units.
    if len(actions) != 1 or not isinstance(actions[0], Bounded):
        return None, None
    space = actions[0].space
    if not (space.low.isfinite().all() and space.high.isfinite().all()):
        return None, None
    row = (0,) * len(env.batch_size)
    return space.low[row].cpu().numpy(), space.high[row].cpu().numpy()


def _last(key: str | tuple[str, ...]) -> str:
    return key if isinstance(key, str) else key[-1]
