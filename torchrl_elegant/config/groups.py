"""Options that come as a group: a field that holds a dataclass of them, or None while it is off.

A field is a group where its annotation is a dataclass or None, as in ``hterm: HTermConfig | None``.
The words ``hterm=true`` and ``hterm=false`` switch it, ``hterm.horizon=8`` sets a member and so
switches it on. A change of a group is None (off) or a mapping of members, which keeps the others;
who writes one may say True, False or a ready instance as well.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable, Mapping
from typing import Any, get_args

from torchrl_elegant.config.options import default_of, field_types, parse_field
from torchrl_elegant.config.text import UsageError, is_union, nearest


def group_of(annotation: Any) -> Any:
    """The dataclass that a field's annotation makes a group; None for all other fields.

    >>> from torchrl_elegant.trainers.run_config import RunConfig
    >>> group_of(RunConfig | None).__name__, group_of(int | None)
    ('RunConfig', None)
    """
    members = set(get_args(annotation)) if is_union(annotation) else set()
    kinds = members - {type(None)}
    if len(members) != 2 or len(kinds) != 1:
        return None
    kind = kinds.pop()
    return kind if isinstance(kind, type) and dataclasses.is_dataclass(kind) else None


def groups_of(cls: type) -> dict[str, Any]:
    """The fields of a dataclass that are groups, and their dataclasses.

    >>> from torchrl_elegant.trainers.run_config import RunConfig
    >>> groups_of(RunConfig)
    {}
    """
    found = {key: group_of(annotation) for key, annotation in field_types(cls).items()}
    return {key: group for key, group in found.items() if group is not None}


def known_words(cls: type) -> list[str]:
    """The words of a dataclass: its fields, and below its groups their members.

    >>> from torchrl_elegant.trainers.run_config import RunConfig
    >>> known_words(RunConfig)[:2]
    ['env', 'total_frames']
    """
    groups = groups_of(cls)
    below = [f"{key}.{name}" for key, group in groups.items() for name in field_types(group)]
    return [*field_types(cls), *below]


def switch(key: str, text: str) -> bool | None:
    """Read the text given for a group itself: true, false or none.

    >>> switch("hterm", "true")
    True
    """
    return parse_field(key, text, bool | None)


def parse_group(key: str, group: type, words: Mapping[str, str]) -> dict[str, Any] | None:
    """The change of the group `key` that its words ask for: itself and `key.<name>`.

    >>> from torchrl_elegant.trainers.run_config import RunConfig
    >>> parse_group("run", RunConfig, {"run": "true", "run.seed": "3"})
    {'seed': 3}
    """
    members = {word: text for word, text in words.items() if word != key}
    if key in words and not switch(key, words[key]):
        for word, text in members.items():
            raise UsageError(f"`{word}` must not be given with {key}={words[key]}, got {text!r}")
        return None
    types, values = field_types(group), {}
    for word, text in members.items():
        _, *path = word.split(".")
        if len(path) != 1 or not path[0]:
            raise UsageError(f"`{word}` must be given by name: {key}.<name>={text}")
        _refuse_unknown(key, path, types)
        values[path[0]] = parse_field(word, text, types[path[0]])
    return values


def merged(cls: type, values: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """`values` with `changes`, which in groups keep the members that they do not name.

    >>> from dataclasses import make_dataclass
    >>> Group = make_dataclass("Group", [("a", int, 1), ("b", int, 2)])
    >>> Config = make_dataclass("Config", [("group", Group | None, None)])
    >>> merged(Config, {"group": {"a": 3}}, {"group": {"b": 4}})
    {'group': {'a': 3, 'b': 4}}
    """
    both = {**values, **changes}
    for key, group in groups_of(cls).items():
        if key in values and key in changes:
            before, after = (_change(key, group, side[key]) for side in (values, changes))
            both[key] = None if after is None else {**(before or {}), **after}
    return both


def resolved(cls: type, values: Mapping[str, Any], base: Any = None) -> dict[str, Any]:
    """`values` with ready groups in place of their changes, over those of `base` or the defaults.

    >>> from dataclasses import make_dataclass
    >>> Group = make_dataclass("Group", [("a", int, 1), ("b", int, 2)])
    >>> Config = make_dataclass("Config", [("group", Group | None, None)])
    >>> resolved(Config, {"group": {"a": 3}}, Config(group=Group(b=7)))
    {'group': Group(a=3, b=7)}
    """
    ready = dict(values)
    items = {item.name: item for item in dataclasses.fields(cls)}
    for key, group in groups_of(cls).items():
        change = _change(key, group, ready[key]) if key in ready else None
        if change is not None:
            before = default_of(items[key]) if base is None else getattr(base, key)
            ready[key] = _made(key, group, before, change)
        elif key in ready:
            ready[key] = None
    return ready


def _change(key: str, group: type, value: Any) -> dict[str, Any] | None:
    if value is None or value is False:
        return None
    if value is True:
        return {}
    if type(value) is group:
        return {name: getattr(value, name) for name in field_types(group)}
    if not isinstance(value, Mapping):
        raise UsageError(f"`{key}` must be true, false or its options by name, got `{value}`")
    _refuse_unknown(key, value, field_types(group))
    return dict(value)


def _refuse_unknown(key: str, names: Iterable[str], known: Mapping[str, Any]) -> None:
    for name in names:
        if name not in known:
            hint = nearest(str(name), known, f"{key}.")
            raise UsageError(f"unknown option `{key}.{name}`: {hint}")


def _made(key: str, group: type, before: Any, change: Mapping[str, Any]) -> Any:
    try:
        on = isinstance(before, group)
        return dataclasses.replace(before, **change) if on else group(**change)
    except ValueError as error:
        # A group calls its members by the names they have in it, users by those they write.
        text = str(error)
        named = re.match(r"`(\w+)`", text)
        ours = named is not None and named[1] in field_types(group)
        if ours:
            # In the way out, too, where members are set by name.
            members = "|".join(field_types(group))
            text = re.sub(rf"(?<![\w.])({members})=", rf"{key}.\1=", f"`{key}.{text[1:]}")
        raise UsageError(text) from error
