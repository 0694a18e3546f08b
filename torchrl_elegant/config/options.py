"""Options of a configuration: fields of a dataclass with help and bounds, and their one check."""

from __future__ import annotations

import dataclasses
import functools
import inspect
from collections.abc import Iterable, Mapping
from typing import Any, get_args, get_origin, get_type_hints

from torchrl_elegant.config.rates import SHAPES, Rate, rate_text
from torchrl_elegant.config.text import (
    FREE,
    Bounds,
    UsageError,
    brief,
    fits,
    is_union,
    nearest,
    parse_text,
    requirement,
    too_large,
)


def option(
    default: Any = dataclasses.MISSING,
    help: str = "",
    *,
    topic: str = "",
    low: float | None = None,
    high: float | None = None,
    above: float | None = None,
    below: float | None = None,
    last: float | None = None,
    has_text: bool = True,
) -> Any:
    """Declare a field with its default and the line that `--help` shows.

    A subclass that changes the default alone writes ``gamma: float = 0.9``: help and bounds stay.

    Args:
        default: the field's value where none is given; a mapping is copied for each instance.
        help: what the option is for, in one line.
        topic: the heading of the help page that starts with this field.
        low, high: least and largest number, which are allowed.
        above, below: limits that are not allowed themselves; numbers are finite in any case, unless
            a limit that is allowed is infinite. Limits of a list hold for each of its numbers.
        last: a limit that is not allowed itself but that the last number of a `Rate` may reach.
        has_text: False for a field whose values exist in Python alone: no page, no command line and
            no file has it, and ``options_of`` leaves it out.

    >>> @dataclasses.dataclass(frozen=True, kw_only=True)
    ... class Config:
    ...     gamma: float = option(0.99, "discount factor", low=0, high=1)
    >>> options_of(Config)["gamma"].requirement
    'a number in [0, 1]'
    """
    limits = {"low": low, "high": high, "above": above, "below": below, "last": last}
    given = {name: value for name, value in limits.items() if value is not None}
    about = {"help": help, "topic": topic, "bounds": Bounds(**given) if given else None}
    metadata: dict[str, Any] = {name: value for name, value in about.items() if value}
    if not has_text:
        metadata = {"python": True}
    if isinstance(default, Mapping):
        return dataclasses.field(
            default_factory=functools.partial(dict, default), metadata=metadata
        )
    return dataclasses.field(default=default, metadata=metadata)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Option:
    """A field of a configuration, with all that is declared about it."""

    name: str
    annotation: Any
    default: Any
    help: str = ""
    topic: str = ""
    bounds: Bounds = FREE

    @property
    def requirement(self) -> str:
        """The values that it takes, in words."""
        named = "values by names of your own"
        return named if self.is_mapping else requirement(self.annotation, self.bounds)

    @property
    def is_mapping(self) -> bool:
        """True if it takes names of the caller's own, as ``env_kwargs.gravity=9.8``."""
        origin = get_origin(self.annotation) or self.annotation
        return isinstance(origin, type) and issubclass(origin, Mapping)

    @property
    def group(self) -> Any:
        """The dataclass of a field that holds one or None, such as ``HTermConfig | None``; else
        None."""
        members = set(get_args(self.annotation)) if is_union(self.annotation) else set()
        kinds = members - {type(None)}
        kind = kinds.pop() if len(members) == 2 and len(kinds) == 1 else None
        return kind if isinstance(kind, type) and dataclasses.is_dataclass(kind) else None

    def parse(self, text: str, word: str = "") -> Any:
        """Read the text that was given for it, by the name `word`."""
        try:
            return parse_text(text, self.annotation, self.bounds)
        except ValueError as error:
            raise UsageError(
                f"`{word or self.name}` must be {error}, got {brief(text)!r}"
            ) from error

    def check(self, value: Any) -> None:
        """Refuse a value that annotation or bounds do not allow."""
        limit = too_large(value)
        if limit or not fits(value, self.annotation, self.bounds):
            # Without quotes, a text in place of a number looks like one.
            quoted = isinstance(value, str) and not requirement(self.annotation).startswith("one")
            told = repr(value) if quoted else self.show(value)
            note = f" ({SHAPES})" if told != value and self.annotation == Rate else ""
            if isinstance(value, str) and self.annotation == Rate:
                note += "; in Python (first, last) or (first, last, 'cosine')"
            must = f"{self.requirement}{f',{limit}' if limit else note}"
            raise ValueError(f"`{self.name}` must be {must}, got `{brief(told)}`")

    def show(self, value: Any) -> Any:
        """A value as errors tell it."""
        several = isinstance(value, (tuple, list)) and self.annotation == Rate
        return rate_text(value) if several else value


