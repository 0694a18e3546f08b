"""Environments: `make_env` from a name or a callable, and the environment it returns."""

from torchrl_elegant.envs.batched import (
    BraxEnv,
    ChasingEnv,
    EnvpoolEnv,
    GenesisEnv,
    Go2Env,
    IsaacLabEnv,
    JaxSimulatorEnv,
    MjlabEnv,
    PlaygroundEnv,
    RecallEnv,
    SimulatorEnv,
)
from torchrl_elegant.envs.gymnasium import GymnasiumEnv, sub_seeds
from torchrl_elegant.envs.keys import EnvKeys, Outcome
from torchrl_elegant.envs.make import PREFIXES, make_env
from torchrl_elegant.envs.pixels import Pixels
from torchrl_elegant.envs.spaces import BOOKKEEPING_KEYS, UnsupportedSpaceError
from torchrl_elegant.envs.teams import Drawable, PettingZooTeams, VmasTeams
from torchrl_elegant.envs.wrap import CompleteEnv

__all__ = [
    "BOOKKEEPING_KEYS",
    "PREFIXES",
    "BraxEnv",
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
    "MjlabEnv",
    "Outcome",
    "PettingZooTeams",
    "Pixels",
    "PlaygroundEnv",
    "RecallEnv",
    "SimulatorEnv",
    "UnsupportedSpaceError",
    "VmasTeams",
    "make_env",
    "sub_seeds",
]
