"""Losses of teams."""

from torchrl_elegant.objectives.multiagent.maddpg import MADDPGLoss, MATD3Loss
from torchrl_elegant.objectives.multiagent.qmix import QMixLoss

__all__ = ["MADDPGLoss", "MATD3Loss", "QMixLoss"]
