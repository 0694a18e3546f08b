"""Environments of many rows that step in tensors, on any device."""

from torchrl_elegant.envs.batched.chasing import ChasingEnv
from torchrl_elegant.envs.batched.recall import RecallEnv
from torchrl_elegant.envs.batched.stock import StockTradingEnv

__all__ = ["ChasingEnv", "RecallEnv", "StockTradingEnv"]
