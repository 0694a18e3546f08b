"""Losses that stand where TorchRL's stand."""

from torchrl_elegant.objectives.a2c import A2CLoss
from torchrl_elegant.objectives.gae import GAE
from torchrl_elegant.objectives.modsac import ModSACLoss
from torchrl_elegant.objectives.ppo import ClipPPOLoss
from torchrl_elegant.objectives.sac import SACLoss
from torchrl_elegant.objectives.target import LeanSoftUpdate
from torchrl_elegant.objectives.vtrace import VTrace

__all__ = [
    "GAE",
    "A2CLoss",
    "ClipPPOLoss",
    "LeanSoftUpdate",
    "ModSACLoss",
    "SACLoss",
    "VTrace",
]
