"""Environments: `make_env` from a name or a callable, and the environment it returns."""

from torchrl_elegant.envs.batched import (
    BraxEnv,
    BridgedTask,
    ChasingEnv,
    EnvpoolEnv,
    GenesisEnv,
    Go2Env,
    IsaacLabEnv,
    JaxSimulatorEnv,
    LocalTask,
    MjlabEnv,
    PlaygroundEnv,
    RecallEnv,
    SimulatorEnv,
    StockTradingEnv,
    VecTaskEnv,
)
from torchrl_elegant.envs.gymnasium import GymnasiumEnv, sub_seeds
from torchrl_elegant.envs.keys import EnvKeys, Outcome
from torchrl_elegant.envs.make import PREFIXES, make_env
from torchrl_elegant.envs.markets import Market, load_market, synthetic_market
from torchrl_elegant.envs.pixels import Pixels
from torchrl_elegant.envs.spaces import BOOKKEEPING_KEYS, UnsupportedSpaceError
from torchrl_elegant.envs.teams import Drawable, PettingZooTeams, VmasTeams
from torchrl_elegant.envs.wrap import CompleteEnv

__all__ = [
    "BOOKKEEPING_KEYS",
    "PREFIXES",
    "BraxEnv",
    "BridgedTask",
    "ChasingEnv",
    "CompleteEnv",
    "Drawable",
    "EnvKeys",
    "EnvpoolEnv",
    "GenesisEnv",
    "Go2Env",
    "GymnasiumEnv",
    "IsaacLabEnv",
    "JaxSimulatorEnv",
    "LocalTask",
    "Market",
    "MjlabEnv",
    "Outcome",
    "PettingZooTeams",
    "Pixels",
    "PlaygroundEnv",
    "RecallEnv",
    "SimulatorEnv",
    "StockTradingEnv",
    "UnsupportedSpaceError",
    "VecTaskEnv",
    "VmasTeams",
    "load_market",
    "make_env",
    "sub_seeds",
    "synthetic_market",
]
