"""Options of a configuration: declaration, checks and text form."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import field, fields
from numbers import Integral, Real
from types import UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from torchrl_elegant.config.text import UsageError, parse_value


def option(default: Any, help: str) -> Any:
    """Declare a configuration field with its default and the line that `--help` shows.

    >>> from dataclasses import dataclass, fields
    >>> @dataclass(frozen=True, kw_only=True)
    ... class Config:
    ...     gamma: float = option(0.99, "discount factor")
    >>> fields(Config)[0].metadata["help"]
    'discount factor'
    """
    return field(default=default, metadata={"help": help})


def check(condition: bool, name: str, must: str, value: Any, way_out: str = "") -> None:
    """Raise the error that every configuration raises: name, rule, value and the way out.

    >>> check(0.5 > 0, "tau", "be positive", 0.5)
    """
    if not condition:
        raise ValueError(f"`{name}` must {must}, got `{value}`" + (way_out and f"; {way_out}"))


def check_positive(config: Any, *names: str) -> None:
    """Refuse fields that are zero, negative or infinite; none is left to ``check_fields``.

    >>> from types import SimpleNamespace
    >>> check_positive(SimpleNamespace(lr=float("inf")), "lr")
    Traceback (most recent call last):
    ValueError: `lr` must be positive and finite, got `inf`
    """
    for name in names:
        value = getattr(config, name)
        check(value is None or 0.0 < value < math.inf, name, "be positive and finite", value)


def check_not_negative(config: Any, *names: str) -> None:
    """Refuse fields that are negative or infinite; none is left to ``check_fields``.

    >>> from types import SimpleNamespace
    >>> check_not_negative(SimpleNamespace(noise=0.0), "noise")
    """
    for name in names:
        value = getattr(config, name)
        check(value is None or 0.0 <= value < math.inf, name, "be 0 or more and finite", value)


def check_fields(config: Any) -> None:
    """Refuse values that a field's annotation does not allow, wherever they come from.

    >>> from dataclasses import make_dataclass
    >>> check_fields(make_dataclass("Config", [("size", int | None)])(2.5))
    Traceback (most recent call last):
    ValueError: `size` must be an integer or none, got `2.5`
    """
    hints = get_type_hints(type(config))
    for item in fields(config):
        hint, value = hints[item.name], getattr(config, item.name)
        choices = _choices(hint)
        if choices:
            check(value in choices, item.name, f"be one of {_listed(choices)}", value)
        else:
            check(_allows(hint, value), item.name, f"be {_described(hint)}", value)


def check_unused(config: Any, *names: str, mode: str, other: str, group: str = "") -> None:
    """Refuse fields that were set although the chosen ``mode`` does not use them.

    ``group`` is what the options are called that ``config`` holds, where it is a group of them.
    """
    for name in names:
        default, value = type(config).__dataclass_fields__[name].default, getattr(config, name)
        word = f"{group}.{name}" if group else name
        way_out = f"set {other} to use it, or {word}={default}"
        check(value == default, word, f"stay {default} with {mode}", value, way_out)


def _choices(hint: Any) -> tuple[Any, ...]:
    if get_origin(hint) is Literal:
        return get_args(hint)
    if get_origin(hint) in (Union, UnionType):
        members = [(None,) if one is type(None) else _choices(one) for one in get_args(hint)]
        return tuple(choice for some in members for choice in some) if all(members) else ()
    return ()


# What the command line, a file or a caller may write; every other annotation is left alone.
_KINDS: dict[Any, tuple[type, str]] = {
    bool: (bool, "true or false"),
    int: (Integral, "an integer"),
    float: (Real, "a number"),
    str: (str, "a text"),
    type(None): (type(None), "none"),
}


def _allows(hint: Any, value: Any) -> bool:
    if get_origin(hint) is Literal:
        return value in get_args(hint)
    if get_origin(hint) in (Union, UnionType):
        return any(_allows(one, value) for one in get_args(hint))
    if get_origin(hint) is tuple:
        each = get_args(hint)[0]
        return isinstance(value, (tuple, list)) and all(_allows(each, one) for one in value)
    if hint not in _KINDS:
        return True
    # Of numbers a bool is one only by name.
    return isinstance(value, _KINDS[hint][0]) and (hint is bool or not isinstance(value, bool))


def _described(hint: Any) -> str:
    if get_origin(hint) is Literal:
        return f"one of {_listed(get_args(hint))}"
    if get_origin(hint) in (Union, UnionType):
        return " or ".join(_described(one) for one in get_args(hint))
    if get_origin(hint) is tuple:
        return f"several, each {_described(get_args(hint)[0])}"
    return _KINDS[hint][1] if hint in _KINDS else getattr(hint, "__name__", str(hint))


def _listed(choices: tuple[Any, ...]) -> str:
    return ", ".join(str(choice) for choice in choices)


def field_types(cls: type) -> dict[str, Any]:
    """The type annotations of a dataclass's fields, in their order.

    >>> from torchrl_elegant.trainers.run_config import RunConfig
    >>> field_types(RunConfig)["seed"]
    <class 'int'>
    """
    hints = get_type_hints(cls)
    return {item.name: hints[item.name] for item in dataclasses.fields(cls) if item.init}


def default_of(item: dataclasses.Field[Any]) -> Any:
    """What a field holds where nothing is given; a mapping is made anew.

    >>> from torchrl_elegant.trainers.run_config import RunConfig
    >>> [default_of(item) for item in dataclasses.fields(RunConfig) if item.name == "env_kwargs"]
    [{}]
    """
    factory = item.default_factory
    return item.default if factory is dataclasses.MISSING else factory()


def parse_field(key: str, text: str, annotation: Any) -> Any:
    """Read the text given for the field `key`.

    >>> parse_field("seed", "1_000", int)
    1000
    """
    try:
        return parse_value(text, annotation)
    except ValueError as error:
        raise UsageError(f"`{key}` must be {error}, got {text!r}") from error
