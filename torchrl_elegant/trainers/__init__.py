"""Training: learner, loop, evaluation, checkpoints, run folders."""

from torchrl_elegant.trainers.checkpoint import Checkpoints
from torchrl_elegant.trainers.config import RunConfig
from torchrl_elegant.trainers.evaluation import Evaluation, PolicyEvaluator
from torchrl_elegant.trainers.finite import DivergedError
from torchrl_elegant.trainers.learner import Learner
from torchrl_elegant.trainers.loop import train_off_policy
from torchrl_elegant.trainers.policy_file import BUILDERS, Policy, load_policy, save_policy
from torchrl_elegant.trainers.stepper import LearnerStepper
from torchrl_elegant.trainers.train import TrainResult, resume, train
from torchrl_elegant.trainers.tuned import tuned

__all__ = [
    "BUILDERS",
    "Checkpoints",
    "DivergedError",
    "Evaluation",
    "Learner",
    "LearnerStepper",
    "Policy",
    "PolicyEvaluator",
    "RunConfig",
    "TrainResult",
    "load_policy",
    "resume",
    "save_policy",
    "train",
    "train_off_policy",
    "tuned",
]
