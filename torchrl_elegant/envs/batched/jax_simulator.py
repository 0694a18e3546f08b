"""`JaxSimulatorEnv`: environments of Brax and MuJoCo Playground as tensors."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from torchrl_elegant.envs.batched.simulator import (
    Actions,
    SimulatorEnv,
    SimulatorTasks,
    Stepped,
    check_steps,
)

# Groups of observations of Playground, and their names here.
_GROUPS = {"privileged_state": "state"}


class JaxSimulatorEnv(SimulatorEnv):
    """An environment with Brax's interface in `num_envs` rows: `reset(key)`, `step(state, action)`.

    The environment comes without Brax's wrappers: they restart an episode within the step, and its
    last observation is lost. Here a row that ends keeps its state until it is reset. What the
    environment calls `done` is a termination; the time limit `max_steps` is a truncation. In
    TorchRL's wrappers every `done` is a termination and no row is ever truncated.

    An observation of one array is `observation`. Of several, `state` is `observation` and
    `privileged_state` is `state`, for an asymmetric critic.

    Steps and resets are compiled by JAX, and share memory with PyTorch (DLPack). A reset takes
    the mask as it is, so nothing waits for the device. Each row has a start in store; they are
    drawn anew, for all rows at once, as soon as a row needs one that it has used.

    Args:
        env: an environment of Brax or Playground.
        num_envs: rows.
        max_steps: steps after which an episode is truncated; None for no limit.
        device: where it runs; JAX must see it too.
        seed: of the starts; None takes one from the operating system.
    """

    #: Resets exactly the rows of a mask, without looking at it on the host.
    resets_by_mask = True

    def __init__(
        self,
        env: Any,
        *,
        num_envs: int = 1,
        max_steps: int | None = 1000,
        device: torch.device | str = "cpu",
        seed: int | None = None,
    ) -> None:
        check_steps(max_steps)
        super().__init__(num_envs=num_envs, device=device)
        import jax

        self.max_steps, self._jax, self._env = max_steps, jax, env
        self._place = _jax_device(jax, self.device)
        self._compiled_step = jax.jit(jax.vmap(env.step))
        self._compiled_starts = jax.jit(self._starts)
        self._compiled_restart = jax.jit(self._restarted)
        self._set_seed(seed)
        self._describe(self._seen(), Actions.within(env.action_size, 1.0))

    @property
    def simulator(self) -> Any:
        """The environment of Brax or Playground."""
        return self._env

    def _set_seed(self, seed: int | None) -> None:
        if seed is None:
            seed = int(torch.empty((), dtype=torch.int64).random_(generator=_from_system()))
        with self._jax.default_device(self._place):
            key = self._jax.random.PRNGKey(seed % 2**31)
            self._key, self._stored = self._compiled_starts(key)
            self._state = self._stored
            self._used = self._jax.numpy.zeros(self.num_envs, bool)

    def _starts(self, key: Any) -> tuple[Any, Any]:
        key, drawn = self._jax.random.split(key)
        return key, self._jax.vmap(self._env.reset)(self._jax.random.split(drawn, self.num_envs))

    def _restarted(self, rows: Any, used: Any, key: Any, stored: Any, state: Any) -> Any:
        jax, jnp = self._jax, self._jax.numpy
        stale = jnp.any(rows & used)
        key, stored = jax.lax.cond(stale, self._starts, lambda key: (key, stored), key)
        used = jnp.where(stale, rows, used | rows)

        def chosen(then: Any, now: Any) -> Any:
            if now.shape[:1] != rows.shape:
                return now  # Empty, and the same in all rows.
            mask = rows.reshape(rows.shape + (1,) * (now.ndim - 1))
            return jnp.where(mask, then, now)

        return used, key, stored, jax.tree.map(chosen, stored, state)

    def _advance(self, action: Tensor) -> Stepped:
        self._state = self._compiled_step(self._state, self._to_jax(action))
        done = self._to_torch(self._state.done)
        reward = self._to_torch(self._state.reward)
        return Stepped(self._seen(), reward, done, torch.zeros_like(done, dtype=torch.bool))

    def _restart(self, rows: Tensor) -> Mapping[str, Tensor]:
        self._used, self._key, self._stored, self._state = self._compiled_restart(
            self._to_jax(rows), self._used, self._key, self._stored, self._state
        )
        return self._seen()

    def _seen(self) -> dict[str, Tensor]:
        seen = self._state.obs
        if not isinstance(seen, Mapping):
            return {"observation": self._to_torch(seen)}
        named = {name: self._to_torch(x) for name, x in seen.items()}
        if "state" not in named:
            return named
        return {"observation": named.pop("state")} | {
            _GROUPS.get(name, name): x for name, x in named.items()
        }

    def _to_jax(self, x: Tensor) -> Any:
        return self._jax.dlpack.from_dlpack(x.contiguous())

    def _to_torch(self, x: Any) -> Tensor:
        return torch.from_dlpack(x).to(self.device)


def _from_system() -> torch.Generator:
    generator = torch.Generator()
    generator.seed()
    return generator


def _jax_device(jax: Any, device: torch.device) -> Any:
    platform = "cuda" if device.type == "cuda" else device.type
    try:
        return jax.devices(platform)[device.index or 0]
    except (RuntimeError, IndexError) as error:
        raise ValueError(
            f"`device` must be one that JAX sees, got `{device}`: pip install jax[cuda12]"
        ) from error


class BraxEnv(JaxSimulatorEnv):
    """A task of Brax; see :class:`JaxSimulatorEnv`.

    Args:
        task: a name in Brax's registry.
        backend: Brax's physics, `"mjx"`, `"generalized"`, `"spring"` or `"positional"`; None takes
            the task's own.
        num_envs, max_steps, device, seed: as `JaxSimulatorEnv`.
    """

    def __init__(
        self,
        task: str,
        *,
        backend: str | None = None,
        num_envs: int = 1,
        max_steps: int | None = 1000,
        device: torch.device | str = "cpu",
        seed: int | None = None,
    ) -> None:
        registry = _brax()
        if task not in registry._envs:
            raise ValueError(f"`task` must be one of Brax's, got `{task}`: {', '.join(BRAX_TASKS)}")
        physics = {} if backend is None else {"backend": backend}
        env = registry.get_environment(task, **physics)
        super().__init__(env, num_envs=num_envs, max_steps=max_steps, device=device, seed=seed)


class PlaygroundEnv(JaxSimulatorEnv):
    """A task of MuJoCo Playground; see :class:`JaxSimulatorEnv`.

    Args:
        task: a name in Playground's registry.
        config_overrides: entries of the task's configuration, by their dotted names.
        max_steps: steps after which an episode is truncated; None takes the task's own number.
        num_envs, device, seed: as `JaxSimulatorEnv`.
    """

    def __init__(
        self,
        task: str,
        *,
        config_overrides: Mapping[str, Any] | None = None,
        num_envs: int = 1,
        max_steps: int | None = None,
        device: torch.device | str = "cpu",
        seed: int | None = None,
    ) -> None:
        registry = _playground()
        if task not in registry.ALL_ENVS:
            known = ", ".join(PLAYGROUND_TASKS)
            raise ValueError(f"`task` must be one of Playground's, got `{task}`: {known}")
        overrides = dict(config_overrides or {})
        if max_steps is None:
            default = registry.get_default_config(task)
            max_steps = int(overrides.get("episode_length", default.episode_length))
        env = registry.load(task, config_overrides=overrides or None)
        super().__init__(env, num_envs=num_envs, max_steps=max_steps, device=device, seed=seed)


def _brax() -> Any:
    return importlib.import_module("brax.envs")


def _playground() -> Any:
    return importlib.import_module("mujoco_playground").registry


BRAX_TASKS = SimulatorTasks(
    "brax",
    package="brax",
    install="pip install brax (benchmarks/requirements-jax.txt)",
    names=lambda: _brax()._envs,
    make=BraxEnv,
)
PLAYGROUND_TASKS = SimulatorTasks(
    "playground",
    package="mujoco_playground",
    install="pip install playground (benchmarks/requirements-jax.txt)",
    names=lambda: _playground().ALL_ENVS,
    make=PlaygroundEnv,
)
