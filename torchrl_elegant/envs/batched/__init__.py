"""Environments of many rows that step in tensors, on any device."""

from torchrl_elegant.envs.batched.chasing import ChasingEnv
from torchrl_elegant.envs.batched.envpool import ENVPOOL_TASKS, EnvpoolEnv
from torchrl_elegant.envs.batched.genesis import GENESIS_TASKS, GenesisEnv, Go2Env
from torchrl_elegant.envs.batched.isaac_lab import ISAAC_LAB_TASKS, IsaacLabEnv
from torchrl_elegant.envs.batched.isaacgym_tasks import IsaacGymTasks
from torchrl_elegant.envs.batched.jax_simulator import (
    BRAX_TASKS,
    PLAYGROUND_TASKS,
    BraxEnv,
    JaxSimulatorEnv,
    PlaygroundEnv,
)
from torchrl_elegant.envs.batched.mjlab import MJLAB_TASKS, MjlabEnv
from torchrl_elegant.envs.batched.recall import RecallEnv
from torchrl_elegant.envs.batched.simulator import Actions, SimulatorEnv, SimulatorTasks, Stepped
from torchrl_elegant.envs.batched.stock import StockTradingEnv
from torchrl_elegant.envs.batched.vectask import LocalTask, VecTaskEnv
from torchrl_elegant.envs.batched.vectask_bridge import BridgedTask

__all__ = [
    "BRAX_TASKS",
    "ENVPOOL_TASKS",
    "GENESIS_TASKS",
    "ISAAC_LAB_TASKS",
    "MJLAB_TASKS",
    "PLAYGROUND_TASKS",
    "Actions",
    "BraxEnv",
    "BridgedTask",
    "ChasingEnv",
    "EnvpoolEnv",
    "GenesisEnv",
    "Go2Env",
    "IsaacGymTasks",
    "IsaacLabEnv",
    "JaxSimulatorEnv",
    "LocalTask",
    "MjlabEnv",
    "PlaygroundEnv",
    "RecallEnv",
    "SimulatorEnv",
    "SimulatorTasks",
    "Stepped",
    "StockTradingEnv",
    "VecTaskEnv",
]
