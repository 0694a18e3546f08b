"""Losses that stand where TorchRL's stand."""

from torchrl_elegant.objectives.a2c import A2CLoss
from torchrl_elegant.objectives.ddpg import DDPGLoss
from torchrl_elegant.objectives.discrete_sac import DiscreteSACLoss
from torchrl_elegant.objectives.dqn import DQNLoss
from torchrl_elegant.objectives.gae import GAE
from torchrl_elegant.objectives.hamiltonian import HamiltonianLoss
from torchrl_elegant.objectives.hamiltonian_term import HamiltonianTerm
from torchrl_elegant.objectives.modsac import ModSACLoss
from torchrl_elegant.objectives.ppo import ClipPPOLoss
from torchrl_elegant.objectives.redq import REDQLoss
from torchrl_elegant.objectives.sac import SACLoss
from torchrl_elegant.objectives.target import LeanHardUpdate, LeanSoftUpdate
from torchrl_elegant.objectives.td3 import TD3Loss
from torchrl_elegant.objectives.vtrace import VTrace
from torchrl_elegant.objectives.with_hamiltonian import WithHamiltonian

__all__ = [
    "GAE",
    "A2CLoss",
    "ClipPPOLoss",
    "DDPGLoss",
    "DQNLoss",
    "DiscreteSACLoss",
    "HamiltonianLoss",
    "HamiltonianTerm",
    "LeanHardUpdate",
    "LeanSoftUpdate",
    "ModSACLoss",
    "REDQLoss",
    "SACLoss",
    "TD3Loss",
    "VTrace",
    "WithHamiltonian",
]
