"""The scripted task in mjlab, over its Cartpole."""

from __future__ import annotations

from typing import Any

import torch

from contenders.truth.schedule import LIMIT, ROWS, played
from torchrl_elegant.collectors import SyncCollector


def scripted_cfg() -> Any:
    """Cartpole with the observations, rewards and ends of the scripted task."""
    import mjlab.tasks  # noqa: F401
    from mjlab.managers.event_manager import EventTermCfg
    from mjlab.managers.observation_manager import ObservationGroupCfg, ObservationTermCfg
    from mjlab.managers.reward_manager import RewardTermCfg
    from mjlab.managers.termination_manager import TerminationTermCfg
    from mjlab.tasks.registry import load_env_cfg

    starts = torch.zeros(ROWS)

    def begin(env: Any, env_ids: Any) -> None:
        starts[env_ids] = torch.rand(len(env_ids))

    def fell(env: Any) -> torch.Tensor:
        return env.action_manager.action[:, 0] > 0.5

    def seen(env: Any) -> torch.Tensor:
        return torch.stack([starts, env.episode_length_buf.float()], -1)

    def reward(env: Any) -> torch.Tensor:
        return 1 + env.episode_length_buf + 10.0 * fell(env)

    cfg = load_env_cfg("Mjlab-Cartpole-Balance")
    cfg.scene.num_envs, cfg.scale_rewards_by_dt = ROWS, False
    group = ObservationGroupCfg({"seen": ObservationTermCfg(func=seen)})
    cfg.observations = {"actor": group, "critic": group}
    cfg.rewards = {"scripted": RewardTermCfg(func=reward, weight=1.0)}
    cfg.terminations["fell"] = TerminationTermCfg(func=fell)
    cfg.events["begin"] = EventTermCfg(func=begin, mode="reset")
    cfg.episode_length_s = (LIMIT - 0.5) * cfg.decimation * cfg.sim.mujoco.timestep
    return cfg


def mjlab_rows() -> dict[str, Any]:
    """Ours and TorchRL's, over the same task."""
    from torchrl.envs import MJLabEnv

    from torchrl_elegant.envs import MjlabEnv

    task = "Mjlab-Cartpole-Balance"
    theirs = MJLabEnv(task, cfg=scripted_cfg(), num_envs=ROWS, device="cpu")
    seen = "actor" if "actor" in theirs.observation_spec else ("observation", "actor")
    if "observation" in theirs.observation_spec:
        seen = "observation"
    watched = MJLabEnv(task, cfg=scripted_cfg(), num_envs=ROWS, device="cpu")
    ours = MjlabEnv(scripted_cfg(), num_envs=ROWS, seed=0)
    return {
        "ours": played(ours, collector=SyncCollector),
        "torchrl": played(theirs, observation=seen),
        "torchrl in our collector": played(watched, observation=seen, collector=SyncCollector),
    }
