"""How configurations declare their options, and what they refuse."""

from __future__ import annotations

from dataclasses import field
from types import UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints


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


def check_choices(config: Any) -> None:
    """Refuse values that a field's ``Literal`` does not list, wherever they come from."""
    for name, hint in get_type_hints(type(config)).items():
        choices, value = _choices(hint), getattr(config, name, None)
        check(not choices or value in choices, name, f"be one of {_listed(choices)}", value)


def check_unused(config: Any, *names: str, mode: str, other: str) -> None:
    """Refuse fields that were set although the chosen ``mode`` does not use them."""
    for name in names:
        default, value = type(config).__dataclass_fields__[name].default, getattr(config, name)
        way_out = f"set {other} to use it, or {name}={default}"
        check(value == default, name, f"stay {default} with {mode}", value, way_out)


def _choices(hint: Any) -> tuple[Any, ...]:
    if get_origin(hint) is Literal:
        return get_args(hint)
    if get_origin(hint) in (Union, UnionType):
        members = [(None,) if one is type(None) else _choices(one) for one in get_args(hint)]
        return tuple(choice for some in members for choice in some) if all(members) else ()
    return ()


def _listed(choices: tuple[Any, ...]) -> str:
    return ", ".join(str(choice) for choice in choices)
