"""Configurations with the settings that are kept for an environment."""

from __future__ import annotations

from typing import Any

from torchrl_elegant.algorithms import ALGORITHMS, AlgorithmConfig
from torchrl_elegant.algorithms.tuned import tuned_settings
from torchrl_elegant.trainers.config import RunConfig
from torchrl_elegant.trainers.config_file import build
from torchrl_elegant.trainers.fields import field_types
from torchrl_elegant.trainers.groups import merged
from torchrl_elegant.trainers.lookup import find_algorithm


def tuned(algorithm: str, env: str, **changes: Any) -> tuple[AlgorithmConfig, dict[str, Any]]:
    """A configuration, and the arguments of ``train`` that belong to it.

    Args:
        algorithm: its registered name.
        env: an environment of ``TUNED``.
        changes: fields of either that are to differ; of a group of options, True, False or a
            mapping of the members that are.

    >>> config, run = tuned("ppo", "CartPole-v1", epochs=4)
    >>> config.epochs, run
    (4, {'total_frames': 50000, 'num_envs': 8})
    """
    kind = find_algorithm(algorithm, ALGORITHMS)
    values = merged(kind, tuned_settings(algorithm, env), changes)
    run = {name: values.pop(name) for name in field_types(RunConfig) if name in values}
    return build(kind, values), run
