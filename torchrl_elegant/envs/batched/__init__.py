"""Environments of many rows that step in tensors, on any device."""

from torchrl_elegant.envs.batched.chasing import ChasingEnv

__all__ = ["ChasingEnv"]
