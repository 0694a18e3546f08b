"""`MjlabEnv`: tasks of mjlab, with the last observation of every episode."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from torchrl_elegant.envs.batched.simulator import (
    Actions,
    SimulatorEnv,
    SimulatorTasks,
    Stepped,
    check_steps,
    named_groups,
)

if TYPE_CHECKING:
    from mjlab.envs import ManagerBasedRlEnv, ManagerBasedRlEnvCfg

# Groups of observations of mjlab, and their names here.
_GROUPS = {"actor": "observation", "critic": "state"}


class MjlabEnv(SimulatorEnv):
    """A task of mjlab in `num_envs` rows.

    The group `actor` is `observation`, and `critic`, where it shows something else, `state`, for an
    asymmetric critic. Other groups keep their names. mjlab runs with `auto_reset=False`: the
    observation at the end of an episode is the true one, and rows begin anew when the collector
    resets them. Time limits are truncations, unless the task has `is_finite_horizon`: there they
    are ends.

    TorchRL's `MJLabEnv` returns views of mjlab's live buffers, so every reward of a batch becomes
    the last one.

    mjlab draws from the random streams of the process; `seed` and `set_seed` seed them by mjlab's
    own function.

    Args:
        task: a name in mjlab's registry, or a configuration, which stays as it is.
        num_envs: rows; None takes the number that the configuration has.
        action_bound: an action of 1 here is this much in mjlab, which names no bounds.
        device: where the simulation runs.
        seed: of the simulation's random numbers.
        play: whether to take the configuration that mjlab shows policies with.
        max_steps: steps after which an episode is truncated; None keeps the task's own limit.
    """

    def __init__(
        self,
        task: str | ManagerBasedRlEnvCfg,
        *,
        num_envs: int | None = None,
        action_bound: float = 1.0,
        device: torch.device | str = "cpu",
        seed: int | None = None,
        play: bool = False,
        max_steps: int | None = None,
    ) -> None:
        cfg = _configuration(task, play) if isinstance(task, str) else copy.deepcopy(task)
        if num_envs is not None:
            cfg.scene.num_envs = num_envs
        super().__init__(num_envs=cfg.scene.num_envs, device=device)
        cfg.auto_reset = False
        if seed is not None:
            cfg.seed = seed
        if max_steps is not None:
            check_steps(max_steps)
            # Half a step of room: mjlab rounds the quotient up.
            cfg.episode_length_s = (max_steps - 0.5) * cfg.decimation * cfg.sim.mujoco.timestep
        self._simulator = _made(cfg, str(self.device))
        self._is_finite = cfg.is_finite_horizon
        self._describe(
            self._seen(self._simulator.reset()[0]),
            Actions.within(sum(self._simulator.action_manager.action_term_dim), action_bound),
        )

    @property
    def simulator(self) -> ManagerBasedRlEnv:
        """The environment of mjlab."""
        return self._simulator

    def _seen(self, groups: Mapping[str, Any]) -> dict[str, Tensor]:
        return named_groups(groups, _GROUPS)

    def _advance(self, action: Tensor) -> Stepped:
        seen, reward, ended, timed_out, _ = self._simulator.step(action)
        if self._is_finite:
            ended, timed_out = ended | timed_out, torch.zeros_like(timed_out)
        return Stepped(self._seen(seen), reward, ended, timed_out)

    def _restart(self, rows: Tensor) -> dict[str, Tensor]:
        return self._seen(self._simulator.reset(env_ids=rows.nonzero().view(-1))[0])

    def _set_seed(self, seed: int | None) -> None:
        self._simulator.seed(-1 if seed is None else seed)

    def _end(self) -> None:
        self._simulator.close()


def _names() -> list[str]:
    import mjlab.tasks  # noqa: F401  (registers the tasks)
    from mjlab.tasks.registry import list_tasks

    return list_tasks()


def _configuration(task: str, play: bool) -> ManagerBasedRlEnvCfg:
    known = MJLAB_TASKS
    if task not in known:
        raise ValueError(f"`task` must be one of mjlab's, got `{task}`: {', '.join(known)}")
    from mjlab.tasks.registry import load_env_cfg

    return load_env_cfg(task, play=play)


def _made(cfg: ManagerBasedRlEnvCfg, device: str) -> ManagerBasedRlEnv:
    from mjlab.envs import ManagerBasedRlEnv

    return ManagerBasedRlEnv(cfg, device=device)


MJLAB_TASKS = SimulatorTasks(
    "mjlab",
    package="mjlab",
    install="pip install mjlab, in an environment of its own (benchmarks/requirements-mjlab.txt)",
    names=_names,
    make=MjlabEnv,
)
