"""The names under which algorithms are known."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from torchrl_elegant.algorithms.base import AlgorithmConfig

ALGORITHMS: dict[str, type[AlgorithmConfig]] = {}

_Config = TypeVar("_Config", bound=type[AlgorithmConfig])


def register(name: str) -> Callable[[_Config], _Config]:
    """Make a configuration class known under ``name``.

    Works from outside the package: a command imports your module where it is told
    ``algorithm=package.module:name``.

    >>> @register("mine")
    ... class MyConfig(AlgorithmConfig):
    ...     pass
    >>> ALGORITHMS["mine"] is MyConfig
    True
    >>> ALGORITHMS.pop("mine").name
    'mine'
    """

    def add(config: _Config) -> _Config:
        if name in ALGORITHMS and ALGORITHMS[name].__qualname__ != config.__qualname__:
            raise ValueError(f"`name` must be new, got `{name}`, taken by {ALGORITHMS[name]}")
        config.name = name
        ALGORITHMS[name] = config
        return config

    return add


def that_take(actions: str) -> list[str]:
    """Names of the algorithms for ``"continuous"`` or ``"discrete"`` actions.

    >>> from torchrl_elegant.algorithms import DQNConfig
    >>> DQNConfig.name in that_take("discrete"), DQNConfig.name in that_take("continuous")
    (True, False)
    """
    return sorted(name for name, config in ALGORITHMS.items() if actions in config.actions)
