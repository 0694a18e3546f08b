"""File `config.yaml` of a run: its configurations as text, and algorithms by name."""

from __future__ import annotations

import dataclasses
import importlib
from collections.abc import Mapping
from typing import Any

import yaml

from torchrl_elegant.algorithms import ALGORITHMS, AlgorithmConfig
from torchrl_elegant.algorithms.tuned import tuned_settings
from torchrl_elegant.config.changes import build, merged, read_page
from torchrl_elegant.config.options import options_of
from torchrl_elegant.config.text import UsageError, nearest
from torchrl_elegant.runs.trust import Trust, unregistered
from torchrl_elegant.trainers.run_config import RunConfig

_PACKAGE = __name__.partition(".")[0]
# Words of algorithms of other packages: another process cannot find them by name alone.
_WORDS: dict[type, str] = {}


def find_algorithm(word: str, algorithms: Mapping[str, type], *, trust: Trust | None = None) -> Any:
    """The configuration class of an algorithm, by `name` or by `package.module:name`.

    `trust` says whether a stored word may import its module; None for a word of the user's own.

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
    if trust is not None:
        trust.algorithm(word)
    import_module(module, word, "algorithm")
    ours = _is_ours(module)
    brought = {key: cls for key, cls in algorithms.items() if ours or not _is_ours(cls.__module__)}
    if name not in brought:
        near = bool(brought) and module != "__main__"
        hint = nearest(name, brought) if near else unregistered(module)
        raise UsageError(f"`algorithm` must be registered by {module}, got `{word}`: {hint}")
    if module != "__main__":
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


def import_module(module: str, word: str, option: str) -> None:
    """Import what the user named by ``word`` as ``option``; UsageError tells what it raised."""
    must = "name an importable module" + (" before the colon" if ":" in word else "")
    try:
        importlib.import_module(module)
    except Exception as error:
        # A module can raise anything while it is imported: one line tells it.
        raise UsageError(
            f"`{option}` must {must}, got `{word}`: {type(error).__name__}: {error}; install its "
            "package or run from the folder that holds it"
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
        "config": _config(config),
    }
    if own := _own_networks(config):
        page["networks"] = own
    return yaml.safe_dump(page, sort_keys=False, allow_unicode=True)


def from_yaml(text: str, *, algorithms: Mapping[str, type], trust: Trust | None = None) -> Stored:
    """Read a `config.yaml`: the algorithm's name, the `RunConfig` and the algorithm's config.

    An algorithm of another package is imported only where `trust` allows it.
    """
    trust = trust or Trust()
    page = _read(text)
    name, run = _algorithm(page, trust), _run(page, trust)
    config = find_algorithm(name, algorithms, trust=trust)
    built = build(config, read_page(config, page.get("config")))
    if "networks" in page:
        built = dataclasses.replace(built, networks=dict.fromkeys(page["networks"]))
    return name, run, built


def run_of(text: str, *, trust: Trust | None = None) -> tuple[str, RunConfig]:
    """Read the algorithm's name and the `RunConfig` of a `config.yaml`; imports nothing.

    >>> run_of(to_yaml("theirs:mine", RunConfig(seed=5), RunConfig()))[0]
    'theirs:mine'
    """
    trust = trust or Trust()
    page = _read(text)
    return _algorithm(page, trust), _run(page, trust)


def _read(text: str) -> dict[str, Any]:
    page = plain_page(text)
    if not isinstance(page, dict) or page.get("format") != _FORMAT:
        raise UsageError(f"the run's config must be a mapping with `format: {_FORMAT}`")
    if page.get("version") != _VERSION:
        raise UsageError(
            f"the run's config must have version {_VERSION}, got {page.get('version')!r}"
        )
    return page


def plain_page(text: str) -> Any:
    """Read YAML of plain data; UsageError where it is none, or holds references.

    >>> plain_page("a: [1, 2]")
    {'a': [1, 2]}
    """
    try:
        # A short page of references to references can stand for more than fits into memory.
        if any(isinstance(event, yaml.AliasEvent) for event in yaml.parse(text, yaml.SafeLoader)):
            raise UsageError("the run's config holds references, which no run writes")
        return yaml.safe_load(text)
    except (yaml.YAMLError, RecursionError) as error:
        raise UsageError(f"the run's config is not YAML: {error}") from error


def _algorithm(page: Mapping[str, Any], trust: Trust) -> str:
    return trust.renamed(str(page.get("algorithm")))


def _run(page: Mapping[str, Any], trust: Trust) -> RunConfig:
    run = build(RunConfig, read_page(RunConfig, page.get("run")))
    return dataclasses.replace(run, env=trust.renamed(run.env))


def _config(config: Any) -> dict[str, Any]:
    """Options of an algorithm as plain data; what exists in Python alone is left out."""
    options = {name: getattr(config, name) for name in options_of(type(config))}
    groups = [name for name, item in options_of(type(config)).items() if item.group]
    members = {name: options[name] and dataclasses.asdict(options[name]) for name in groups}
    return _plain(options | members)


def _own_networks(config: Any) -> list[str]:
    """Places of networks that came from outside; a run that goes on must be given them again."""
    return sorted(config.networks or ()) if isinstance(config, AlgorithmConfig) else []


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    return value


def tuned(algorithm: str, env: str, **changes: Any) -> tuple[AlgorithmConfig, dict[str, Any]]:
    """A configuration, and the arguments of ``train`` that belong to it.

    Args:
        algorithm: its registered name.
        env: an environment in ``TUNED``, or ``simulator`` for any that is stepped by the thousand.
        changes: options of either that differ; for a group of options True, False or a mapping of
            the members that differ.

    >>> config, run = tuned("ppo", "CartPole-v1", epochs=4)
    >>> config.epochs, run
    (4, {'total_frames': 50000, 'num_envs': 8})
    """
    kind = find_algorithm(algorithm, ALGORITHMS)
    values = merged(kind, tuned_settings(algorithm, env), changes)
    run = {name: values.pop(name) for name in options_of(RunConfig) if name in values}
    return build(kind, values), run
