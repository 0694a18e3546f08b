"""Losses that stand where TorchRL's stand."""

from torchrl_elegant.objectives.modsac import ModSACLoss
from torchrl_elegant.objectives.sac import SACLoss
from torchrl_elegant.objectives.target import LeanSoftUpdate

__all__ = ["LeanSoftUpdate", "ModSACLoss", "SACLoss"]
