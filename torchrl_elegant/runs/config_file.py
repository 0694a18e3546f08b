"""`config.yaml`: the configurations of a run as text, and algorithms by name."""

from __future__ import annotations

import dataclasses
import importlib
from collections.abc import Mapping
from typing import Any

import yaml

from torchrl_elegant.algorithms import ALGORITHMS, AlgorithmConfig
from torchrl_elegant.algorithms.tuned import tuned_settings
from torchrl_elegant.config.groups import group_of, merged, resolved, switch
from torchrl_elegant.config.options import field_types, parse_field
from torchrl_elegant.config.text import UsageError, nearest
from torchrl_elegant.trainers.run_config import RunConfig

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


_FORMAT = "torchrl_elegant.run"
_VERSION = 1

Stored = tuple[str, RunConfig, Any]


def to_yaml(algorithm: str, run: RunConfig, config: Any) -> str:
    """The text of a run's `config.yaml`, which `from_yaml` reads back into equal configs.

    >>> text = to_yaml("sac", RunConfig(seed=5), RunConfig())
    >>> from_yaml(text, algorithms={"sac": RunConfig})[1].seed
    5
    """
    page = {
        "format": _FORMAT,
        "version": _VERSION,
        "algorithm": word_of(algorithm, type(config)),
        "run": _plain(dataclasses.asdict(run)),
        "config": _plain(dataclasses.asdict(config)),
    }
    return yaml.safe_dump(page, sort_keys=False, allow_unicode=True)


def from_yaml(text: str, *, algorithms: Mapping[str, type]) -> Stored:
    """Read a `config.yaml`: the algorithm's name, the `RunConfig` and the algorithm's config."""
    try:
        page = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise UsageError(f"the run's config is not YAML: {error}") from error
    if not isinstance(page, dict) or page.get("format") != _FORMAT:
        raise UsageError(f"the run's config must be a mapping with `format: {_FORMAT}`")
    if page.get("version") != _VERSION:
        raise UsageError(
            f"the run's config must have version {_VERSION}, got {page.get('version')!r}"
        )
    name = str(page.get("algorithm"))
    config = find_algorithm(name, algorithms)
    return name, from_plain(RunConfig, page.get("run")), from_plain(config, page.get("config"))


def build(cls: type, values: Mapping[str, Any], base: Any = None) -> Any:
    """Make a config from `values`, over its defaults or over a stored `base`.

    Of a mapping and of a group of options, `values` change what they name and keep the rest.

    >>> build(RunConfig, {"seed": 2}, RunConfig(num_envs=4)).num_envs
    4
    """
    try:
        values = resolved(cls, values, base)
        if base is None:
            return cls(**values)
        merged = {
            key: {**getattr(base, key), **value} if isinstance(value, Mapping) else value
            for key, value in values.items()
        }
        return dataclasses.replace(base, **merged)
    except ValueError as error:
        raise UsageError(str(error)) from error


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    return value


def _tuples(value: Any) -> Any:
    return tuple(_tuples(item) for item in value) if isinstance(value, list) else value


def from_plain(cls: type, page: Any) -> Any:
    """Make a config from what YAML holds of it: lists are tuples, texts are read by their field.

    >>> from_plain(RunConfig, {"eval_interval": "1e3", "env_kwargs": {"sizes": [1]}}).env_kwargs
    {'sizes': [1]}
    """
    if not isinstance(page, dict):
        raise UsageError(f"the run's config must hold a mapping for {cls.__name__}, got {page!r}")
    return build(cls, _read(cls, page))


def _read(cls: type, page: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    types = field_types(cls)
    for key in page:
        if key not in types:
            hint = nearest(str(key), types, prefix)
            raise UsageError(f"unknown option `{prefix}{key}` in the run's config: {hint}")
    return {key: _read_value(prefix + key, value, types[key]) for key, value in page.items()}


def _read_value(key: str, value: Any, annotation: Any) -> Any:
    group = group_of(annotation)
    if group is not None and isinstance(value, Mapping):
        return _read(group, value, f"{key}.")
    if isinstance(value, list):
        return _tuples(value)
    if isinstance(value, str):
        # YAML 1.1 reads a hand-written 3e-4 as a text, and none as well.
        return parse_field(key, value, annotation) if group is None else switch(key, value)
    return value


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