def options_of(cls: type) -> dict[str, Option]:
    """The options of a dataclass, in their order.

    Help, bounds and topic come from the nearest parent that declares them. A field without a topic
    belongs to that of the field before.

    >>> from torchrl_elegant.trainers.run_config import RunConfig
    >>> list(options_of(RunConfig))[:2], options_of(RunConfig)["seed"].default
    (['env', 'total_frames'], 0)
    """
    return dict(_options_of(cls))


@functools.cache
def _options_of(cls: type) -> dict[str, Option]:
    hints, options, topic = get_type_hints(cls), {}, ""
    parents = [(parent, inspect.get_annotations(parent)) for parent in reversed(cls.__mro__)]
    for item in dataclasses.fields(cls):
        about: dict[str, Any] = {}
        for parent, declared in parents:
            if item.name in declared and dataclasses.is_dataclass(parent):
                about |= parent.__dataclass_fields__[item.name].metadata
        factory = item.default_factory
        topic = about.setdefault("topic", topic)
        if item.init and "python" not in about:
            options[item.name] = Option(
                name=item.name,
                annotation=hints[item.name],
                default=item.default if factory is dataclasses.MISSING else factory(),
                **about,
            )
    return options


def check_options(config: Any) -> None:
    """Refuse values that an option's annotation or bounds do not allow, wherever they come from.

    >>> check_options(dataclasses.make_dataclass("Config", [("size", int | None)])(2.5))
    Traceback (most recent call last):
    ValueError: `size` must be an integer, or none, got `2.5`
    """
    for name, item in options_of(type(config)).items():
        item.check(getattr(config, name))


def require_known(names: Iterable[str], *classes: type) -> None:
    """Refuse keywords that are options of none of the dataclasses ``classes``.

    >>> Config = dataclasses.make_dataclass("Config", [("size", int)])
    >>> require_known(["sice"], Config)
    Traceback (most recent call last):
    torchrl_elegant.config.text.UsageError: unknown option `sice`: did you mean `size`?
    """
    known = [name for cls in classes for name in options_of(cls)]
    for name in names:
        if name not in known:
            raise UsageError(f"unknown option `{name}`: {nearest(name, known)}")


def check(condition: bool, name: str, must: str, value: Any, way_out: str = "") -> None:
    """Raise the error of rules that a bound cannot say: name, rule, value and the way out.

    >>> check(0.5 > 0, "tau", "be below gamma", 0.5)
    """
    if not condition:
        raise ValueError(f"`{name}` must {must}, got `{value}`" + (way_out and f"; {way_out}"))


def check_unused(config: Any, *names: str, mode: str, other: str, group: str = "") -> None:
    """Refuse options that were set although the chosen ``mode`` does not use them.

    ``other`` is the word that brings them into use. ``group`` is the name of the option that holds
    ``config``, where one does.
    """
    options = options_of(type(config))
    for name in (name for name in names if name in options):  # a subclass may offer fewer
        item, value = options[name], getattr(config, name)
        word, default = f"{group}.{name}" if group else name, item.show(item.default)
        way_out = f"set {other} to use it, or {word}={default}"
        must = f"stay {default} with {mode}"
        check(value == item.default, word, must, item.show(value), way_out)
