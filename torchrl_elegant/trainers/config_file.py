"""The text of a run's `config.yaml`, and building config dataclasses from parsed words."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, get_type_hints

import yaml

from torchrl_elegant.trainers.config import RunConfig
from torchrl_elegant.trainers.lookup import find_algorithm, word_of
from torchrl_elegant.trainers.values import UsageError, nearest, parse_value

__all__ = [
    "Stored",
    "build",
    "field_types",
    "from_plain",
    "from_yaml",
    "parse_field",
    "to_yaml",
]

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


def field_types(cls: type) -> dict[str, Any]:
    """The type annotations of a dataclass's fields, in their order.

    >>> field_types(RunConfig)["seed"]
    <class 'int'>
    """
    hints = get_type_hints(cls)
    return {item.name: hints[item.name] for item in dataclasses.fields(cls) if item.init}


def parse_field(key: str, text: str, annotation: Any) -> Any:
    """Read the text given for the field `key`.

    >>> parse_field("seed", "1_000", int)
    1000
    """
    try:
        return parse_value(text, annotation)
    except ValueError as error:
        raise UsageError(f"`{key}` must be {error}, got {text!r}") from error


def build(cls: type, values: Mapping[str, Any], base: Any = None) -> Any:
    """Make a config from `values`, over its defaults or over a stored `base`.

    >>> build(RunConfig, {"seed": 2}, RunConfig(num_envs=4)).num_envs
    4
    """
    try:
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
    types, values = field_types(cls), {}
    for key, value in page.items():
        if key not in types:
            raise UsageError(f"unknown option `{key}` in the run's config: {nearest(key, types)}")
        if isinstance(value, list):
            value = _tuples(value)
        elif isinstance(value, str):
            # YAML 1.1 reads a hand-written 3e-4 as a text.
            value = parse_field(key, value, types[key])
        values[key] = value
    return build(cls, values)
