"""Algorithms: one file each, a configuration and how it builds its learner's parts."""

from torchrl_elegant.algorithms.a2c import A2CConfig
from torchrl_elegant.algorithms.base import AlgorithmConfig
from torchrl_elegant.algorithms.base import Parts as Parts
from torchrl_elegant.algorithms.modsac import ModSACConfig
from torchrl_elegant.algorithms.off_policy import OffPolicyConfig
from torchrl_elegant.algorithms.on_policy import OnPolicyConfig
from torchrl_elegant.algorithms.ppo import PPOConfig
from torchrl_elegant.algorithms.ramp import Ramp
from torchrl_elegant.algorithms.registry import ALGORITHMS, register
from torchrl_elegant.algorithms.sac import SACConfig
from torchrl_elegant.algorithms.schedule import ActorSchedule, CriticTrust, EveryUpdate

__all__ = [
    "ALGORITHMS",
    "A2CConfig",
    "ActorSchedule",
    "AlgorithmConfig",
    "CriticTrust",
    "EveryUpdate",
    "ModSACConfig",
    "OffPolicyConfig",
    "OnPolicyConfig",
    "PPOConfig",
    "Parts",
    "Ramp",
    "SACConfig",
    "register",
]
