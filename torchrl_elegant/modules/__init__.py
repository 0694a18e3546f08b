"""Networks built from an environment's specs."""

from torchrl_elegant.modules.actor import SquashedGaussianActor
from torchrl_elegant.modules.build import (
    build_actor,
    build_critic,
    build_stochastic_actor,
    build_value,
    observation_shapes,
)
from torchrl_elegant.modules.categorical import CategoricalActor
from torchrl_elegant.modules.ensemble import EnsembleCritic, EnsembleMLP
from torchrl_elegant.modules.gaussian import GaussianActor
from torchrl_elegant.modules.mlp import ACTIVATIONS, MLP
from torchrl_elegant.modules.multi_categorical import MultiCategoricalActor
from torchrl_elegant.modules.policy import StochasticActor
from torchrl_elegant.modules.temperature import FixedTemperature, LearnedTemperature, Temperature
from torchrl_elegant.modules.value import StateValue

__all__ = [
    "ACTIVATIONS",
    "MLP",
    "CategoricalActor",
    "EnsembleCritic",
    "EnsembleMLP",
    "FixedTemperature",
    "GaussianActor",
    "LearnedTemperature",
    "MultiCategoricalActor",
    "SquashedGaussianActor",
    "StateValue",
    "StochasticActor",
    "Temperature",
    "build_actor",
    "build_critic",
    "build_stochastic_actor",
    "build_value",
    "observation_shapes",
]
