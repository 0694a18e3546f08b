"""`EnvpoolEnv`: tasks of envpool, stepped by threads, without the step that it loses at an end."""

from __future__ import annotations

import importlib
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from torchrl_elegant.envs.batched.simulator import (
    Actions,
    SimulatorEnv,
    SimulatorTasks,
    Stepped,
    check_steps,
)
from torchrl_elegant.envs.spaces import DiscreteActions


class EnvpoolEnv(SimulatorEnv):
    """A task of envpool in `num_envs` rows.

    Left alone, envpool begins an episode in the step after its end: that step ignores its action
    and leads from the end of one episode into the next. Here a row is reset by its number before
    the next step, so there is no such transition. At its time limit envpool does not tell whether a
    row has failed as well. So the limit is counted here: both may be true at once.

    It runs in host memory; make it on the CPU.

    Args:
        task: a name in envpool's registry.
        num_envs: rows.
        num_threads: threads that step them; 0 lets envpool choose.
        max_steps: steps after which an episode is truncated; None takes the task's own.
        action_bound: an action of 1 here is this much there, where the task names no bounds; it is
            needed there.
        discrete_actions: how a choice is written, `"one_hot"` or `"categorical"` (an index).
        device: the CPU.
        seed: of all rows; None takes one from the operating system.
        task_kwargs: further arguments of the task.
    """

    _simulator: Any = None

    def __init__(
        self,
        task: str,
        *,
        num_envs: int = 1,
        num_threads: int = 0,
        max_steps: int | None = None,
        action_bound: float | None = None,
        discrete_actions: DiscreteActions = "one_hot",
        device: torch.device | str = "cpu",
        seed: int | None = None,
        **task_kwargs: Any,
    ) -> None:
        check_steps(max_steps)
        super().__init__(num_envs=num_envs, device=device)
        if self.device.type != "cpu":
            raise ValueError(f"`device` must be the CPU for envpool, got `{device}`")
        own = int(_envpool().make_spec(task).config.max_episode_steps)
        self.max_steps = own if max_steps is None else max_steps
        self._make = partial(
            _envpool().make,
            task,
            env_type="gymnasium",
            num_envs=num_envs,
            num_threads=num_threads,
            # envpool calls an end at its own limit no termination: its limit lies one step later.
            max_episode_steps=min(self.max_steps + 1, 2**31 - 1),
            **task_kwargs,
        )
        self._set_seed(seed)
        space = self._simulator.action_space
        self._action_type = space.dtype
        actions = Actions.of(space, action_bound)
        self._describe(self._now, actions, discrete_actions=discrete_actions)

    @property
    def simulator(self) -> Any:
        """The environments of envpool."""
        return self._simulator

    def _set_seed(self, seed: int | None) -> None:
        # envpool takes a seed when it is made alone, and its own default is 42 for everybody.
        self._end()
        drawn = int(np.random.SeedSequence(seed).generate_state(1)[0])
        self._simulator = self._make(seed=drawn % 2**31)
        self._now = self._seen(self._simulator.reset()[0])

    def _end(self) -> None:
        # Threads of a pool end when nothing refers to it; its own `close` is for windows.
        if self._simulator is not None:
            self._simulator.close()
            self._simulator = None

    def _seen(self, observation: Any) -> dict[str, Tensor]:
        if isinstance(observation, dict):
            return {name: _tensor(entry) for name, entry in observation.items()}
        return {"observation": _tensor(observation)}

    def _advance(self, action: Tensor) -> Stepped:
        chosen = action.cpu().numpy().astype(self._action_type)
        seen, reward, ended, timed_out, _ = self._simulator.step(chosen)
        self._now = self._seen(seen)
        return Stepped(self._now, *map(_tensor, (reward, ended, timed_out)))

    def _restart(self, rows: Tensor) -> dict[str, Tensor]:
        ids = rows.nonzero().view(-1)
        if len(ids):
            begun = self._seen(self._simulator.reset(ids.numpy().astype(np.int32))[0])
            self._now = {name: x.index_copy(0, ids, begun[name]) for name, x in self._now.items()}
        return self._now


def _tensor(array: np.ndarray) -> Tensor:
    # What is 64 bits wide comes from Gymnasium's specs; networks take 32.
    return torch.from_numpy(array.astype(np.float32) if array.dtype == np.float64 else array)


def _envpool() -> Any:
    return importlib.import_module("envpool")


ENVPOOL_TASKS = SimulatorTasks(
    "envpool",
    package="envpool",
    install="pip install envpool (benchmarks/requirements-jax.txt)",
    names=lambda: _envpool().list_all_envs(),
    make=EnvpoolEnv,
)
