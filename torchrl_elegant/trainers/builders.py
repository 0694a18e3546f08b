"""What makes the untrained actor of a policy file."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from tensordict.nn import TensorDictModuleBase

from torchrl_elegant.modules import (
    CategoricalActor,
    DeterministicActor,
    EpsilonGreedyActor,
    GaussianActor,
    MultiCategoricalActor,
    NoisyActor,
    NormalisedActor,
    SquashedGaussianActor,
)

#: Name in the file -> callable that takes its ``spec_dict``; add your own to load your actors.
BUILDERS: dict[str, Callable[..., TensorDictModuleBase]] = {
    "CategoricalActor": CategoricalActor,
    "DeterministicActor": DeterministicActor,
    "EpsilonGreedyActor": EpsilonGreedyActor.from_spec,
    "GaussianActor": GaussianActor,
    "MultiCategoricalActor": MultiCategoricalActor,
    "NoisyActor": NoisyActor.from_spec,
    "SquashedGaussianActor": SquashedGaussianActor,
}
# It names another one.
BUILDERS["NormalisedActor"] = partial(NormalisedActor.from_spec, BUILDERS)
