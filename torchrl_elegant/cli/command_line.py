"""Command line: `key=value` words over configurations, help pages, exit codes."""

from __future__ import annotations

import dataclasses
import sys
import textwrap
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from torchrl_elegant.algorithms import AlgorithmConfig
from torchrl_elegant.collectors import WorkerDiedError
from torchrl_elegant.config.groups import group_of, groups_of, known_words, merged, parse_group
from torchrl_elegant.config.options import default_of, field_types, parse_field
from torchrl_elegant.config.text import UsageError, is_mapping, nearest, type_name
from torchrl_elegant.runs.config_file import Stored, build, find_algorithm
from torchrl_elegant.trainers.run_config import RunConfig


class HelpRequest(Exception):
    """Raised on `--help`; its text is the help page."""


def run_main(main: Callable[[Sequence[str]], int | None], argv: Sequence[str]) -> int:
    """Run a script's `main(argv)` and return its exit code.

    A mistake of the user's is one line and 2; a run that could not go on is one line and 1.

    >>> run_main(lambda argv: None, [])
    0
    """
    try:
        return main(argv) or 0
    except HelpRequest as page:
        sys.stdout.write(f"{page}\n")
        return 0
    except UsageError as error:
        sys.stderr.write(f"error: {' '.join(str(error).split())}\n")
        return 2
    except (FloatingPointError, WorkerDiedError) as error:
        # Of a worker's report the head says which worker, and the last line what happened.
        lines = str(error).strip().splitlines()
        told = lines[0] if len(lines) == 1 else f"{lines[0]} {lines[-1]}"
        sys.stderr.write(f"error: {told}\n")
        return 1
    except KeyboardInterrupt:
        sys.stderr.write("error: interrupted\n")
        return 130


_INDENT = " " * 34


def help_page(
    program: str,
    word: str,
    chosen: type,
    algorithms: Mapping[str, type],
    extra: type | None,
    usual: Mapping[str, Any],
) -> str:
    """All words of a training script: `word` names the algorithm, `chosen` is its configuration,
    `usual` are values in place of defaults.

    >>> help_page("x", "toy", RunConfig, {"toy": RunConfig}, None, {}).splitlines()[0]
    'usage: x key=value ...'
    """
    lines = [f"usage: {program} key=value ...", "", "algorithm"]
    named = f"one of {', '.join(sorted(algorithms))}, or package.module:name"
    lines += [f"  algorithm={word}   {named}"]
    for cls in (*([extra] if extra else []), RunConfig, chosen):
        lines += ["", f"{cls.__name__}", *help_rows(cls, usual)]
    return "\n".join(lines)


def help_rows(cls: type, usual: Mapping[str, Any] = MappingProxyType({})) -> list[str]:
    """A row of each field, with its default, what it is for and its type.

    Options of an actor are left out where there is none.

    >>> " ".join(help_rows(RunConfig)[2].split())
    'seed=0 seed of the environments, the networks and the sampling (int)'
    """
    types, rows = field_types(cls), []
    hidden = () if not issubclass(cls, AlgorithmConfig) or cls.has_actor else ("hterm",)
    for item in dataclasses.fields(cls):
        if not item.init or item.name in hidden:
            continue
        default, group = usual.get(item.name, default_of(item)), group_of(types[item.name])
        if group is None:
            rows += _row(item.name, default, item, type_name(types[item.name]))
        else:
            rows += _group_rows(item, group, default)
    return rows


def _group_rows(item: dataclasses.Field[Any], group: type, default: Any) -> list[str]:
    types = field_types(group)
    on = isinstance(default, group)
    members = default if on else group()
    rows = _row(item.name, on, item, "bool; true with any of its words below")
    for member in dataclasses.fields(members):
        if member.init:
            value = getattr(members, member.name)
            rows += _row(f"{item.name}.{member.name}", value, member, type_name(types[member.name]))
    return rows


def _row(word: str, default: Any, item: dataclasses.Field[Any], kind: str) -> list[str]:
    head = f"  {word}={_show(default)}"
    text = f"{item.metadata.get('help', '')} ({kind})".strip()
    body = textwrap.wrap(text, 100, initial_indent=_INDENT, subsequent_indent=_INDENT)
    if len(head) < len(_INDENT) - 1:
        return [head.ljust(len(_INDENT)) + body[0].lstrip(), *body[1:]]
    return [head, *body]


def _show(value: Any) -> str:
    if value is None or isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, (tuple, list)):
        return ",".join(_show(item) for item in value)
    return "" if isinstance(value, Mapping) else str(value)


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
