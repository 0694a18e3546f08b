"""Environments of many rows that step in tensors, on any device."""

from torchrl_elegant.envs.batched.chasing import ChasingEnv
from torchrl_elegant.envs.batched.isaacgym_tasks import IsaacGymTasks
from torchrl_elegant.envs.batched.recall import RecallEnv
from torchrl_elegant.envs.batched.stock import StockTradingEnv
from torchrl_elegant.envs.batched.vectask import LocalTask, VecTaskEnv
from torchrl_elegant.envs.batched.vectask_bridge import BridgedTask

__all__ = [
    "BridgedTask",
    "ChasingEnv",
    "IsaacGymTasks",
    "LocalTask",
    "RecallEnv",
    "StockTradingEnv",
    "VecTaskEnv",
]
