"""Networks built from an environment's specs."""

from torchrl_elegant.modules.actions import ActionSpaceError
from torchrl_elegant.modules.actor import SquashedGaussianActor
from torchrl_elegant.modules.build import (
    build_actor,
    build_critic,
    build_stochastic_actor,
    build_value,
    observation_shapes,
)
from torchrl_elegant.modules.build_deterministic import build_deterministic_actor
from torchrl_elegant.modules.build_discrete import build_categorical_actor, build_q_network
from torchrl_elegant.modules.categorical import CategoricalActor
from torchrl_elegant.modules.deterministic import DeterministicActor
from torchrl_elegant.modules.dueling import DuelingMLP
from torchrl_elegant.modules.encoder import ConvEncoder
from torchrl_elegant.modules.ensemble import EnsembleCritic, EnsembleMLP
from torchrl_elegant.modules.gaussian import GaussianActor
from torchrl_elegant.modules.greedy import EpsilonGreedyActor
from torchrl_elegant.modules.inputs import Inputs
from torchrl_elegant.modules.mlp import ACTIVATIONS, MLP
from torchrl_elegant.modules.multi_categorical import MultiCategoricalActor
from torchrl_elegant.modules.noise import GaussianNoise, Noise, OrnsteinUhlenbeckNoise, make_noise
from torchrl_elegant.modules.noisy import NoisyActor
from torchrl_elegant.modules.normalised import NormalisedActor, ObservationNorm, normalisable
from torchrl_elegant.modules.policy import StochasticActor
from torchrl_elegant.modules.q_network import QNetwork
from torchrl_elegant.modules.temperature import FixedTemperature, LearnedTemperature, Temperature
from torchrl_elegant.modules.value import StateValue

__all__ = [
    "ACTIVATIONS",
    "MLP",
    "ActionSpaceError",
    "CategoricalActor",
    "ConvEncoder",
    "DeterministicActor",
    "DuelingMLP",
    "EnsembleCritic",
    "EnsembleMLP",
    "EpsilonGreedyActor",
    "FixedTemperature",
    "GaussianActor",
    "GaussianNoise",
    "Inputs",
    "LearnedTemperature",
    "MultiCategoricalActor",
    "Noise",
    "NoisyActor",
    "NormalisedActor",
    "ObservationNorm",
    "OrnsteinUhlenbeckNoise",
    "QNetwork",
    "SquashedGaussianActor",
    "StateValue",
    "StochasticActor",
    "Temperature",
    "build_actor",
    "build_categorical_actor",
    "build_critic",
    "build_deterministic_actor",
    "build_q_network",
    "build_stochastic_actor",
    "build_value",
    "make_noise",
    "normalisable",
    "observation_shapes",
]
