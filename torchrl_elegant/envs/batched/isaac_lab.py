"""`IsaacLabEnv`: tasks of Isaac Lab 3, with the last observation of every episode."""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Mapping
from typing import Any

import gymnasium
import torch
from torch import Tensor

from torchrl_elegant.envs.batched.simulator import (
    Actions,
    SimulatorEnv,
    SimulatorTasks,
    Stepped,
    named_groups,
)
from torchrl_elegant.envs.spaces import DiscreteActions

# Groups of observations of Isaac Lab, and their names here.
_GROUPS = {"policy": "observation", "critic": "state"}


class IsaacLabEnv(SimulatorEnv):
    """An environment of Isaac Lab 3, `DirectRLEnv` or `ManagerBasedRLEnv`.

    The group `policy` is `observation`, and `critic` is `state`, for an asymmetric critic. Other
    groups keep their names. Isaac Lab begins a new episode within the step; the environment must be
    made with `cfg.compute_final_obs=True`, so that `extras["final_obs"]` has the true last
    observation. Time limits are truncations, unless the task has `is_finite_horizon`: there they
    are ends.

    A reset of rows that have just ended begins nothing anew, for Isaac Lab has done that. Other
    rows are reset only all together. `close()` closes `env`.

    TorchRL's `IsaacLabWrapper` gives the first observation of the new episode in place of the last
    one of the old. Isaac Lab's own `IsaacLabTorchRLWrapper` is right, and may be used as well.

    Args:
        env: an environment of Isaac Lab, its simulation running.
        action_bound: an action of 1 here is this much there, where the task names no bounds.
        discrete_actions: how a choice is written, `"one_hot"` or `"categorical"` (an index).
    """

    def __init__(
        self,
        env: Any,
        *,
        action_bound: float = 1.0,
        discrete_actions: DiscreteActions = "one_hot",
    ) -> None:
        inner = env.unwrapped
        super().__init__(num_envs=inner.num_envs, device=inner.device)
        if not inner.cfg.compute_final_obs:
            raise ValueError(
                "`env` must keep last observations, got cfg.compute_final_obs=False; set "
                "cfg.compute_final_obs=True before the environment is made"
            )
        self._simulator, self._inner = env, inner
        # Environments of the older kind have no such field.
        self._is_finite = vars(inner.cfg).get("is_finite_horizon", False)
        # Rows that Isaac Lab has begun anew since the last reset.
        self._fresh = torch.zeros(self.num_envs, dtype=torch.bool, device=self.device)
        self._now = self._seen(env.reset()[0])
        actions = Actions.of(inner.single_action_space, action_bound)
        self._describe(self._now, actions, discrete_actions=discrete_actions)

    @property
    def simulator(self) -> Any:
        """The environment of Isaac Lab."""
        return self._simulator

    def _seen(self, groups: Mapping[str, Any]) -> dict[str, Tensor]:
        return named_groups(groups, _GROUPS)

    def _advance(self, action: Tensor) -> Stepped:
        if self._choices is not None:
            action = action.unsqueeze(-1)
        seen, reward, ended, timed_out, extras = self._simulator.step(action)
        if self._is_finite:
            ended, timed_out = ended | timed_out, torch.zeros_like(timed_out)
        self._fresh = (ended | timed_out).view(-1)
        self._now = last = self._seen(seen)
        if "final_obs" in extras:
            # Of an earlier step where no row has ended in this one; then no row is taken from it.
            final, rows = self._seen(extras["final_obs"]), self._fresh
            last = {
                name: torch.where(rows.view(-1, *[1] * (x.ndim - 1)), final[name], x)
                for name, x in self._now.items()
            }
        return Stepped(last, reward, ended, timed_out)

    def _restart(self, rows: Tensor) -> dict[str, Tensor]:
        if not bool((rows & ~self._fresh).any()):
            self._fresh = self._fresh & ~rows
            return self._now
        if not bool(rows.all()):
            raise RuntimeError(
                "rows of Isaac Lab that have not ended are reset only all together: call reset() "
                "without a mask"
            )
        self._fresh = torch.zeros_like(self._fresh)
        self._now = self._seen(self._simulator.reset()[0])
        return self._now

    def _set_seed(self, seed: int | None) -> None:
        if seed is not None:
            self._inner.seed(seed)

    def _end(self) -> None:
        self._simulator.close()


def make_isaac_lab(
    task: str,
    *,
    num_envs: int = 1,
    device: torch.device | str = "cpu",
    seed: int | None = None,
    action_bound: float = 1.0,
    discrete_actions: DiscreteActions = "one_hot",
) -> IsaacLabEnv:
    """Makes a task of Isaac Lab, or one of your own that is registered with Gymnasium as its are.

    The simulation must run already: make it within Isaac Lab's `launch_simulation`, or after its
    `AppLauncher` has started Isaac Sim.
    """
    parsing = importlib.import_module("isaaclab_tasks.utils")
    cfg = parsing.parse_env_cfg(task, device=str(device), num_envs=num_envs)
    cfg.compute_final_obs = True
    if seed is not None:
        cfg.seed = seed
    env = gymnasium.make(task, cfg=cfg)
    return IsaacLabEnv(env, action_bound=action_bound, discrete_actions=discrete_actions)


def _names() -> list[str]:
    if importlib.util.find_spec("isaaclab_tasks") is not None:
        importlib.import_module("isaaclab_tasks")
    return [name for name in gymnasium.registry if name.startswith("Isaac-")]


ISAAC_LAB_TASKS = SimulatorTasks(
    "isaaclab",
    package="isaaclab",
    install=(
        "pip install isaaclab, in an environment of its own with Python 3.12 "
        "(benchmarks/requirements-isaaclab.txt)"
    ),
    names=_names,
    # Those of one's own may have any name.
    knows=lambda name: name in gymnasium.registry,
    make=make_isaac_lab,
)
