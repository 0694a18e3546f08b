"""Training: the learner, sources of frames, evaluation, ranks."""

from torchrl_elegant.trainers.evaluation import Evaluation, PolicyEvaluator
from torchrl_elegant.trainers.learner import DivergedError, Learner
from torchrl_elegant.trainers.learner_stepper import LearnerStepper
from torchrl_elegant.trainers.run_config import RunConfig

__all__ = [
    "DivergedError",
    "Evaluation",
    "Learner",
    "LearnerStepper",
    "PolicyEvaluator",
    "RunConfig",
]
