"""`make_env`: an environment from a name or a factory."""

from __future__ import annotations

import difflib
import importlib
import importlib.util
import inspect
from collections.abc import Callable, Mapping
from functools import partial
from operator import attrgetter
from typing import Any, Literal

import gymnasium
import numpy as np
import torch
from gymnasium.error import DependencyNotInstalled, UnregisteredEnv
from torchrl.envs import ActionMask, EnvBase, TransformedEnv

from torchrl_elegant.envs.batched import (
    BRAX_TASKS,
    ENVPOOL_TASKS,
    GENESIS_TASKS,
    ISAAC_LAB_TASKS,
    MJLAB_TASKS,
    PLAYGROUND_TASKS,
    ChasingEnv,
    IsaacGymTasks,
    RecallEnv,
    StockTradingEnv,
)
from torchrl_elegant.envs.gymnasium import GymnasiumEnv, sub_seeds
from torchrl_elegant.envs.pixels import Pixels, treated
from torchrl_elegant.envs.spaces import DiscreteActions
from torchrl_elegant.envs.teams import PettingZooTasks, VmasScenarios
from torchrl_elegant.envs.wrap import (
    SteadyParallelEnv,
    SteadySerialEnv,
    complete_env,
    with_truncated,
)
from torchrl_elegant.functional import action_mask_of

#: Factories of TorchRL environments by name, for each part of a name before the slash:
#: `"elegant/chasing"` is made by `PREFIXES["elegant"]["chasing"]`.
PREFIXES: dict[str, Mapping[str, Callable[..., EnvBase]]] = {
    "elegant": {"chasing": ChasingEnv, "recall": RecallEnv, "stock": StockTradingEnv},
    "isaacgym": IsaacGymTasks(),
    "vmas": VmasScenarios(),
    "pettingzoo": PettingZooTasks(),
    "mjlab": MJLAB_TASKS,
    "isaaclab": ISAAC_LAB_TASKS,
    "genesis": GENESIS_TASKS,
    "brax": BRAX_TASKS,
    "playground": PLAYGROUND_TASKS,
    "envpool": ENVPOOL_TASKS,
}

# Module that a family of Gymnasium environments imports, and the extra that installs it.
_EXTRAS = {
    "gymnasium.envs.mujoco": ("mujoco", "mujoco"),
    "gymnasium.envs.box2d": ("Box2D", "box2d"),
}


def find_factory(env: str | Callable[..., Any], env_kwargs: Mapping[str, Any]) -> Callable[[], Any]:
    """Finds the callable that makes one environment; picklable whenever `env` is a name.

    >>> find_factory("gymnasium:make", {"id": "CartPole-v1"})().spec.id
    'CartPole-v1'
    """
    if isinstance(env, str):
        target = _listed(env)
        if target is None and ":" in env:
            target = _imported(env)
        if target is None:
            return partial(make_gymnasium, env, **env_kwargs)
        env = target
    if not callable(env):
        raise TypeError(
            "`env` must be a Gymnasium id, 'package.module:callable' or a callable that returns "
            f"an environment, got `{type(env).__name__}`; for an instance pass what builds it"
        )
    return partial(env, **env_kwargs)


