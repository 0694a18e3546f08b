"""Runs: the trial, its folder, checkpoints, metrics and exported policies."""

from torchrl_elegant.runs.callbacks import (
    Callback,
    KeepBest,
    RecordVideo,
    RunningRun,
    StopOnPlateau,
)
from torchrl_elegant.runs.checkpoints import Checkpoints
from torchrl_elegant.runs.config_file import tuned
from torchrl_elegant.runs.evaluate import evaluate, film
from torchrl_elegant.runs.policy import BUILDERS, Policy, load_policy, save_policy
from torchrl_elegant.runs.population import VectorizedPopulation
from torchrl_elegant.runs.sweeps.sweep import SweepResult, resume_sweep, sweep
from torchrl_elegant.runs.train import TrainResult, resume, train
from torchrl_elegant.runs.trial import Trial

__all__ = [
    "BUILDERS",
    "Callback",
    "Checkpoints",
    "KeepBest",
    "Policy",
    "RecordVideo",
    "RunningRun",
    "StopOnPlateau",
    "SweepResult",
    "TrainResult",
    "Trial",
    "VectorizedPopulation",
    "evaluate",
    "film",
    "load_policy",
    "resume",
    "resume_sweep",
    "save_policy",
    "sweep",
    "train",
    "tuned",
]
