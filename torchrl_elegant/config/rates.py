"""Rates: numbers that stay for a whole run, or go from a first to a last value along it."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Literal, TypeAlias, get_args

#: Course of a rate between its ends.
Shape: TypeAlias = Literal["linear", "cosine", "exponential"]
#: A number that stays, or its first and last value along a run, and the course between them.
Rate: TypeAlias = float | tuple[float, float] | tuple[float, float, Shape]

#: Value at the part ``done`` of the way from ``first`` to ``last``.
COURSES: dict[Shape, Callable[[float, float, float], float]] = {
    "linear": lambda first, last, done: first + (last - first) * done,
    "cosine": lambda first, last, done: last + (first - last) * (1 + math.cos(math.pi * done)) / 2,
    "exponential": lambda first, last, done: first * (last / first) ** done,
}
SHAPES = "shapes: linear, cosine, exponential; exponential takes no 0 and no change of sign"
_BETWEEN = ".."


def ends_of(rate: Rate) -> tuple[float, float]:
    """First and last value of a rate.

    >>> ends_of(3e-4), ends_of((3e-4, 0.0, "cosine"))
    ((0.0003, 0.0003), (0.0003, 0.0))
    """
    return (rate[0], rate[1]) if isinstance(rate, (tuple, list)) else (rate, rate)


def first_of(rate: Rate) -> float:
    """Value of a rate at the start of a run."""
    return ends_of(rate)[0]


def shape_of(rate: Rate) -> Shape:
    """Course of a rate.

    >>> shape_of((1.0, 0.0)), shape_of((1.0, 0.0, "cosine"))
    ('linear', 'cosine')
    """
    return rate[2] if isinstance(rate, (tuple, list)) and len(rate) == 3 else "linear"


def parse_rate(text: str, number: Callable[[str], float]) -> Rate:
    """Read ``0.1``, ``0.1..0`` or ``0.1..0:cosine``; ``number`` reads each number.

    >>> parse_rate("3e-4", float), parse_rate("3e-4..0", float), parse_rate("1..-1:cosine", float)
    (0.0003, (0.0003, 0.0), (1.0, -1.0, 'cosine'))
    """
    first, between, rest = text.partition(_BETWEEN)
    if not between:
        return number(text)
    last, colon, shape = rest.partition(":")
    ends = number(first), number(last)
    if not colon:
        return ends
    if shape not in COURSES:
        raise ValueError(text)
    return (*ends, shape)


def rate_text(rate: Rate) -> str:
    """Write a rate as ``parse_rate`` reads it.

    >>> rate_text((0.0003, 0.0, "cosine"))
    '0.0003..0.0:cosine'
    """
    if not isinstance(rate, (tuple, list)):
        return str(rate)
    ends, shape = _BETWEEN.join(map(str, rate[:2])), rate[2:]
    return ":".join([ends, *map(str, shape)])


def rate_fits(rate: Any, first: Callable[[Any], bool], last: Callable[[Any], bool]) -> bool:
    """True if ``first`` takes the first number or the only one, and ``last`` the last one."""
    if not isinstance(rate, (tuple, list)):
        return first(rate)
    if len(rate) not in (2, 3) or not (first(rate[0]) and last(rate[1])):
        return False
    shape = (*rate, "linear")[2]
    # Powers of a quotient need two numbers of one sign.
    return shape in get_args(Shape) and (shape != "exponential" or rate[0] * rate[1] > 0)
