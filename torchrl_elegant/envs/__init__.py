"""Environments: `make_env` from a name or a callable, and the environment it returns."""

from torchrl_elegant.envs.gymnasium import GymnasiumEnv, sub_seeds
from torchrl_elegant.envs.make import make_env
from torchrl_elegant.envs.pixels import Pixels
from torchrl_elegant.envs.spaces import BOOKKEEPING_KEYS, UnsupportedSpaceError

__all__ = [
    "BOOKKEEPING_KEYS",
    "GymnasiumEnv",
    "Pixels",
    "UnsupportedSpaceError",
    "make_env",
    "sub_seeds",
]
