"""Text into values by a field's type, without ever evaluating code."""

from __future__ import annotations

import difflib
import math
import types
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Literal, Union, get_args, get_origin

_NONE_WORDS = ("none", "null")
_BOOLEANS = {"true": True, "false": False}


class UsageError(ValueError):
    """A mistake of the caller's that one line explains; scripts print it without a traceback.

    >>> str(UsageError("`seed` must be an integer, got 'x'"))
    "`seed` must be an integer, got 'x'"
    """


def nearest(word: str, known: Iterable[str], prefix: str = "") -> str:
    """The hint that ends an error about an unknown word; `prefix` is written before known ones.

    >>> nearest("sed", ["seed", "env"])
    'did you mean `seed`?'
    """
    known = sorted(known)
    lower = {name.lower(): prefix + name for name in known}
    found = difflib.get_close_matches(word.lower(), lower, n=1, cutoff=0.5)
    if found:
        return f"did you mean `{lower[found[0]]}`?"
    return f"choose from {', '.join(lower.values())}" if len(known) <= 12 else "see --help"


def parse_value(text: str, annotation: Any) -> Any:
    """Read `text` as a value of the type `annotation`; ValueError says what was expected.

    >>> parse_value("1e6", int), parse_value("256,256", tuple[int, ...])
    (1000000, (256, 256))
    """
    if annotation is Any:
        return _guess(text)
    if is_union(annotation):
        return _parse_union(text, get_args(annotation))
    if get_origin(annotation) is Literal:
        return _parse_literal(text, get_args(annotation))
    if annotation is tuple or get_origin(annotation) is tuple:
        return _parse_tuple(text, get_args(annotation) or (Any, ...))
    if annotation in _PARSERS:
        return _PARSERS[annotation](text)
    raise TypeError(f"no text form is known for the type {type_name(annotation)}")


def type_name(annotation: Any) -> str:
    """A type as `--help` shows it.

    >>> type_name(tuple[int, ...] | None), type_name(Literal["sync", "async"])
    ('int,int,... | none', 'sync|async')
    """
    arguments = get_args(annotation)
    if annotation in (None, type(None)):
        return "none"
    if is_union(annotation):
        return " | ".join(type_name(member) for member in arguments)
    if get_origin(annotation) is Literal:
        return "|".join(str(choice) for choice in arguments)
    if get_origin(annotation) is tuple:
        if arguments[-1] is Ellipsis:
            return f"{type_name(arguments[0])},{type_name(arguments[0])},..."
        return ",".join(type_name(member) for member in arguments)
    if is_mapping(annotation):
        return "name=value"
    return getattr(annotation, "__name__", str(annotation))


def is_union(annotation: Any) -> bool:
    """Whether a field takes values of several types.

    >>> is_union(int | None), is_union(int)
    (True, False)
    """
    return get_origin(annotation) in (Union, types.UnionType)


def is_mapping(annotation: Any) -> bool:
    """Whether a field takes dotted keys.

    >>> is_mapping(Mapping[str, int]), is_mapping(int)
    (True, False)
    """
    origin = get_origin(annotation) or annotation
    return isinstance(origin, type) and issubclass(origin, Mapping)


def _parse_int(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        pass
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not number.is_integer():
        raise ValueError("an integer")
    return int(number)


def _parse_float(text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if math.isnan(number):
        raise ValueError("a number")
    return number


def _parse_bool(text: str) -> bool:
    if text.lower() not in _BOOLEANS:
        raise ValueError("true or false")
    return _BOOLEANS[text.lower()]


def _parse_none(text: str) -> None:
    if text.lower() not in _NONE_WORDS:
        raise ValueError("none")


def _parse_literal(text: str, choices: tuple[Any, ...]) -> Any:
    for choice in choices:
        if str(choice) == text:
            return choice
    names = [str(choice) for choice in choices]
    raise ValueError(f"one of {', '.join(names)} ({nearest(text, names)})")


def _parse_tuple(text: str, members: tuple[Any, ...]) -> tuple[Any, ...]:
    if text[:1] + text[-1:] in ("()", "[]"):
        text = text[1:-1]
    parts = [part.strip() for part in text.split(",")]
    if parts[-1] == "":
        parts.pop()
    if members[-1] is Ellipsis:
        members = members[:1] * len(parts)
    if len(parts) != len(members):
        raise ValueError(f"{len(members)} values separated by commas")
    return tuple(parse_value(part, member) for part, member in zip(parts, members, strict=True))


def _parse_union(text: str, members: tuple[Any, ...]) -> Any:
    # `str` takes any text, so it is asked last; `none` is a word before it is a name.
    expected = []
    for member in sorted(members, key=lambda member: (member is str, member is not type(None))):
        try:
            return parse_value(text, member)
        except ValueError as error:
            expected.append(str(error))
    raise ValueError(" or ".join(reversed(expected)))


def _guess(text: str) -> Any:
    # Only a text without point or exponent is an integer: a simulator's 1.0 stays a float.
    members = (
        (type(None), bool, float, str)
        if set(".eE") & set(text)
        else (type(None), bool, int, float, str)
    )
    return _parse_union(text, members)


_PARSERS: dict[Any, Callable[[str], Any]] = {
    int: _parse_int,
    float: _parse_float,
    bool: _parse_bool,
    str: str,
    None: _parse_none,
    type(None): _parse_none,
}
