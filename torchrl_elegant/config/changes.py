"""Changes of a configuration: read from words and YAML, merged, and built into the dataclass.

A change maps names of options to values. An option that holds a dataclass or None is a group, as in
``hterm: HTermConfig | None``: its change is None (off) or a mapping of the members that differ, and
True, False or a ready instance mean what they say. The words ``hterm=true`` and ``hterm=false``
switch a group; ``hterm.horizon=8`` sets a member and so switches it on.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable, Mapping
from typing import Any

from torchrl_elegant.config.options import Option, options_of
from torchrl_elegant.config.text import UsageError, nearest, parse_text


def known_words(cls: type) -> list[str]:
    """The words of a dataclass: its options, and those of its groups.

    >>> from torchrl_elegant.trainers.run_config import RunConfig
    >>> known_words(RunConfig)[:2]
    ['env', 'total_frames']
    """
    options = options_of(cls)
    groups = [(name, item.group) for name, item in options.items() if item.group]
    return [*options, *(f"{name}.{one}" for name, group in groups for one in options_of(group))]


def take_words(words: dict[str, str], cls: type) -> dict[str, Any]:
    """Move the words that `cls` has options for out of `words`; return their change.

    >>> from torchrl_elegant.trainers.run_config import RunConfig
    >>> take_words({"seed": "3", "env_kwargs.gravity": "9.8"}, RunConfig)
    {'seed': 3, 'env_kwargs': {'gravity': 9.8}}
    """
    options, change = options_of(cls), dict[str, Any]()
    for word, text in words.items():
        key, *path = word.split(".")
        item = options.get(key)
        if item is None or (path and not (item.group or item.is_mapping)):
            continue
        for above in (other for other in words if word.startswith(f"{other}.")):
            if not item.group:
                raise UsageError(f"`{word}` must not go below {above}, which is given as a value")
            if not _switch(item, words[above]):
                given = f"{above}={words[above]}"
                raise UsageError(f"`{word}` must not be given with {given}, got {text!r}")
        change = merged(cls, change, {key: _read_word(item, word, path, text)})
    for word in [word for word in words if word.partition(".")[0] in change]:
        del words[word]
    return change


def _read_word(item: Option, word: str, path: list[str], text: str) -> Any:
    if not (item.group or item.is_mapping):
        return item.parse(text)
    if item.group and not path:
        return _switch(item, text)
    if not path or not all(path) or (item.group and len(path) > 1):
        raise UsageError(f"`{word}` must be given by name: {item.name}.<name>={text}")
    if item.group:
        _refuse_unknown(item, path)
        return {path[0]: options_of(item.group)[path[0]].parse(text, word)}
    value = parse_text(text, Any)
    for step in reversed(path):
        value = {step: value}
    return value


def _switch(item: Option, text: str) -> bool | None:
    """Read the text given for a group itself."""
    try:
        return parse_text(text, bool | None)
    except ValueError as error:
        first = next(iter(options_of(item.group).values()))
        raise UsageError(
            f"`{item.name}` must be {error}, got {text!r}; set its options by name, as "
            f"{item.name}.{first.name}={first.default}"
        ) from error


def read_page(cls: type, page: Any, prefix: str = "") -> dict[str, Any]:
    """Read the change that YAML holds: lists become tuples, texts are read by their option.

    >>> from torchrl_elegant.trainers.run_config import RunConfig
    >>> read_page(RunConfig, {"eval_interval": "1e3", "env_kwargs": {"sizes": [1]}})
    {'eval_interval': 1000, 'env_kwargs': {'sizes': [1]}}
    """
    if not isinstance(page, Mapping):
        raise UsageError(f"the run's config must hold a mapping for {cls.__name__}, got {page!r}")
    options, change = options_of(cls), {}
    for name, value in page.items():
        word = f"{prefix}{name}"
        if name not in options:
            hint = nearest(str(name), options, prefix)
            raise UsageError(f"unknown option `{word}` in the run's config: {hint}")
        item = options[name]
        if item.group and isinstance(value, Mapping):
            value = read_page(item.group, value, f"{word}.")
        elif isinstance(value, list):
            value = tuple(value)
        elif isinstance(value, str):
            # YAML 1.1 reads a hand-written 3e-4 as a text, and none as well.
            value = _switch(item, value) if item.group else item.parse(value, word)
        change[name] = value
    return change


def merged(cls: type, first: Mapping[str, Any], then: Mapping[str, Any]) -> dict[str, Any]:
    """One change in place of two; of groups and mappings, what `then` does not name is kept.

    >>> Group = dataclasses.make_dataclass("Group", [("a", int, 1), ("b", int, 2)])
    >>> Config = dataclasses.make_dataclass("Config", [("group", Group | None, None)])
    >>> merged(Config, {"group": {"a": 3}}, {"group": {"b": 4}})
    {'group': {'a': 3, 'b': 4}}
    """
    return _deep(_plain(cls, first), _plain(cls, then))


def _plain(cls: type, change: Mapping[str, Any]) -> dict[str, Any]:
    """A change with None or a mapping for each group."""
    groups = {name: item for name, item in options_of(cls).items() if item.group}
    own = {name: _members(groups[name], change[name]) for name in change if name in groups}
    return {**change, **own}


def _deep(first: Mapping[str, Any], then: Mapping[str, Any]) -> dict[str, Any]:
    both = {**first, **then}
    for name in first:
        if isinstance(first[name], Mapping) and isinstance(both[name], Mapping):
            both[name] = _deep(first[name], both[name])
    return both


def build(cls: type, change: Mapping[str, Any], base: Any = None) -> Any:
    """Make a configuration: `change` over the defaults, or over a stored `base`.

    >>> from torchrl_elegant.trainers.run_config import RunConfig
    >>> build(RunConfig, {"seed": 2}, RunConfig(num_envs=4)).num_envs
    4
    """
    values = _plain(cls, change)
    try:
        for name, item in options_of(cls).items():
            before = item.default if base is None else getattr(base, name)
            if item.group and values.get(name) is not None:
                values[name] = _made(item, before, values[name])
            elif item.is_mapping and isinstance(values.get(name), Mapping):
                values[name] = _deep(before, values[name])
        return cls(**values) if base is None else dataclasses.replace(base, **values)
    except ValueError as error:
        raise UsageError(str(error)) from error


def _members(item: Option, value: Any) -> dict[str, Any] | None:
    if value is None or isinstance(value, bool):
        return {} if value else None
    if type(value) is item.group:
        return {name: getattr(value, name) for name in options_of(item.group)}
    if not isinstance(value, Mapping):
        raise UsageError(f"`{item.name}` must be true, false or its options by name, got `{value}`")
    _refuse_unknown(item, value)
    return dict(value)


def _refuse_unknown(item: Option, names: Iterable[str]) -> None:
    known = options_of(item.group)
    for name in names:
        if name not in known:
            hint = nearest(str(name), known, f"{item.name}.")
            raise UsageError(f"unknown option `{item.name}.{name}`: {hint}")


def _made(item: Option, before: Any, members: Mapping[str, Any]) -> Any:
    try:
        on = isinstance(before, item.group)
        return dataclasses.replace(before, **members) if on else item.group(**members)
    except ValueError as error:
        # The error of a group names its members without the group.
        text, names = str(error), "|".join(options_of(item.group))
        if re.match(rf"`({names})`", text):
            # The way out sets members by name, too.
            text = re.sub(rf"(?<![\w.])({names})=", rf"{item.name}.\1=", text)
            text = f"`{item.name}.{text[1:]}"
        raise UsageError(text) from error
