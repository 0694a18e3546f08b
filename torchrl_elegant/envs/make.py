"""`make_env`: an environment from a name or a factory."""

from __future__ import annotations

import difflib
import importlib
import importlib.util
from collections.abc import Callable, Mapping
from functools import partial
from operator import attrgetter
from typing import Any, Literal

import gymnasium
import numpy as np
import torch
from gymnasium.error import DependencyNotInstalled, UnregisteredEnv
from torchrl.envs import EnvBase

from torchrl_elegant.envs.gymnasium import GymnasiumEnv, sub_seeds
from torchrl_elegant.envs.pixels import Pixels, treated
from torchrl_elegant.envs.spaces import DiscreteActions
from torchrl_elegant.envs.wrap import (
    SteadyParallelEnv,
    SteadySerialEnv,
    complete_env,
    with_truncated,
)

# The extra of this package that brings the module a family of environments imports.
_EXTRAS = {
    "gymnasium.envs.mujoco": ("mujoco", "mujoco"),
    "gymnasium.envs.box2d": ("Box2D", "box2d"),
}


def find_factory(env: str | Callable[..., Any], env_kwargs: Mapping[str, Any]) -> Callable[[], Any]:
    """The callable that makes one environment; picklable whenever `env` is a name.

    >>> find_factory("gymnasium:make", {"id": "CartPole-v1"})().spec.id
    'CartPole-v1'
    """
    if isinstance(env, str):
        target = _imported(env) if ":" in env else None
        if target is None:
            return partial(make_gymnasium, env, **env_kwargs)
        env = target
    if not callable(env):
        raise TypeError(
            "`env` must be a Gymnasium id, 'package.module:callable' or a callable that returns "
            f"an environment, got `{type(env).__name__}`; for an instance pass what builds it"
        )
    return partial(env, **env_kwargs)


def _imported(name: str) -> Callable[..., Any] | None:
    module_name, _, path = name.partition(":")
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{module_name}.".startswith(f"{error.name}."):
            raise
        raise ValueError(
            f"`env` must name an importable module before the colon, got `{name}`; "
            "install the package or run from the folder that holds it"
        ) from error
    try:
        return attrgetter(path)(module)
    except AttributeError:
        # "package:Id-v0" is Gymnasium's own way to import what registers an id.
        if path in gymnasium.registry:
            return None
        raise ValueError(
            f"`env` must name a callable or a registered id after the colon, got `{name}`"
        ) from None


def make_gymnasium(env_id: str, **env_kwargs: Any) -> gymnasium.Env:
    """`gymnasium.make` with errors that name the nearest ids or the missing extra."""
    # The checker only watches the first step, and costs on every one.
    env_kwargs = {"disable_env_checker": True, **env_kwargs}
    try:
        return gymnasium.make(env_id, **env_kwargs)
    except UnregisteredEnv as error:
        near = ", ".join(nearest_ids(env_id)) or "none"
        raise ValueError(
            f"`env` must be a registered Gymnasium id, got `{env_id}`; the nearest: {near}. "
            "An id that another package registers is written 'package:Id-v0'"
        ) from error
    except (DependencyNotInstalled, ImportError) as error:
        extra = _missing_extra(env_id)
        if extra is None:
            raise
        raise ImportError(
            f"`{env_id}` needs a package that is not installed: "
            f"pip install torchrl_elegant[{extra}]"
        ) from error


def nearest_ids(env_id: str) -> list[str]:
    """The registered ids most like `env_id`, best first.

    >>> nearest_ids("Cartpole-v1")[0]
    'CartPole-v1'
    """
    by_lower = {registered.lower(): registered for registered in gymnasium.registry}
    near = difflib.get_close_matches(env_id.lower(), by_lower, n=3, cutoff=0.6)
    return [by_lower[name] for name in near]


def _missing_extra(env_id: str) -> str | None:
    entry_point = gymnasium.spec(env_id).entry_point
    for prefix, (module, extra) in _EXTRAS.items():
        if str(entry_point).startswith(prefix) and importlib.util.find_spec(module) is None:
            return extra
    return None


EnvSource = str | Callable[..., gymnasium.Env | EnvBase]
Backend = Literal["vector", "parallel"]
Batched = Literal["batched", "single"]


