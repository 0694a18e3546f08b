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
        IPPOConfig,
        ISACConfig,
        MADDPGConfig,
        MAPPOConfig,
        MASACConfig,
        MATD3Config,
        ModSACConfig,
        PPOConfig,
        QMIXConfig,
        REDQConfig,
        SACConfig,
        SymmetryConfig,
        TD3Config,
        VDNConfig,
    )
    from torchrl_elegant.envs import make_env
    from torchrl_elegant.reports import compare
    from torchrl_elegant.runs import (
        Callback,
        KeepBest,
        Policy,
        RecordVideo,
        StopOnPlateau,
        Trial,
        VectorizedPopulation,
        evaluate,
        film,
        load_policy,
        resume,
        resume_sweep,
        sweep,
        train,
        tuned,
    )
    from torchrl_elegant.trainers import RunConfig

__version__ = "0.1.0"

__all__ = [
    "A2CConfig",
    "Callback",
    "D3QNConfig",
    "DDPGConfig",
    "DQNConfig",
    "DiscreteSACConfig",
    "DoubleDQNConfig",
    "DuelingDQNConfig",
    "HTermConfig",
    "IPPOConfig",
    "ISACConfig",
    "KeepBest",
    "MADDPGConfig",
    "MAPPOConfig",
    "MASACConfig",
    "MATD3Config",
    "ModSACConfig",
    "PPOConfig",
    "Policy",
    "QMIXConfig",
    "REDQConfig",
    "RecordVideo",
    "RunConfig",
    "SACConfig",
    "StopOnPlateau",
    "SymmetryConfig",
    "TD3Config",
    "Trial",
    "VDNConfig",
    "VectorizedPopulation",
    "compare",
    "evaluate",
    "film",
    "load_policy",
    "make_env",
    "resume",
    "resume_sweep",
    "sweep",
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
    "IPPOConfig": "algorithms",
    "ISACConfig": "algorithms",
    "MADDPGConfig": "algorithms",
    "MAPPOConfig": "algorithms",
    "MASACConfig": "algorithms",
    "MATD3Config": "algorithms",
    "QMIXConfig": "algorithms",
    "VDNConfig": "algorithms",
    "ModSACConfig": "algorithms",
    "PPOConfig": "algorithms",
    "REDQConfig": "algorithms",
    "SACConfig": "algorithms",
    "SymmetryConfig": "algorithms",
    "TD3Config": "algorithms",
    "make_env": "envs",
    "Callback": "runs",
    "KeepBest": "runs",
    "Policy": "runs",
    "compare": "reports",
    "RecordVideo": "runs",
    "StopOnPlateau": "runs",
    "Trial": "runs",
    "VectorizedPopulation": "runs",
    "RunConfig": "trainers",
    "evaluate": "runs",
    "film": "runs",
    "load_policy": "runs",
    "resume": "runs",
    "resume_sweep": "runs",
    "sweep": "runs",
    "train": "runs",
    "tuned": "runs",
}


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
    raise AttributeError(f"module `{__name__}` has no attribute `{name}`")


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES})
