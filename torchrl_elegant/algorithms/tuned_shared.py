"""What tables of settings for known environments have in common."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

#: Fields of configurations, and of runs.
Settings = Mapping[str, Any]

_WALKERS = ("Ant-v5", "HalfCheetah-v5", "Hopper-v5", "Humanoid-v5", "Walker2d-v5")


def each_walker(settings: Settings) -> dict[str, Settings]:
    """The same for all that walk or run."""
    return dict.fromkeys(_WALKERS, settings)


# Swimmer's strokes pay off only as a whole: a discount of 0.99 does not see one through.
FAR = {"gamma": 0.9999}