def make_env(
    env: EnvSource,
    num_envs: int | None = 1,
    *,
    seed: int | None = None,
    device: torch.device | str = "cpu",
    backend: Backend = "vector",
    discrete_actions: DiscreteActions = "one_hot",
    env_kwargs: Mapping[str, Any] | None = None,
    pixels: Pixels | None = None,
) -> EnvBase:
    """A TorchRL environment over `num_envs` copies of `env`.

    Whatever the source, the keys are `observation` (or one per entry of a dict), `action`,
    `reward`, `done`, `terminated`, `truncated`, `step_count` and `episode_reward`; bounded
    actions are in [-1, 1], and `action_low` and `action_high` hold the bounds of the simulator
    (None for discrete actions).

    Args:
        env: a Gymnasium id, `"package.module:callable"`, or a callable that returns a Gymnasium
            or a TorchRL environment.
        num_envs: how many; None gives batch size `[]`, as TorchRL's `GymEnv`.
        seed: every copy gets its own seed derived from it, the same for both backends.
        device: where TensorDicts are delivered.
        backend: `"vector"` steps all copies in this process, `"parallel"` each in its own, which
            pays for simulators slower than about a millisecond a step.
        discrete_actions: `"one_hot"` or `"categorical"`; a TorchRL environment keeps its own.
        env_kwargs: keyword arguments for `gymnasium.make` or for the callable.
        pixels: what is done to pictures, for Gymnasium environments; rendering ones are made with
            `render_mode="rgb_array"`.

    >>> env = make_env("Pendulum-v1", 3, seed=0)
    >>> env.batch_size, env.action_high.tolist(), env.action_spec.high.max().item()
    (torch.Size([3]), [2.0], 1.0)
    """
    _validate(num_envs, backend)
    factory = _factory(env, env_kwargs or {}, pixels)
    first = factory()
    if isinstance(first, EnvBase):
        return _from_torchrl(first, factory, num_envs, seed, torch.device(device), backend)
    shared = partial(GymnasiumEnv, device=device, discrete_actions=discrete_actions)
    seeds = None if seed is None else sub_seeds(seed, num_envs or 1)
    if backend == "vector":
        others = [factory] * ((num_envs or 1) - 1)
        batched: Batched = "single" if num_envs is None else "batched"
        return shared(factories=[lambda: first, *others], batched=batched, seeds=seeds)
    with_bounds = shared(factories=[lambda: first], batched="single")
    low, high = with_bounds.action_low, with_bounds.action_high
    with_bounds.close()
    workers = SteadyParallelEnv(
        num_envs,
        partial(shared, factories=[factory], batched="single"),
        create_env_kwargs=[{"seeds": [s]} for s in seeds] if seeds else None,
        # TorchRL would change the thread count of the whole process.
        num_threads=torch.get_num_threads(),
    )
    return _with_bounds(workers, low, high)


def _factory(
    env: EnvSource, env_kwargs: Mapping[str, Any], pixels: Pixels | None
) -> Callable[[], Any]:
    if pixels is None:
        return find_factory(env, env_kwargs)
    return partial(treated, find_factory(env, {**pixels.arguments(), **env_kwargs}), pixels)


def _from_torchrl(
    first: EnvBase,
    factory: Callable[[], EnvBase],
    num_envs: int | None,
    seed: int | None,
    device: torch.device,
    backend: Backend,
) -> EnvBase:
    complete = complete_env(first)
    if first.batch_size:
        if num_envs is not None and first.batch_size != (num_envs,):
            raise ValueError(
                f"`num_envs` must be None or agree with an environment of batch size "
                f"{tuple(first.batch_size)}, got `{num_envs}`; training and evaluation set it "
                "themselves: give them a factory of unbatched environments"
            )
        base = with_truncated(lambda: first)
    elif num_envs is None:
        base = with_truncated(lambda: first)
    else:
        first.close(raise_if_closed=False)
        several = SteadySerialEnv if backend == "vector" else SteadyParallelEnv
        base = several(
            num_envs, partial(with_truncated, factory), num_threads=torch.get_num_threads()
        )
    env = complete.around(base).to(device)
    if seed is not None:
        env.set_seed(seed)
    return _with_bounds(env, complete.action_low, complete.action_high)


def _with_bounds(env: EnvBase, low: np.ndarray | None, high: np.ndarray | None) -> EnvBase:
    env.action_low, env.action_high = low, high
    return env


def _validate(num_envs: int | None, backend: str) -> None:
    if num_envs is not None and (isinstance(num_envs, bool) or not isinstance(num_envs, int)):
        raise TypeError(f"`num_envs` must be an int or None, got `{num_envs!r}`")
    if num_envs is not None and num_envs < 1:
        raise ValueError(f"`num_envs` must be at least 1, got `{num_envs}`")
    if backend not in ("vector", "parallel"):
        raise ValueError(f"`backend` must be 'vector' or 'parallel', got `{backend}`")
    if backend == "parallel" and num_envs is None:
        raise ValueError("`num_envs` must be an int with backend='parallel', got `None`")
