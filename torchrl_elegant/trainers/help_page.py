"""The page that `--help` shows."""

from __future__ import annotations

import dataclasses
import textwrap
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from torchrl_elegant.algorithms import AlgorithmConfig
from torchrl_elegant.trainers.config import RunConfig
from torchrl_elegant.trainers.fields import default_of, field_types
from torchrl_elegant.trainers.groups import group_of
from torchrl_elegant.trainers.values import type_name

__all__ = ["help_page", "help_rows"]

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
