"""Losses that stand where TorchRL's stand."""

from torchrl_elegant.objectives.common.sequence_losses import (
    ReplaySequenceLoss,
    RolloutSequenceLoss,
    SequenceLoss,
)
from torchrl_elegant.objectives.common.target_update import LeanHardUpdate, LeanSoftUpdate
from torchrl_elegant.objectives.common.update_loss import RolloutLoss, UpdateLoss
from torchrl_elegant.objectives.compiled.loss import CompiledLoss
from torchrl_elegant.objectives.hamiltonian.loss import HamiltonianLoss
from torchrl_elegant.objectives.hamiltonian.term import HamiltonianTerm
from torchrl_elegant.objectives.hamiltonian.with_loss import WithHamiltonian
from torchrl_elegant.objectives.multiagent import (
    IPPOLoss,
    ISACLoss,
    MADDPGLoss,
    MAPPOLoss,
    MASACLoss,
    MATD3Loss,
    QMixLoss,
    TeamGAE,
    TeamVTrace,
)
from torchrl_elegant.objectives.off_policy.ddpg import DDPGLoss
from torchrl_elegant.objectives.off_policy.discrete_sac import DiscreteSACLoss
from torchrl_elegant.objectives.off_policy.dqn import DQNLoss
from torchrl_elegant.objectives.off_policy.long_return import LongReturnFit
from torchrl_elegant.objectives.off_policy.modsac import ModSACLoss
from torchrl_elegant.objectives.off_policy.redq import REDQLoss
from torchrl_elegant.objectives.off_policy.sac import SACLoss
from torchrl_elegant.objectives.off_policy.td3 import TD3Loss
from torchrl_elegant.objectives.on_policy.a2c import A2CLoss
from torchrl_elegant.objectives.on_policy.gae import GAE
from torchrl_elegant.objectives.on_policy.ppo import ClipPPOLoss
from torchrl_elegant.objectives.on_policy.vtrace import VTrace

__all__ = [
    "GAE",
    "A2CLoss",
    "ClipPPOLoss",
    "CompiledLoss",
    "DDPGLoss",
    "DQNLoss",
    "DiscreteSACLoss",
    "HamiltonianLoss",
    "HamiltonianTerm",
    "IPPOLoss",
    "ISACLoss",
    "LeanHardUpdate",
    "LeanSoftUpdate",
    "LongReturnFit",
    "MADDPGLoss",
    "MAPPOLoss",
    "MASACLoss",
    "MATD3Loss",
    "ModSACLoss",
    "QMixLoss",
    "REDQLoss",
    "ReplaySequenceLoss",
    "RolloutLoss",
    "RolloutSequenceLoss",
    "SACLoss",
    "SequenceLoss",
    "TD3Loss",
    "TeamGAE",
    "TeamVTrace",
    "UpdateLoss",
    "VTrace",
    "WithHamiltonian",
]
