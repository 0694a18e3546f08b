"""From the word that names an algorithm to its configuration class, and back."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import Any

from torchrl_elegant.algorithms import ALGORITHMS
from torchrl_elegant.trainers.values import UsageError, nearest

__all__ = ["find_algorithm", "word_of"]

_PACKAGE = __name__.partition(".")[0]
# Words that brought an algorithm of another package: its name alone finds it in no other process.
_WORDS: dict[type, str] = {}


def find_algorithm(word: str, algorithms: Mapping[str, type]) -> Any:
    """The configuration class called `name`, or registered as it by the `package.module:name`.

    >>> find_algorithm("sac", ALGORITHMS).__name__
    'SACConfig'
    """
    module, colon, name = word.rpartition(":")
    if not colon:
        if name not in algorithms:
            raise UsageError(
                f"unknown algorithm {name!r}: {nearest(name, algorithms)}; one of another package "
                "is written package.module:name"
            )
        return algorithms[name]
    _import(module, word)
    ours = _is_ours(module)
    brought = {key: cls for key, cls in algorithms.items() if ours or not _is_ours(cls.__module__)}
    if name not in brought:
        hint = nearest(name, brought) if brought else 'decorate the class with @register("name")'
        raise UsageError(f"`algorithm` must be registered by {module}, got `{word}`: {hint}")
    _WORDS[brought[name]] = word
    return brought[name]


def word_of(name: str, config: type) -> str:
    """The word that finds the class `config`, registered as `name`, from another process.

    >>> word_of("sac", find_algorithm("sac", ALGORITHMS))
    'sac'
    """
    if config in _WORDS:
        return _WORDS[config]
    foreign = ALGORITHMS.get(name) is config and not _is_ours(config.__module__)
    return f"{config.__module__}:{name}" if foreign else name


def _is_ours(module: str) -> bool:
    return module.partition(".")[0] == _PACKAGE


def _import(module: str, word: str) -> None:
    try:
        importlib.import_module(module)
    except Exception as error:
        # Whatever a module does while it is imported is its author's, and one line tells it.
        raise UsageError(
            f"`algorithm` must name an importable module before the colon, got `{word}`: "
            f"{type(error).__name__}: {error}; install its package or run from the folder that "
            "holds it"
        ) from error
