"""Networks built from an environment's specs."""

from torchrl_elegant.modules.actor import SquashedGaussianActor
from torchrl_elegant.modules.build import build_actor, build_critic, observation_shapes
from torchrl_elegant.modules.ensemble import EnsembleCritic, EnsembleMLP
from torchrl_elegant.modules.mlp import ACTIVATIONS, MLP
from torchrl_elegant.modules.temperature import FixedTemperature, LearnedTemperature, Temperature

__all__ = [
    "ACTIVATIONS",
    "MLP",
    "EnsembleCritic",
    "EnsembleMLP",
    "FixedTemperature",
    "LearnedTemperature",
    "SquashedGaussianActor",
    "Temperature",
    "build_actor",
    "build_critic",
    "observation_shapes",
]
