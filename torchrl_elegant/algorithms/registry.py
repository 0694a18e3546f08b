"""Registry of algorithms by name."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from typing import TypeVar

from torchrl_elegant.algorithms.base import AlgorithmConfig

ALGORITHMS: dict[str, type[AlgorithmConfig]] = {}

_Config = TypeVar("_Config", bound=type[AlgorithmConfig])


def register(name: str) -> Callable[[_Config], _Config]:
    """Register a configuration class as the algorithm ``name``.

    Works from outside the package: with ``algorithm=package.module:name`` a command imports your
    module.

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
        unmarked = _fields_of_its_own(config)
        if unmarked and "__dataclass_fields__" not in vars(config):
            raise ValueError(
                f"`{config.__name__}` must be a dataclass for {', '.join(unmarked)} to count, got "
                "a plain class; write @dataclass(frozen=True, kw_only=True) below @register"
            )
        config.name = name
        ALGORITHMS[name] = config
        return config

    return add


def _fields_of_its_own(config: type[AlgorithmConfig]) -> list[str]:
    """Names in the body of a class that only a dataclass would make fields."""
    body = vars(config)
    hints = body.get("__annotations__", {}).items()
    added = {
        name for name, hint in hints if not str(hint).startswith(("ClassVar", "typing.ClassVar"))
    }
    return sorted(added | ({item.name for item in fields(config)} & body.keys()))


def that_take(actions: str, *, teams: bool = False) -> list[str]:
    """Names of the algorithms for ``"continuous"``, ``"discrete"`` or ``"multi-discrete"`` actions.

    They are those for one agent, or for ``teams``.

    >>> from torchrl_elegant.algorithms import DQNConfig
    >>> DQNConfig.name in that_take("discrete"), DQNConfig.name in that_take("continuous")
    (True, False)
    """
    fitting = (
        name
        for name, config in ALGORITHMS.items()
        if actions in config.actions and config.teams == teams
    )
    return sorted(fitting)
