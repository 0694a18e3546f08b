"""One function from a name, or a user's own environment, to a TorchRL environment.

Three ways to plug in an environment of your own:

A callable that returns a Gymnasium environment, wrapped as you like. For worker processes it
must be picklable, so a function at module level:

>>> import gymnasium
>>> def short_pendulum():
...     return gymnasium.make("Pendulum-v1", max_episode_steps=50)
>>> make_env(short_pendulum, 4).batch_size
torch.Size([4])

The name of such a callable, which also works from a command line and in a config file
(`env_kwargs` goes to the callable):

>>> make_env("gymnasium:make", 2, env_kwargs={"id": "CartPole-v1"}).action_spec.shape
torch.Size([2, 2])

A callable that returns a TorchRL environment, for simulators that write tensors themselves.
What is missing (step count, episode reward, float32, actions in [-1, 1]) is added around it:

>>> from torchrl.envs import GymEnv
>>> def frame_skipping():
...     return GymEnv("Pendulum-v1", frame_skip=4)
>>> make_env(frame_skipping, 2).rollout(5)["next", "episode_reward"].shape
torch.Size([2, 5, 1])

A Gymnasium environment that registers itself needs nothing: pass its id, after importing the
package that registers it, or `"package:Id-v0"`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Literal

import gymnasium
import numpy as np
import torch
from torchrl.envs import EnvBase

from torchrl_elegant.envs.gymnasium import GymnasiumEnv, sub_seeds
from torchrl_elegant.envs.pixels import Pixels, treated
from torchrl_elegant.envs.registry import find_factory
from torchrl_elegant.envs.spaces import DiscreteActions
from torchrl_elegant.envs.steady import SteadyParallelEnv, SteadySerialEnv
from torchrl_elegant.envs.wrap import complete_env, with_truncated

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
