"""ElegantRL's ideas as TorchRL components.

>>> from torchrl_elegant import SACConfig, make_env
>>> SACConfig().batch_size
256
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torchrl_elegant.algorithms import (
        A2CConfig,
        D3QNConfig,
        DDPGConfig,
        DiscreteSACConfig,
        DoubleDQNConfig,
        DQNConfig,
        DuelingDQNConfig,
        HTermConfig,
        ModSACConfig,
        PPOConfig,
        REDQConfig,
        SACConfig,
        TD3Config,
    )
    from torchrl_elegant.envs import make_env
    from torchrl_elegant.runs import Policy, Trial, load_policy, resume, train, tuned
    from torchrl_elegant.trainers import RunConfig

__version__ = "0.1.0"

__all__ = [
    "A2CConfig",
    "D3QNConfig",
    "DDPGConfig",
    "DQNConfig",
    "DiscreteSACConfig",
    "DoubleDQNConfig",
    "DuelingDQNConfig",
    "HTermConfig",
    "ModSACConfig",
    "PPOConfig",
    "Policy",
    "REDQConfig",
    "RunConfig",
    "SACConfig",
    "TD3Config",
    "Trial",
    "load_policy",
    "make_env",
    "resume",
    "train",
    "tuned",
]

# Looked up on first use: whoever wants one loss need not wait for the trainers' imports.
_HOMES = {
    "A2CConfig": "algorithms",
    "D3QNConfig": "algorithms",
    "DDPGConfig": "algorithms",
    "DQNConfig": "algorithms",
    "DiscreteSACConfig": "algorithms",
    "DoubleDQNConfig": "algorithms",
    "DuelingDQNConfig": "algorithms",
    "HTermConfig": "algorithms",
    "ModSACConfig": "algorithms",
    "PPOConfig": "algorithms",
    "REDQConfig": "algorithms",
    "SACConfig": "algorithms",
    "TD3Config": "algorithms",
    "make_env": "envs",
    "Policy": "runs",
    "Trial": "runs",
    "RunConfig": "trainers",
    "load_policy": "runs",
    "resume": "runs",
    "train": "runs",
    "tuned": "runs",
}


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
    raise AttributeError(f"module `{__name__}` has no attribute `{name}`")


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES})
