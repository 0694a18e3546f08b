"""Training: the learner, one loop for each family, environments, evaluation, ranks."""

from torchrl_elegant.trainers.environments import Environments
from torchrl_elegant.trainers.evaluation import Evaluation, PolicyEvaluator
from torchrl_elegant.trainers.family import FAMILIES, Family
from torchrl_elegant.trainers.learner import DivergedError, Learner
from torchrl_elegant.trainers.learner_stepper import LearnerStepper
from torchrl_elegant.trainers.ledger import Ledger
from torchrl_elegant.trainers.off_policy import train_off_policy
from torchrl_elegant.trainers.on_policy import train_on_policy
from torchrl_elegant.trainers.rollout_learner import RolloutLearner
from torchrl_elegant.trainers.run_config import RunConfig
from torchrl_elegant.trainers.watcher import Quantum, Watcher

__all__ = [
    "FAMILIES",
    "DivergedError",
    "Environments",
    "Evaluation",
    "Family",
    "Learner",
    "LearnerStepper",
    "Ledger",
    "PolicyEvaluator",
    "Quantum",
    "RolloutLearner",
    "RunConfig",
    "Watcher",
    "train_off_policy",
    "train_on_policy",
]
