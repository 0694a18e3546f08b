"""The text of a run's `config.yaml`, and building config dataclasses from parsed words."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import yaml

from torchrl_elegant.trainers.config import RunConfig
from torchrl_elegant.trainers.fields import field_types, parse_field
from torchrl_elegant.trainers.groups import group_of, resolved, switch
from torchrl_elegant.trainers.lookup import find_algorithm, word_of
from torchrl_elegant.trainers.values import UsageError, nearest

__all__ = ["Stored", "build", "from_plain", "from_yaml", "to_yaml"]

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
