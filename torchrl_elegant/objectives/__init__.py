"""Losses that stand where TorchRL's stand."""

from torchrl_elegant.objectives.gae import GAE
from torchrl_elegant.objectives.modsac import ModSACLoss
from torchrl_elegant.objectives.ppo import ClipPPOLoss
from torchrl_elegant.objectives.redq import REDQLoss
from torchrl_elegant.objectives.sac import SACLoss
from torchrl_elegant.objectives.target import LeanSoftUpdate

__all__ = ["GAE", "ClipPPOLoss", "LeanSoftUpdate", "ModSACLoss", "REDQLoss", "SACLoss"]
