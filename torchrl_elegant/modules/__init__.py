"""Networks, actors, exploration, and builders that fit them to an environment's specs."""

from torchrl_elegant.modules.bounded_actor import DeterministicActor, SquashedGaussianActor
from torchrl_elegant.modules.build import (
    ActionSpaceError,
    build_actor,
    build_categorical_actor,
    build_critic,
    build_deterministic_actor,
    build_q_network,
    build_stochastic_actor,
    build_value,
    observation_shapes,
)
from torchrl_elegant.modules.categorical import CategoricalActor
from torchrl_elegant.modules.direct_calls import ActsOnTensors, RestartsRows
from torchrl_elegant.modules.ensemble import EnsembleCritic, EnsembleMLP
from torchrl_elegant.modules.exploration import (
    GaussianNoise,
    Noise,
    NoisyActor,
    OrnsteinUhlenbeckNoise,
    make_noise,
)
from torchrl_elegant.modules.fit import (
    fit_actor,
    fit_critic,
    fit_q_network,
    fit_value,
    refuse_batch_norm,
)
from torchrl_elegant.modules.foreign import (
    ForeignActor,
    ForeignQNetwork,
    NoSpecification,
    evaluating,
    trained,
)
from torchrl_elegant.modules.gaussian import GaussianActor
from torchrl_elegant.modules.inputs import ConvEncoder, Inputs
from torchrl_elegant.modules.mlp import ACTIVATIONS, MLP, layer_normalized
from torchrl_elegant.modules.multi_categorical import MultiCategoricalActor
from torchrl_elegant.modules.multiagent import QMixer
from torchrl_elegant.modules.normalization import NormalizedActor, ObservationNorm, normalizable
from torchrl_elegant.modules.q_network import DuelingMLP, EpsilonGreedyActor, QNetwork
from torchrl_elegant.modules.stochastic_actor import StochasticActor
from torchrl_elegant.modules.temperature import FixedTemperature, LearnedTemperature, Temperature
from torchrl_elegant.modules.value import StateValue

__all__ = [
    "ACTIVATIONS",
    "MLP",
    "ActionSpaceError",
    "ActsOnTensors",
    "CategoricalActor",
    "ConvEncoder",
    "DeterministicActor",
    "DuelingMLP",
    "EnsembleCritic",
    "EnsembleMLP",
    "EpsilonGreedyActor",
    "FixedTemperature",
    "ForeignActor",
    "ForeignQNetwork",
    "GaussianActor",
    "GaussianNoise",
    "Inputs",
    "LearnedTemperature",
    "MultiCategoricalActor",
    "NoSpecification",
    "Noise",
    "NoisyActor",
    "NormalizedActor",
    "ObservationNorm",
    "OrnsteinUhlenbeckNoise",
    "QMixer",
    "QNetwork",
    "RestartsRows",
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
    "evaluating",
    "fit_actor",
    "fit_critic",
    "fit_q_network",
    "fit_value",
    "layer_normalized",
    "make_noise",
    "normalizable",
    "observation_shapes",
    "refuse_batch_norm",
    "trained",
]
