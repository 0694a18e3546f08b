"""Losses of teams."""

from torchrl_elegant.objectives.multiagent.advantages import TeamGAE, TeamVTrace
from torchrl_elegant.objectives.multiagent.maddpg import MADDPGLoss, MATD3Loss
from torchrl_elegant.objectives.multiagent.mappo import IPPOLoss, MAPPOLoss
from torchrl_elegant.objectives.multiagent.masac import ISACLoss, MASACLoss
from torchrl_elegant.objectives.multiagent.qmix import QMixLoss

__all__ = [
    "IPPOLoss",
    "ISACLoss",
    "MADDPGLoss",
    "MAPPOLoss",
    "MASACLoss",
    "MATD3Loss",
    "QMixLoss",
    "TeamGAE",
    "TeamVTrace",
]
