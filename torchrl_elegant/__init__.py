"""ElegantRL's ideas as TorchRL components.

>>> from torchrl_elegant import SACConfig, make_env
>>> SACConfig().batch_size
256
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torchrl_elegant.algorithms import A2CConfig, ModSACConfig, PPOConfig, SACConfig
    from torchrl_elegant.envs import make_env
    from torchrl_elegant.trainers import Policy, RunConfig, load_policy, resume, train

__version__ = "0.1.0"

__all__ = [
    "A2CConfig",
    "ModSACConfig",
    "PPOConfig",
    "Policy",
    "RunConfig",
    "SACConfig",
    "load_policy",
    "make_env",
    "resume",
    "train",
]

# Looked up on first use: whoever wants one loss need not wait for the trainers' imports.
_HOMES = {
    "A2CConfig": "algorithms",
    "ModSACConfig": "algorithms",
    "PPOConfig": "algorithms",
    "SACConfig": "algorithms",
    "make_env": "envs",
    "Policy": "trainers",
    "RunConfig": "trainers",
    "load_policy": "trainers",
    "resume": "trainers",
    "train": "trainers",
}


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
    raise AttributeError(f"module `{__name__}` has no attribute `{name}`")


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES})
