"""Stand-ins for simulators that are not installed beside the tests.

All play one task: an observation is the number of the episode in its row and the steps made since.
An action above 0.5 is a fall, and `LIMIT` steps are the time limit. The reward is 1 + steps, and 10
more for a fall. Each has the interface of its simulator, with live buffers that it writes again.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import nullcontext
from types import ModuleType, SimpleNamespace
from typing import Any, NamedTuple

import gymnasium
import numpy as np
import pytest
import torch
from torch import Tensor

from torchrl_elegant.envs.batched import (
    Actions,
    EnvpoolEnv,
    GenesisEnv,
    IsaacLabEnv,
    JaxSimulatorEnv,
    MjlabEnv,
    SimulatorEnv,
)

LIMIT = 4


class Core:
    """Rows of the task, in buffers that are written again at every step."""

    def __init__(self, rows: int) -> None:
        self.seen = torch.zeros(rows, 2)
        self.reward = torch.zeros(rows)
        self.closed = 0
        self.fell, self.over = torch.zeros(2, rows, dtype=torch.bool).unbind(0)

    def close(self) -> None:
        self.closed += 1

    def begin(self, rows: Tensor) -> None:
        self.seen[rows, 0] += 1
        self.seen[rows, 1] = 0

    def step(self, action: Tensor) -> None:
        self.seen[:, 1] += 1
        self.fell.copy_(action[:, 0] > 0.5)
        self.over.copy_(self.seen[:, 1] >= LIMIT)
        self.reward.copy_(1 + self.seen[:, 1] + 10.0 * self.fell)


class Mjlab(Core):
    """mjlab's `ManagerBasedRlEnv` without auto-reset: it refuses to step a row that has ended."""

    def __init__(self, cfg: Any, device: str) -> None:
        super().__init__(cfg.scene.num_envs)
        assert not cfg.auto_reset
        self.cfg = cfg
        self.action_manager = SimpleNamespace(action_term_dim=[1])
        self.pending = torch.zeros_like(self.fell)
        self.seeds: list[int] = []

    def groups(self) -> dict[str, Tensor]:
        return {"actor": self.seen, "critic": self.seen}

    def reset(self, *, seed: int | None = None, env_ids: Tensor | None = None) -> Any:
        rows = torch.arange(len(self.seen)) if env_ids is None else env_ids
        self.begin(rows)
        self.pending[rows] = False
        return self.groups(), {}

    def step(self, action: Tensor) -> Any:
        if self.pending.any():
            raise RuntimeError("must be reset")
        super().step(action)
        self.pending |= self.fell | self.over
        return self.groups(), self.reward, self.fell, self.over, {}

    def seed(self, seed: int) -> None:
        self.seeds.append(seed)


def mjlab_cfg(**changed: Any) -> SimpleNamespace:
    cfg = SimpleNamespace(
        scene=SimpleNamespace(num_envs=1),
        sim=SimpleNamespace(mujoco=SimpleNamespace(timestep=0.005)),
        decimation=4,
        auto_reset=True,
        seed=None,
        is_finite_horizon=False,
    )
    vars(cfg).update(changed)
    return cfg


class IsaacLab(Core):
    """Isaac Lab's `DirectRLEnv`: it begins anew within the step, and keeps old `final_obs`."""

    def __init__(self, rows: int, *, final: bool = True, finite: bool = False) -> None:
        super().__init__(rows)
        self.num_envs, self.device, self.unwrapped = rows, "cpu", self
        self.cfg = SimpleNamespace(compute_final_obs=final, is_finite_horizon=finite)
        self.single_action_space = gymnasium.spaces.Box(-np.inf, np.inf, (1,))
        self.extras: dict[str, Any] = {}
        self.begins = 0

    def reset(self) -> Any:
        self.begins += 1
        self.begin(torch.arange(self.num_envs))
        return {"policy": self.seen}, {}

    def step(self, action: Tensor) -> Any:
        super().step(action)
        rows = (self.fell | self.over).nonzero().view(-1)
        if len(rows):
            self.extras["final_obs"] = {"policy": self.seen.clone()}
            self.begin(rows)
        return {"policy": self.seen}, self.reward, self.fell, self.over, self.extras


class Envpool(Core):
    """envpool's rows, reset by number; at a time limit it does not say whether a row has failed."""

    action_space: gymnasium.Space = gymnasium.spaces.Box(-1.0, 1.0, (1,), np.float64)

    def __init__(self, rows: int, max_episode_steps: int) -> None:
        super().__init__(rows)
        self.limit = max_episode_steps
        self.ended = torch.zeros_like(self.fell)

    def reset(self, env_id: np.ndarray | None = None) -> Any:
        rows = torch.arange(len(self.seen)) if env_id is None else torch.from_numpy(env_id).long()
        self.begin(rows)
        self.ended[rows] = False
        return self.seen[rows].double().numpy(), {}

    def step(self, action: np.ndarray) -> Any:
        assert not self.ended.any(), "a junk transition"
        super().step(torch.from_numpy(action))
        self.over.copy_(self.seen[:, 1] >= self.limit)
        self.fell &= ~self.over
        self.ended |= self.fell | self.over
        told = (self.seen.double(), self.reward, self.fell, self.over)
        return (*(x.numpy() for x in told), {})


