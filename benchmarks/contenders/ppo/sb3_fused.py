"""Stable-Baselines3's PPO with fused Adam, which it takes when told to and not by itself."""

from __future__ import annotations

from collections.abc import Callable

import torch
from stable_baselines3 import PPO

from contenders.case import PPOCase
from contenders.ppo.sb3 import PACKAGES, build, serve

__all__ = ["PACKAGES", "make"]


def make(case: PPOCase) -> Callable[[int], int]:
    torch.set_num_threads(case.threads)
    return serve(build(PPO, case, {"optimizer_kwargs": {"fused": True}}, device="cpu"))
