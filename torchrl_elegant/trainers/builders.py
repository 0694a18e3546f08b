"""Who makes the untrained actor that a policy file names."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from tensordict.nn import TensorDictModuleBase

from torchrl_elegant.modules import (
    CategoricalActor,
    GaussianActor,
    NormalisedActor,
    SquashedGaussianActor,
)

# Name in the file -> callable that returns the untrained actor; add your own to load your actors.
BUILDERS: dict[str, Callable[..., TensorDictModuleBase]] = {
    "CategoricalActor": CategoricalActor,
    "GaussianActor": GaussianActor,
    "SquashedGaussianActor": SquashedGaussianActor,
}
# It names another one.
BUILDERS["NormalisedActor"] = partial(NormalisedActor.from_spec, BUILDERS)