def _listed(name: str) -> Callable[..., EnvBase] | None:
    prefix, slash, rest = name.partition("/")
    if not slash or prefix not in PREFIXES:
        return None
    names = PREFIXES[prefix]
    if rest not in names:
        near = difflib.get_close_matches(rest, names, n=3, cutoff=0.0)
        raise ValueError(
            f"`env` must be a known name that begins with '{prefix}/', got "
            f"`{name}`; the nearest: {', '.join(f'{prefix}/{other}' for other in near)}"
        )
    return names[rest]


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
    """Calls `gymnasium.make`, with errors that name the nearest ids or the missing extra."""
    # The checker looks at the first step only, and costs time on every one.
    env_kwargs = {"disable_env_checker": True, **env_kwargs}
    try:
        return gymnasium.make(env_id, **env_kwargs)
    except UnregisteredEnv as error:
        near = ", ".join(nearest_ids(env_id)) or "none"
        raise ValueError(
            f"`env` must be a registered Gymnasium id, got `{env_id}`; the nearest: {near}. "
            "An id that another package or file registers is written 'package:Id-v0', or its "
            "module is imported first: module=package"
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
    """Lists the registered ids most like `env_id`, best first.

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
    """Makes a TorchRL environment over `num_envs` copies of `env`.

    Whatever the source, the keys are `observation` (or one per entry of a dict), `action`,
    `reward`, `done`, `terminated`, `truncated`, `step_count` and `episode_reward`; bounded
    actions are in [-1, 1], and `action_low` and `action_high` hold the bounds of the simulator
    (None for discrete actions). A TorchRL environment keeps its own keys, nested ones too;
    `EnvKeys.of` finds them.

    A callable that returns a TorchRL environment of many rows, a simulator on a GPU for example,
    is called once. It is given `num_envs`, `device`, `seed` and `discrete_actions` where it has
    parameters of these names and `env_kwargs` does not set them.

    Args:
        env: a Gymnasium id, a name such as `"elegant/chasing"`, `"vmas/navigation"` or
            `"pettingzoo/mpe2:simple_spread_v3"`, `"package.module:callable"`, or a callable that
            returns a Gymnasium or a TorchRL environment.
        num_envs: number of copies; None gives batch size `[]`, as TorchRL's `GymEnv`, or the batch
            size that the callable chooses.
        seed: every copy gets its own seed derived from it, the same for both backends.
        device: device of the TensorDicts.
        backend: `"vector"` steps all copies in this process, `"parallel"` each in its own, which
            pays for simulators slower than about a millisecond a step.
        discrete_actions: `"one_hot"` or `"categorical"`; a TorchRL environment keeps its own.
        env_kwargs: keyword arguments for `gymnasium.make` or for the callable.
        pixels: treatment of pictures, for Gymnasium environments; rendering ones are made with
            `render_mode="rgb_array"`.

    >>> env = make_env("Pendulum-v1", 3, seed=0)
    >>> env.batch_size, env.action_high.tolist(), env.action_spec.high.max().item()
    (torch.Size([3]), [2.0], 1.0)
    >>> make_env("elegant/chasing", 4096, seed=0).batch_size
    torch.Size([4096])
    """
    _validate(num_envs, backend)
    seeds = None if seed is None else sub_seeds(seed, num_envs or 1)
    drawn = {} if pixels is None else pixels.arguments()
    factory = find_factory(env, {**drawn, **(env_kwargs or {})})
    given = {
        "num_envs": num_envs,
        "seed": seed,
        "device": torch.device(device),
        "discrete_actions": discrete_actions,
    }
    factory = partial(factory, **_taken(factory, given))
    if pixels is not None:
        factory = partial(treated, factory, pixels)
    first = factory()
    if isinstance(first, EnvBase):
        return _from_torchrl(first, factory, num_envs, seed, torch.device(device), backend)
    shared = partial(GymnasiumEnv, device=device, discrete_actions=discrete_actions)
    if backend == "vector":
        others = [factory] * ((num_envs or 1) - 1)
        batched: Batched = "single" if num_envs is None else "batched"
        return shared(factories=[lambda: first, *others], batched=batched, seeds=seeds)
    example = shared(factories=[lambda: first], batched="single")
    workers = SteadyParallelEnv(
        num_envs,
        partial(shared, factories=[factory], batched="single"),
        create_env_kwargs=[{"seeds": [s]} for s in seeds] if seeds else None,
        example=example,
    )
    example.close()
    mask = action_mask_of(example)
    env = workers if mask is None else TransformedEnv(workers, ActionMask(mask_key=mask))
    return _with_bounds(env, example.action_low, example.action_high)


def _taken(factory: Callable[..., Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """Selects arguments, not None, that `factory` has a parameter for and that are not set yet."""
    target: Any = factory
    by_position, by_name = 0, set[str]()
    while isinstance(target, partial):
        by_position, by_name = by_position + len(target.args), by_name | target.keywords.keys()
        target = target.func
    if isinstance(target, type):
        # The metaclass of TorchRL's environments hides the parameters of the class.
        target, by_position = target.__init__, by_position + 1  # type: ignore[misc]
    try:
        parameters = [*inspect.signature(target).parameters.values()][by_position:]
    except ValueError:
        return {}  # A builtin may hide its parameters.
    named = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    free = {parameter.name for parameter in parameters if parameter.kind in named} - by_name
    return {name: value for name, value in given.items() if name in free and value is not None}


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
        _check_batch(first, num_envs, backend)
        base = with_truncated(lambda: first)
    elif num_envs is None:
        base = with_truncated(lambda: first)
    else:
        example = with_truncated(lambda: first)
        if backend == "vector":
            unused = [example]
            base = SteadySerialEnv(
                num_envs,
                lambda: unused.pop() if unused else with_truncated(factory),
                example=example,
            )
        else:
            base = SteadyParallelEnv(num_envs, partial(with_truncated, factory), example=example)
            example.close(raise_if_closed=False)
    env = complete.around(base).to(device)
    if seed is not None:
        env.set_seed(seed)
    return _with_bounds(env, complete.action_low, complete.action_high)


def _check_batch(env: EnvBase, num_envs: int | None, backend: Backend) -> None:
    size = tuple(env.batch_size)
    if num_envs not in (None, env.batch_size.numel()):
        raise ValueError(
            f"`num_envs` must be None or agree with an environment of batch size {size}, got "
            f"`{num_envs}`; ask for {env.batch_size.numel()}, or give the factory a parameter "
            "`num_envs` and make as many rows"
        )
    if backend == "parallel":
        raise ValueError(
            f"`backend` must be 'vector' for an environment of batch size {size}, got `parallel`; "
            "its rows are stepped together already"
        )


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
