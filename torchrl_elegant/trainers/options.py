"""The command line of the scripts: `key=value` words over frozen dataclasses, and their YAML."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from torchrl_elegant.trainers.config import RunConfig
from torchrl_elegant.trainers.config_file import Stored, build, from_yaml, to_yaml
from torchrl_elegant.trainers.fields import field_types, parse_field
from torchrl_elegant.trainers.groups import groups_of, known_words, merged, parse_group
from torchrl_elegant.trainers.help_page import help_page, help_rows
from torchrl_elegant.trainers.lookup import find_algorithm
from torchrl_elegant.trainers.outcome import HelpRequest, run_main
from torchrl_elegant.trainers.values import UsageError, is_mapping, nearest

__all__ = ["HelpRequest", "Options", "UsageError", "from_yaml", "parse", "run_main", "to_yaml"]

_HELP_WORDS = ("--help", "-h")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Options:
    """What a command line asked for: the algorithm's name, both configs and the script's own."""

    algorithm: str
    run: RunConfig
    config: Any
    extra: Any


def parse(
    argv: Sequence[str],
    *,
    algorithms: Mapping[str, type],
    default: str,
    extra: type | None = None,
    stored: Callable[[Any], Stored | None] | None = None,
    preset: Callable[[Any, str, str | None], Mapping[str, Any]] | None = None,
    program: str = "train",
) -> Options:
    """Read `key=value` words into a `RunConfig`, an algorithm's config and the script's own keys.

    Args:
        argv: the words, without the program's name.
        algorithms: algorithm names and their config dataclasses; `algorithm=package.module:name`
            imports the module, which is to add `name`.
        default: the algorithm used where no `algorithm=` is given.
        extra: a dataclass of the keys that only this script knows, such as `resume`.
        stored: given the built `extra`, returns the name and configs of the run being continued,
            or None. The words then change those configs instead of the defaults.
        preset: given the built `extra`, the algorithm's name and the environment's, or None where
            no word says one, returns values to take in place of the defaults of both configs.
        program: the name shown in the help.

    >>> from dataclasses import make_dataclass
    >>> Config = make_dataclass("Config", [("lr", float, 1e-3)])
    >>> parse(["lr=0.1", "seed=3"], algorithms={"sac": Config}, default="sac").config
    Config(lr=0.1)
    """
    words = _split([word for word in argv if word not in _HELP_WORDS])
    name = words.pop("algorithm", None)
    if name == "":
        raise UsageError("`algorithm` must be a name or package.module:name, got nothing")
    wanted = find_algorithm(name or default, algorithms)
    if any(word in _HELP_WORDS for word in argv):
        usual = preset(extra(), wanted.name, None) if preset and extra else {}
        raise HelpRequest(help_page(program, name or default, wanted, algorithms, extra, usual))
    built = build(extra, _take(words, extra)) if extra else None
    before = stored(built) if stored else None
    if before and name is not None and wanted is not type(before[2]):
        raise UsageError(f"the stored run trains algorithm={before[0]}, got algorithm={name}")
    chosen, *bases = before or (name or default, None, None)
    classes = (RunConfig, type(before[2]) if before else wanted)
    values = {} if preset is None else preset(built, wanted.name, words.get("env"))
    taken = [_take(words, cls) for cls in classes]
    presets = [{key: values[key] for key in field_types(cls) if key in values} for cls in classes]
    given = map(merged, classes, presets, taken)
    if words:
        key = next(iter(words))
        known = {name for cls in (*classes, *filter(None, [extra])) for name in known_words(cls)}
        having = sorted(name for name, cls in algorithms.items() if key in known_words(cls))
        hint = f"an option of {', '.join(having)}, not of {chosen}" if having else None
        raise UsageError(f"unknown option `{key}`: {hint or nearest(key, known | {'algorithm'})}")
    run, config = map(build, classes, given, bases)
    return Options(algorithm=chosen, run=run, config=config, extra=built)


def parse_one(argv: Sequence[str], cls: type, *, program: str) -> Any:
    """Read `key=value` words into one dataclass, for scripts that train nothing.

    >>> from dataclasses import make_dataclass
    >>> parse_one(["episodes=5"], make_dataclass("Words", [("episodes", int, 20)]), program="x")
    Words(episodes=5)
    """
    words = _split([word for word in argv if word not in _HELP_WORDS])
    if len(words) < len(argv):
        page = [f"usage: {program} key=value ...", "", cls.__name__, *help_rows(cls)]
        raise HelpRequest("\n".join(page))
    values = _take(words, cls)
    if words:
        key = next(iter(words))
        raise UsageError(f"unknown option `{key}`: {nearest(key, known_words(cls))}")
    return build(cls, values)


def _split(argv: Sequence[str]) -> dict[str, str]:
    words: dict[str, str] = {}
    for word in argv:
        key, equals, value = word.partition("=")
        bare = key.lstrip("-").replace("-", "_")
        if not equals or key.startswith("-") or not key:
            raise UsageError(f"unexpected word {word!r}: write {bare or 'key'}={value or 'value'}")
        if key in words:
            raise UsageError(f"`{key}` is given twice: {words[key]!r} and {value!r}")
        words[key] = value
    return words


def _take(words: dict[str, str], cls: type) -> dict[str, Any]:
    """Move the words that `cls` has fields for out of `words`, parsed."""
    values: dict[str, Any] = {}
    for key, group in groups_of(cls).items():
        ours = [word for word in words if word.partition(".")[0] == key]
        if ours:
            values[key] = parse_group(key, group, {word: words.pop(word) for word in ours})
    types = field_types(cls)
    for word in list(words):
        key, *path = word.split(".")
        if key not in types or (path and not is_mapping(types[key])):
            continue
        text = words.pop(word)
        if not is_mapping(types[key]):
            values[key] = parse_field(key, text, types[key])
            continue
        if not all(path) or not path:
            raise UsageError(f"`{word}` must be given by name: {key}.<name>={text}")
        _place(values.setdefault(key, {}), path, parse_field(word, text, Any), word)
    return values


def _place(mapping: dict[str, Any], path: list[str], value: Any, word: str) -> None:
    for step in path[:-1]:
        mapping = mapping.setdefault(step, {})
        if not isinstance(mapping, dict):
            raise UsageError(f"`{word}` must not go below {step}, which is given as a value")
    if path[-1] in mapping:
        raise UsageError(f"`{word}` must be a value or a group, got both")
    mapping[path[-1]] = value
