"""Stable-Baselines3's SAC with fused Adam, which it takes when told to and not by itself."""

from __future__ import annotations

from collections.abc import Callable

import torch
from stable_baselines3 import SAC

from contenders.case import SACCase
from contenders.sac.sb3 import build, serve

PACKAGES = ("stable-baselines3", "torch")


def make(case: SACCase) -> Callable[[int], int]:
    torch.set_num_threads(case.threads)
    return serve(build(SAC, case, {"optimizer_kwargs": {"fused": True}}, device="cpu"), case)
