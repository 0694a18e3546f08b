"""Wrappers and transforms around a user's TorchRL environment."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from tensordict import NestedKey
from torchrl.data import Bounded, TensorSpec
from torchrl.envs import EnvBase, ParallelEnv, SerialEnv, TransformedEnv
from torchrl.envs.env_creator import get_env_metadata
from torchrl.envs.transforms import (
    ActionMask,
    ActionScaling,
    ClipTransform,
    Compose,
    DoubleToFloat,
    RewardSum,
    StepCounter,
    Transform,
)

from torchrl_elegant.functional import action_mask_of, path_of


class CompleteEnv(EnvBase):
    """Base of environments that keep all promises of `make_env` without a transform.

    They count `step_count` and `episode_reward`, tell `truncated` from `terminated`, and replace an
    action outside of the bounds by the nearest one within.
    """

    #: Bounds of the simulator's action; None where it has none.
    action_low: np.ndarray | None
    action_high: np.ndarray | None


class SettledEnv(CompleteEnv):
    """Complete environment whose random numbers belong to its device, where it stays."""

    def to(self, device: torch.device | str) -> SettledEnv:
        """Refuses another device: make the environment there."""
        target = torch.device(device)
        if target.type != self.device.type or target.index not in (None, self.device.index):
            raise ValueError(
                f"`device` must be the {self.device} of this environment, got `{device}`; make it "
                f"there, with {type(self).__name__}(device=...) or make_env(..., device=...)"
            )
        return self


class GeneratorEnv(SettledEnv):
    """Settled environment that draws from one generator."""

    _generator: torch.Generator

    def _set_seed(self, seed: int | None) -> None:
        if seed is None:
            self._generator.seed()
        else:
            self._generator.manual_seed(seed)


class _Steady:
    """Reads specs from an existing environment, and leaves the number of threads alone.

    TorchRL would make one more environment for the specs, and would change the thread count of the
    process.
    """

    def __init__(self, *args: Any, example: EnvBase, **kwargs: Any) -> None:
        # A module must be initialized before it can hold another one.
        self.__dict__["_example"] = example
        threads = torch.get_num_threads()
        super().__init__(*args, num_threads=threads, **kwargs)  # type: ignore[call-arg]
        del self.__dict__["_example"]

    def _get_metadata(self, *_: Any) -> None:
        example, validate = self.__dict__["_example"], self._validate_worker_env  # type: ignore[attr-defined]
        self._set_metadata(get_env_metadata(example, env_validator=validate))  # type: ignore[attr-defined]

    def close(self, **kwargs: Any) -> None:
        threads = torch.get_num_threads()
        try:
            super().close(**kwargs)  # type: ignore[misc]
        finally:
            torch.set_num_threads(threads)


class SteadySerialEnv(_Steady, SerialEnv):
    """``SerialEnv`` with the specs of `example`."""


class SteadyParallelEnv(_Steady, ParallelEnv):
    """``ParallelEnv`` with the specs of `example`."""


@dataclass(frozen=True, kw_only=True)
class Completion:
    """The transforms that an environment still needs, and its action bounds before they apply."""

    transforms: tuple[Callable[[], Transform], ...]
    action_low: np.ndarray | None
    action_high: np.ndarray | None

    def around(self, env: EnvBase) -> EnvBase:
        if not self.transforms:
            return env
        return TransformedEnv(env, Compose(*(make() for make in self.transforms)))


class ActionClipping(ClipTransform):
    """Takes the nearest action in [-1, 1], for policies that know no bounds."""

    def __init__(self, in_keys_inv: Sequence[NestedKey] = ("action",)) -> None:
        super().__init__(in_keys=[], in_keys_inv=list(in_keys_inv), low=-1.0, high=1.0)


def complete_env(env: EnvBase) -> Completion:
    """Finds the transforms that `env` lacks for what `make_env` promises.

    >>> from torchrl.envs import GymEnv
    >>> [type(make()).__name__ for make in complete_env(GymEnv("Pendulum-v1")).transforms]
    ['ActionScaling', 'StepCounter', 'RewardSum', 'ActionClipping']
    """
    if isinstance(env, CompleteEnv):
        return Completion(transforms=(), action_low=env.action_low, action_high=env.action_high)
    specs = [env.full_observation_spec, env.full_reward_spec, env.full_action_spec]
    leaves = [leaf for spec in specs for leaf in spec.values(True, True)]
    missing: list[Callable[[], Transform]] = []
    if any(leaf.dtype == torch.float64 for leaf in leaves):
        missing.append(DoubleToFloat)
    low, high = _bounds(env)
    if low is not None and not (np.all(low == -1) and np.all(high == 1)):
        missing.append(partial(ActionScaling, in_keys_inv=env.action_keys))
    names = {path_of(key)[-1] for key in env.full_observation_spec.keys(True, True)}
    if "step_count" not in names:
        missing.append(StepCounter)
    if "episode_reward" not in names:
        missing.append(_reward_sum(env))
    if low is not None:
        missing.append(partial(ActionClipping, in_keys_inv=env.action_keys))
    mask = action_mask_of(env)
    if mask is not None:
        # Random actions are allowed ones from here on; a transform that is there already may stay.
        missing.append(partial(ActionMask, action_key=env.action_keys[0], mask_key=mask))
    return Completion(transforms=tuple(missing), action_low=low, action_high=high)


def _reward_sum(env: EnvBase) -> Callable[[], Transform]:
    if len(env.reward_keys) != 1:
        return RewardSum  # Each under a name of its own.
    reward = env.reward_keys[0]
    total = "episode_reward" if isinstance(reward, str) else (*reward[:-1], "episode_reward")
    return partial(RewardSum, in_keys=[reward], out_keys=[total])


def with_truncated(factory: Callable[[], EnvBase]) -> EnvBase:
    """Makes the environment of `factory`, with a `truncated` key beside every `done`."""
    env = factory()
    if not any(path_of(key)[-1] == "truncated" for key in env.done_keys):
        env.add_truncated_keys()
    return env


def _bounds(env: EnvBase) -> tuple[np.ndarray | None, np.ndarray | None]:
    actions: list[TensorSpec] = list(env.full_action_spec.values(True, True))
    # Only a single action is scaled; several (multi-agent groups) keep their own units.
    if len(actions) != 1 or not isinstance(actions[0], Bounded):
        return None, None
    space = actions[0].space
    if not (space.low.isfinite().all() and space.high.isfinite().all()):
        return None, None
    row = (0,) * len(env.batch_size)
    return space.low[row].cpu().numpy(), space.high[row].cpu().numpy()
