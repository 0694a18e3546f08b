"""Losses that stand where TorchRL's stand."""

from torchrl_elegant.objectives.discrete_sac import DiscreteSACLoss
from torchrl_elegant.objectives.dqn import DQNLoss
from torchrl_elegant.objectives.gae import GAE
from torchrl_elegant.objectives.modsac import ModSACLoss
from torchrl_elegant.objectives.ppo import ClipPPOLoss
from torchrl_elegant.objectives.sac import SACLoss
from torchrl_elegant.objectives.target import LeanHardUpdate, LeanSoftUpdate

__all__ = [
    "GAE",
    "ClipPPOLoss",
    "DQNLoss",
    "DiscreteSACLoss",
    "LeanHardUpdate",
    "LeanSoftUpdate",
    "ModSACLoss",
    "SACLoss",
]
