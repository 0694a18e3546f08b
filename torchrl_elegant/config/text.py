"""Values of options: the words for a type, their text form, the check of type and bounds."""

from __future__ import annotations

import dataclasses
import difflib
import math
import types
from collections.abc import Callable, Iterable, Mapping
from numbers import Integral, Real
from typing import Any, Literal, Union, get_args, get_origin

from torchrl_elegant.config.rates import SHAPES, Rate, parse_rate, rate_fits, rate_text

_NONE = type(None)
# Integers are kept in 64 bits, and other numbers in 32, by most that they are handed to.
_MOST, _LARGEST = 2**63, 1e38
_NOUNS = {bool: "true or false", str: "a text", _NONE: "none"}


class UsageError(ValueError):
    """A mistake of the caller that one line explains; scripts print it without a traceback.

    >>> str(UsageError("`seed` must be an integer, got 'x'"))
    "`seed` must be an integer, got 'x'"
    """


@dataclasses.dataclass(frozen=True, kw_only=True)
class Bounds:
    """Limits of a number, or of each number of a list: `low` and `high` belong to them, `above` and
    `below` do not.

    Infinity must be allowed by name, as ``high=math.inf``.

    >>> Bounds(low=0, below=1).hold(0.0), Bounds(low=0, below=1).hold(1.0)
    (True, False)
    """

    low: float | None = None
    high: float | None = None
    above: float = -math.inf
    below: float = math.inf
    #: Limit that the last number of a rate may reach although no other may.
    last: float | None = None

    def hold(self, value: Any) -> bool:
        """True if `value` lies within; NaN never does."""
        over = value > self.above if self.low is None else value >= self.low
        return bool(over and (value < self.below if self.high is None else value <= self.high))

    def told(self, noun: str) -> str:
        """`noun` with the limits in words.

        >>> Bounds(low=1).told("an integer"), Bounds(above=0, high=1).told("a finite number")
        ('an integer of 1 or more', 'a number in (0, 1]')
        """
        has_low = self.low is not None or self.above > -math.inf
        has_high = self.high is not None or self.below < math.inf
        if has_low and has_high:
            start = f"({self.above}" if self.low is None else f"[{self.low}"
            end = f"{self.below})" if self.high is None else f"{self.high}]"
            return f"{noun.replace('finite ', '')} in {start}, {end}"
        if has_low:
            end = f"above {self.above}" if self.low is None else f"of {self.low} or more"
        else:
            end = f"below {self.below}" if self.high is None else f"of {self.high} or less"
        return f"{noun} {end}" if has_low or has_high else noun


FREE = Bounds()


def brief(value: object) -> str:
    """``value`` as a text of at most 100 characters.

    >>> brief(12), len(brief("9" * 5000))
    ('12', 100)
    """
    text = str(value)
    return text if len(text) <= 100 else f"{text[:70]}...{text[-27:]}"


def too_large(value: Any) -> str:
    """The limit in words, for a number, or a list with one, that no computer's number can hold.

    >>> too_large(10**23), too_large((1, 2)), too_large(1e300)
    (' below 2**63', '', ' below 1e+38')
    """
    if isinstance(value, (tuple, list)):
        return next(filter(None, map(too_large, value)), "")
    if isinstance(value, Integral):
        return "" if -_MOST < int(value) < _MOST else " below 2**63"
    beyond = isinstance(value, Real) and _LARGEST < abs(float(value)) < math.inf
    return f" below {_LARGEST:g}" if beyond else ""


def nearest(word: str, known: Iterable[str], prefix: str = "") -> str:
    """The hint that ends an error about an unknown word; `prefix` is written before known ones.

    >>> nearest("sed", ["seed", "env"])
    'did you mean `seed`?'
    """
    known = sorted(known)
    lower = {name.lower(): prefix + name for name in known}
    found = difflib.get_close_matches(word.lower(), lower, n=1, cutoff=0.5)
    # A member of a group that was named without its group.
    inside = [name for name in lower if name.endswith(f".{word.lower()}")]
    if inside or found:
        return f"did you mean `{lower[(inside or found)[0]]}`?"
    return f"choose from {', '.join(lower.values())}" if len(known) <= 12 else "see --help"


def is_union(annotation: Any) -> bool:
    """True if an option takes values of several types.

    >>> is_union(int | None), is_union(int)
    (True, False)
    """
    return get_origin(annotation) in (Union, types.UnionType)


def requirement(annotation: Any, bounds: Bounds = FREE) -> str:
    """The values that an option takes, in words for errors and help.

    >>> requirement(tuple[int, ...] | None, Bounds(low=1))
    'a list of at least one value, each an integer of 1 or more, or none'
    """
    members = get_args(annotation)
    if annotation == Rate:
        limit = "" if bounds.last is None else f", where last may be {bounds.last:g}"
        return f"{bounds.told('a finite number')}, or first..last[:shape]{limit}"
    if is_union(annotation):
        return ", or ".join(requirement(member, bounds) for member in members)
    if get_origin(annotation) is Literal:
        return ("one of " if len(members) > 1 else "") + ", ".join(map(str, members))
    if get_origin(annotation) is tuple and members[-1] is Ellipsis:
        return f"a list of at least one value, each {requirement(members[0], bounds)}"
    if get_origin(annotation) is tuple:
        return f"{len(members)} values: {', '.join(requirement(one, bounds) for one in members)}"
    if annotation in (int, float):
        return bounds.told("an integer" if annotation is int else "a finite number")
    named = f"{annotation.__name__}(...)" if isinstance(annotation, type) else str(annotation)
    return _NOUNS.get(annotation, named)


