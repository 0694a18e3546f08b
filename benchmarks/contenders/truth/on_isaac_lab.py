"""The scripted task in Isaac Lab 3, over a falling cube on Newton, without Isaac Sim."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from contenders.truth.schedule import LIMIT, ROWS, played
from torchrl_elegant.collectors import SyncCollector


def scripted_task() -> tuple[Any, Any]:
    """The environment's class, and its configuration."""
    import isaaclab.sim as sim_utils
    from isaaclab.assets import RigidObjectCfg
    from isaaclab.envs import DirectRLEnv, DirectRLEnvCfg
    from isaaclab.scene import InteractiveSceneCfg
    from isaaclab.sim import SimulationCfg
    from isaaclab.utils import configclass
    from isaaclab_newton.physics import MJWarpSolverCfg, NewtonCfg

    body = sim_utils.CuboidCfg(
        size=(0.2, 0.2, 0.2),
        rigid_props=sim_utils.RigidBodyPropertiesCfg(),
        mass_props=sim_utils.MassPropertiesCfg(mass=1.0),
        collision_props=sim_utils.CollisionPropertiesCfg(),
    )
    begin = RigidObjectCfg.InitialStateCfg(pos=(0, 0, 2.0))
    physics = NewtonCfg(solver_cfg=MJWarpSolverCfg())

    @configclass
    class SceneCfg(InteractiveSceneCfg):
        cube: RigidObjectCfg = RigidObjectCfg(
            prim_path="{ENV_REGEX_NS}/Cube", spawn=body, init_state=begin
        )

    @configclass
    class ScriptedCfg(DirectRLEnvCfg):
        decimation = 2
        episode_length_s = (LIMIT - 0.5) * 2 / 120
        action_space = 1
        observation_space = 2
        state_space = 0
        sim: SimulationCfg = SimulationCfg(dt=1 / 120, device="cpu", physics=physics)
        scene: SceneCfg = SceneCfg(num_envs=ROWS, env_spacing=4.0, replicate_physics=True)

    class ScriptedEnv(DirectRLEnv):
        def _pre_physics_step(self, actions: Tensor) -> None:
            self._fell = actions[:, 0] > 0.5

        def _apply_action(self) -> None:
            pass

        def _get_observations(self) -> dict[str, Tensor]:
            return {"policy": torch.stack([self._begun, self.episode_length_buf.float()], -1)}

        def _get_rewards(self) -> Tensor:
            return 1 + self.episode_length_buf + 10.0 * self._fell

        def _get_dones(self) -> tuple[Tensor, Tensor]:
            return self._fell, self.episode_length_buf >= LIMIT

        def _reset_idx(self, env_ids: Any) -> None:
            super()._reset_idx(env_ids)
            if "_begun" not in vars(self):
                self._begun = torch.zeros(self.num_envs)
            self._begun[env_ids.long()] = torch.rand(len(env_ids))

    cfg = ScriptedCfg()
    cfg.compute_final_obs = True
    return ScriptedEnv, cfg


def isaac_lab_rows() -> dict[str, Any]:
    """Ours, Isaac Lab's own wrapper and TorchRL's, one after the other over the same simulation."""
    from isaaclab.app import launch_simulation
    from isaaclab_rl.torchrl import IsaacLabTorchRLWrapper
    from torchrl.envs.libs.isaac_lab import IsaacLabWrapper

    from torchrl_elegant.envs import IsaacLabEnv

    make, cfg = scripted_task()
    with launch_simulation(cfg, {"device": "cpu"}):
        env = make(cfg)
        rows = {"ours": played(IsaacLabEnv(env), collector=SyncCollector)}
        print(rows, flush=True)
        rows["Isaac Lab's own"] = played(IsaacLabTorchRLWrapper(env), observation="policy")
        print(rows, flush=True)
        try:
            theirs = IsaacLabWrapper(env, device=torch.device("cpu"))
            rows["torchrl"] = played(theirs, observation="policy")
        except ImportError as error:
            rows["torchrl"] = {"failed": f"did not start over a used simulation: {error}"}
    return rows