class Scene(Core):
    """Genesis' scene; the task is in :class:`GenesisTask`."""

    def __init__(self, rows: int) -> None:
        super().__init__(rows)
        self.n_envs = rows

    def step(self) -> None:  # type: ignore[override]
        super().step(self.action)

    def reset(self, envs_idx: Tensor) -> None:
        self.begin(envs_idx)


class GenesisTask(GenesisEnv):
    """The task over a scene."""

    def __init__(self, rows: int) -> None:
        super().__init__(Scene(rows), max_steps=LIMIT, seed=0)
        self._complete(Actions.within(1, 1.0))

    def _act(self, action: Tensor) -> None:
        self._scene.action = action

    def _observe(self) -> dict[str, Tensor]:
        return {"observation": self._scene.seen}

    def _reward(self, action: Tensor) -> Tensor:
        return self._scene.reward

    def _fallen(self) -> Tensor:
        return self._scene.fell


class State(NamedTuple):
    """State of Brax."""

    obs: Any
    reward: Tensor
    done: Tensor


class BraxTask:
    """The task with Brax's interface; a key is the number of the episode."""

    action_size = 1

    def reset(self, key: Tensor) -> State:
        return State(torch.stack([key, key * 0]), key * 0, key * 0)

    def step(self, state: State, action: Tensor) -> State:
        fell = (action[0] > 0.5).float()
        seen = state.obs + torch.tensor([0.0, 1.0])
        return State(seen, 1 + seen[1] + 10 * fell, fell)


class PrivilegedTask(BraxTask):
    """The task with Playground's two observations."""

    def reset(self, key: Tensor) -> State:
        state = super().reset(key)
        return state._replace(obs={"state": state.obs, "privileged_state": -state.obs})


def jax_on_torch() -> ModuleType:
    """The few functions of JAX that the adapter calls, by PyTorch."""

    def tree_map(function: Callable[..., Any], *trees: Any) -> Any:
        if isinstance(trees[0], dict):
            return {k: tree_map(function, *(tree[k] for tree in trees)) for k in trees[0]}
        if isinstance(trees[0], tuple):
            return type(trees[0])(*(tree_map(function, *parts) for parts in zip(*trees)))  # noqa: B905
        return function(*trees)

    def cond(chosen: Tensor, yes: Callable[..., Any], no: Callable[..., Any], x: Any) -> Any:
        return yes(x) if chosen else no(x)

    def split(key: Tensor, count: int = 2) -> Tensor:
        return 1.5 * key + torch.arange(count) / 64

    def devices(platform: str) -> list[str]:
        return [platform]

    jax = ModuleType("jax")
    parts = {
        "jit": lambda function: function,
        "vmap": torch.vmap,
        "devices": devices,
        "default_device": lambda _: nullcontext(),
        "dlpack": SimpleNamespace(from_dlpack=lambda x: x),
        "lax": SimpleNamespace(cond=cond),
        "tree": SimpleNamespace(map=tree_map),
        "random": SimpleNamespace(PRNGKey=lambda seed: torch.tensor(float(seed)), split=split),
        "numpy": SimpleNamespace(
            any=torch.any,
            where=torch.where,
            zeros=lambda rows, _: torch.zeros(rows, dtype=torch.bool),
        ),
    }
    vars(jax).update(parts)
    return jax


def stand_in(
    monkeypatch: pytest.MonkeyPatch, name: str, rows: int, **arguments: Any
) -> SimulatorEnv:
    """The adapter of a simulator over its stand-in; arguments are for envpool's."""

    def installed(module: str, **content: Any) -> None:
        made = ModuleType(module)
        vars(made).update(content)
        monkeypatch.setitem(sys.modules, module, made)

    if name == "mjlab":
        installed("mjlab")
        installed("mjlab.envs", ManagerBasedRlEnv=Mjlab)
        return MjlabEnv(mjlab_cfg(), num_envs=rows)
    if name == "envpool":

        def make(task: str, *, num_envs: int, max_episode_steps: int, **_: Any) -> Envpool:
            return Envpool(num_envs, max_episode_steps)

        config = SimpleNamespace(max_episode_steps=LIMIT)
        installed("envpool", make=make, make_spec=lambda task: SimpleNamespace(config=config))
        return EnvpoolEnv("Scripted", num_envs=rows, **arguments)
    if name == "genesis":
        installed("genesis", device=torch.device("cpu"))
        return GenesisTask(rows)
    if name == "isaaclab":
        return IsaacLabEnv(IsaacLab(rows))
    monkeypatch.setitem(sys.modules, "jax", jax_on_torch())
    return JaxSimulatorEnv(BraxTask(), num_envs=rows, max_steps=LIMIT, seed=3)