def fits(value: Any, annotation: Any, bounds: Bounds = FREE) -> bool:
    """True if an option of this type takes a value, wherever it comes from.

    >>> fits(8, int | None), fits(True, int), fits([8, 0], tuple[int, ...], Bounds(low=1))
    (True, False, False)
    """
    members = get_args(annotation)
    if annotation == Rate:
        return rate_fits(
            value,
            lambda one: fits(one, float, bounds),
            lambda one: fits(one, float, bounds) or (fits(one, float) and one == bounds.last),
        )
    if is_union(annotation):
        return any(fits(value, member, bounds) for member in members)
    if get_origin(annotation) is Literal:
        return value in members
    if get_origin(annotation) is tuple:
        several = isinstance(value, (tuple, list)) and len(value) > 0
        kinds = members[:1] * len(value) if several and members[-1] is Ellipsis else members
        return (
            several
            and len(value) == len(kinds)
            and all(fits(one, kind, bounds) for one, kind in zip(value, kinds, strict=True))
        )
    if annotation in (int, float):
        kind = Integral if annotation is int else Real
        # In Python a bool is a number.
        return isinstance(value, kind) and not isinstance(value, bool) and bounds.hold(value)
    # All else, such as a mapping, is for its own class to check.
    known = annotation in (bool, str, _NONE) or dataclasses.is_dataclass(annotation)
    return not known or isinstance(value, annotation)


def parse_text(text: str, annotation: Any, bounds: Bounds = FREE) -> Any:
    """Read `text` as a value of the type `annotation`; ValueError says what was expected.

    Only the type is looked at: bounds are checked where the value is used.

    >>> parse_text("1e6", int), parse_text("256,256", tuple[int, ...])
    (1000000, (256, 256))
    """
    try:
        return _parse(text, annotation)
    except ValueError:
        close = difflib.get_close_matches(text.lower(), _choices(annotation), n=1, cutoff=0.5)
        hint = f" (did you mean `{close[0]}`?)" if close else ""
        if annotation == Rate and ".." in text:
            hint = f" ({SHAPES})"
        raise ValueError(requirement(annotation, bounds) + hint) from None


def as_text(value: Any, annotation: Any = None) -> str:
    """Write a value as `parse_text` reads it.

    >>> as_text(None), as_text((64, 64)), as_text((0.1, 0.0), Rate)
    ('none', '64,64', '0.1..0.0')
    """
    if annotation == Rate:
        return rate_text(value)
    if value is None or isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, (tuple, list)):
        return ",".join(map(as_text, value))
    return "" if isinstance(value, Mapping) else str(value)


def _choices(annotation: Any) -> list[str]:
    if get_origin(annotation) is Literal:
        return [str(choice) for choice in get_args(annotation)]
    members = get_args(annotation) if is_union(annotation) else ()
    return [choice for member in members for choice in _choices(member)]


def _parse(text: str, annotation: Any) -> Any:
    members = get_args(annotation)
    if annotation is Any:
        # Only a text without point or exponent is an integer: a simulator's 1.0 stays a float.
        whole = () if set(".eE") & set(text) else (int,)
        return _first(text, (_NONE, bool, *whole, float, str))
    if annotation == Rate:
        return parse_rate(text, _number)
    if is_union(annotation):
        # `str` takes any text, so it is asked last; `none` is a word before it is a name.
        return _first(text, sorted(members, key=lambda one: (one is str, one is not _NONE)))
    if get_origin(annotation) is Literal:
        return _pick(text, {str(choice): choice for choice in members})
    if get_origin(annotation) is tuple:
        inner = text[1:-1] if text[:1] + text[-1:] in ("()", "[]") else text
        parts = [part.strip(" ") for part in inner.removesuffix(",").split(",")] if inner else []
        kinds = members[:1] * len(parts) if members[-1] is Ellipsis else members
        return tuple(_parse(part, kind) for part, kind in zip(parts, kinds, strict=True))
    if annotation in _PARSERS:
        return _PARSERS[annotation](text)
    raise TypeError(f"no text form is known for the type {requirement(annotation)}")


def _first(text: str, members: Iterable[Any]) -> Any:
    for member in members:
        try:
            return _parse(text, member)
        except ValueError:
            continue
    raise ValueError(text)


def _pick(text: str, values: Mapping[str, Any]) -> Any:
    if text not in values:
        raise ValueError(text)
    return values[text]


def _integer(text: str) -> int:
    _check_digits(text)
    try:
        return int(text)
    except ValueError:
        if not (number := float(text)).is_integer():
            raise
        return int(number)


def _number(text: str) -> float:
    _check_digits(text)
    if math.isnan(number := float(text)):
        raise ValueError(text)
    return number


def _check_digits(text: str) -> None:
    # Python reads the digits of every script, which nobody can tell apart by sight.
    if not text.isascii():
        raise ValueError(text)


def _none(text: str) -> None:
    _pick(text.lower(), {"none": None, "null": None})


_PARSERS: dict[Any, Callable[[str], Any]] = {
    int: _integer,
    float: _number,
    bool: lambda text: _pick(text.lower(), {"true": True, "false": False}),
    str: str,
    _NONE: _none,
}
