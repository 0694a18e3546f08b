"""Settings of a training, for all libraries alike. They need the standard library alone."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from contenders.case import TeamCase

#: Scenarios with the arguments that BenchMARL 1.5.2 has in its task files; 100 steps an episode.
TASKS: Mapping[str, Mapping[str, Any]] = {
    "balance": {"n_agents": 4, "random_package_pos_on_line": True, "package_mass": 5},
    "navigation": {
        "n_agents": 3,
        "collisions": True,
        "agents_with_same_goal": 1,
        "split_goals": False,
        "observe_all_goals": False,
        "shared_rew": False,
        "lidar_range": 0.35,
        "agent_radius": 0.1,
    },
    "sampling": {
        "n_agents": 3,
        "shared_rew": False,
        "n_gaussians": 3,
        "lidar_range": 0.2,
        "cov": 0.05,
        "collisions": True,
        "spawn_same_pos": False,
    },
}
STEPS = 100
#: Frames of a run that nobody waits for.
ENDLESS = 2**40
ON_POLICY = ("mappo", "ippo")
DISCRETE = ("qmix", "vdn")
ALGORITHMS = ("qmix", "vdn", "maddpg", "masac", "mappo", "ippo")


@dataclass(frozen=True, kw_only=True)
class Setting:
    """One algorithm on one task, at settings that both libraries are given.

    ``updates`` follow each batch of ``batch_frames``, on-policy as ``epochs`` over it.
    """

    task: str
    algorithm: str
    frames: int
    envs: int
    batch_frames: int
    minibatch: int
    updates: int = 0
    epochs: int = 0
    gamma: float = 0.9
    learning_rate: float = 5e-4
    adam_eps: float = 1e-6
    cells: tuple[int, ...] = (128, 128)
    clip: float = 5.0
    tau: float = 0.005
    buffer: int = 1_000_000
    # Exploration: part of random actions, or spread of the noise.
    explore_first: float = 0.8
    explore_last: float = 0.05
    explore_frames: int = 20_000
    lmbda: float = 0.9
    clip_epsilon: float = 0.2
    entropy: float = 0.0
    agents: int | None = None

    @property
    def scenario(self) -> dict[str, Any]:
        """Arguments of the scenario."""
        own = {} if self.agents is None else {"n_agents": self.agents}
        return {**TASKS[self.task], **own}

    @property
    def on_policy(self) -> bool:
        return self.algorithm in ON_POLICY

    @property
    def discrete(self) -> bool:
        return self.algorithm in DISCRETE


def setting_of(task: str, algorithm: str, **changes: Any) -> Setting:
    """The setting of the learning study."""
    shared: dict[str, Any] = {"task": task, "algorithm": algorithm}
    if algorithm in ON_POLICY:
        shared |= {"frames": 240_000, "envs": 120, "batch_frames": 12_000}
        shared |= {"minibatch": 1_000, "epochs": 15}
    else:
        shared |= {"frames": 60_000, "envs": 60, "batch_frames": 600}
        shared |= {"minibatch": 128, "updates": 100}
    return Setting(**shared | changes)


def setting_of_case(case: TeamCase) -> Setting:
    """The setting of a case of the speed study: that of the learning study, at other sizes."""
    usual = setting_of(case.env, case.algorithm)
    steps = usual.batch_frames // usual.envs
    changes = {"agents": case.agents, "envs": case.envs, "batch_frames": steps * case.envs}
    return replace(usual, **changes, frames=ENDLESS)
