"""Algorithms: one file each, a configuration and how it builds its learner's parts."""

from torchrl_elegant.algorithms.a2c import A2CConfig
from torchrl_elegant.algorithms.add_ons import AddOn
from torchrl_elegant.algorithms.base import AlgorithmConfig
from torchrl_elegant.algorithms.base import Parts as Parts
from torchrl_elegant.algorithms.ddpg import DDPGConfig
from torchrl_elegant.algorithms.discrete_sac import DiscreteSACConfig
from torchrl_elegant.algorithms.dqn import D3QNConfig, DoubleDQNConfig, DQNConfig, DuelingDQNConfig
from torchrl_elegant.algorithms.hterm import HTermConfig
from torchrl_elegant.algorithms.modsac import ModSACConfig
from torchrl_elegant.algorithms.multiagent.maddpg import MADDPGConfig, MATD3Config
from torchrl_elegant.algorithms.multiagent.mappo import IPPOConfig, MAPPOConfig
from torchrl_elegant.algorithms.multiagent.masac import ISACConfig, MASACConfig
from torchrl_elegant.algorithms.multiagent.qmix import QMIXConfig, VDNConfig
from torchrl_elegant.algorithms.off_policy import ActorCriticConfig, OffPolicyConfig
from torchrl_elegant.algorithms.on_policy import OnPolicyConfig
from torchrl_elegant.algorithms.ppo import PPOConfig
from torchrl_elegant.algorithms.redq import REDQConfig
from torchrl_elegant.algorithms.registry import ALGORITHMS, register, that_take
from torchrl_elegant.algorithms.sac import SACConfig
from torchrl_elegant.algorithms.schedules import ActorSchedule, CriticTrust, EveryUpdate, Ramp
from torchrl_elegant.algorithms.symmetry import SymmetryConfig
from torchrl_elegant.algorithms.td3 import TD3Config

__all__ = [
    "ALGORITHMS",
    "A2CConfig",
    "ActorCriticConfig",
    "ActorSchedule",
    "AddOn",
    "AlgorithmConfig",
    "CriticTrust",
    "D3QNConfig",
    "DDPGConfig",
    "DQNConfig",
    "DiscreteSACConfig",
    "DoubleDQNConfig",
    "DuelingDQNConfig",
    "EveryUpdate",
    "HTermConfig",
    "IPPOConfig",
    "ISACConfig",
    "MADDPGConfig",
    "MAPPOConfig",
    "MASACConfig",
    "MATD3Config",
    "ModSACConfig",
    "OffPolicyConfig",
    "OnPolicyConfig",
    "PPOConfig",
    "Parts",
    "QMIXConfig",
    "REDQConfig",
    "Ramp",
    "SACConfig",
    "SymmetryConfig",
    "TD3Config",
    "VDNConfig",
    "register",
    "that_take",
]
