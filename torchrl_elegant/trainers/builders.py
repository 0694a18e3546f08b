"""What makes the untrained actor of a policy file."""

from __future__ import annotations

from collections.abc import Callable

from tensordict.nn import TensorDictModuleBase

from torchrl_elegant.modules import (
    CategoricalActor,
    DeterministicActor,
    EpsilonGreedyActor,
    GaussianActor,
    NoisyActor,
    SquashedGaussianActor,
)

#: Name in the file -> callable that takes its ``spec_dict``; add your own to load your actors.
BUILDERS: dict[str, Callable[..., TensorDictModuleBase]] = {
    "CategoricalActor": CategoricalActor,
    "DeterministicActor": DeterministicActor,
    "EpsilonGreedyActor": EpsilonGreedyActor.from_spec,
    "GaussianActor": GaussianActor,
    "NoisyActor": NoisyActor.from_spec,
    "SquashedGaussianActor": SquashedGaussianActor,
}
