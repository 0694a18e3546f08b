"""Runs: the trial, its folder, checkpoints, metrics and exported policies."""

from torchrl_elegant.runs.checkpoints import Checkpoints
from torchrl_elegant.runs.config_file import tuned
from torchrl_elegant.runs.policy import BUILDERS, Policy, load_policy, save_policy
from torchrl_elegant.runs.train import TrainResult, resume, train
from torchrl_elegant.runs.trial import Trial

__all__ = [
    "BUILDERS",
    "Checkpoints",
    "Policy",
    "TrainResult",
    "Trial",
    "load_policy",
    "resume",
    "save_policy",
    "train",
    "tuned",
]
