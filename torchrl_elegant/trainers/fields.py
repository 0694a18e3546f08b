"""What the fields of a configuration dataclass are: types, defaults, and the texts they read."""

from __future__ import annotations

import dataclasses
from typing import Any, get_type_hints

from torchrl_elegant.trainers.values import UsageError, parse_value

__all__ = ["default_of", "field_types", "parse_field"]


def field_types(cls: type) -> dict[str, Any]:
    """The type annotations of a dataclass's fields, in their order.

    >>> from torchrl_elegant.trainers.config import RunConfig
    >>> field_types(RunConfig)["seed"]
    <class 'int'>
    """
    hints = get_type_hints(cls)
    return {item.name: hints[item.name] for item in dataclasses.fields(cls) if item.init}


def default_of(item: dataclasses.Field[Any]) -> Any:
    """What a field holds where nothing is given; a mapping is made anew.

    >>> from torchrl_elegant.trainers.config import RunConfig
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
