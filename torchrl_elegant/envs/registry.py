"""From what a user names to a picklable callable, with errors that show the way out."""

from __future__ import annotations

import difflib
import importlib
import importlib.util
from collections.abc import Callable, Mapping
from functools import partial
from operator import attrgetter
from typing import Any

import gymnasium
from gymnasium.error import DependencyNotInstalled, UnregisteredEnv

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
