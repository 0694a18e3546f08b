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
from torchrl_elegant.modules.direct_calls import (
    ActsOnTensors,
    Remembers,
    RestartsRows,
    own_state,
    rows_that_begin,
)
from torchrl_elegant.modules.ensemble import DistributionalCritic, EnsembleCritic, EnsembleMLP
from torchrl_elegant.modules.exploration import (
    GaussianNoise,
    MixedNoise,
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
from torchrl_elegant.modules.recurrent import (
    GRU,
    Memory,
    RecurrentActor,
    give_memory,
    memory_of,
)
from torchrl_elegant.modules.stochastic_actor import StochasticActor
from torchrl_elegant.modules.temperature import FixedTemperature, LearnedTemperature, Temperature
from torchrl_elegant.modules.value import StateValue

__all__ = [
    "ACTIVATIONS",
    "GRU",
    "MLP",
    "ActionSpaceError",
    "ActsOnTensors",
    "CategoricalActor",
    "ConvEncoder",
    "DeterministicActor",
    "DistributionalCritic",
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
    "Memory",
    "MixedNoise",
    "MultiCategoricalActor",
    "NoSpecification",
    "Noise",
    "NoisyActor",
    "NormalizedActor",
    "ObservationNorm",
    "OrnsteinUhlenbeckNoise",
    "QMixer",
    "QNetwork",
    "RecurrentActor",
    "Remembers",
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
    "give_memory",
    "layer_normalized",
    "make_noise",
    "memory_of",
    "normalizable",
    "observation_shapes",
    "own_state",
    "refuse_batch_norm",
    "rows_that_begin",
    "trained",
]
