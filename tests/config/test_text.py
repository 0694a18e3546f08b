"""Texts into values."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, Optional

import pytest

from torchrl_elegant.config.options import Option, check_options, option, options_of
from torchrl_elegant.config.rates import Rate
from torchrl_elegant.config.text import (
    Bounds,
    UsageError,
    fits,
    nearest,
    parse_text,
    requirement,
)


@pytest.mark.parametrize(
    ("text", "annotation", "value"),
    [
        ("1_000", int, 1000),
        ("1e6", int, 1_000_000),
        ("-3", int, -3),
        ("3e-4", float, 3e-4),
        ("2", float, 2.0),
        ("True", bool, True),
        ("false", bool, False),
        ("none", int | None, None),
        ("NULL", Optional[float], None),  # noqa: UP045
        ("5", int | None, 5),
        ("none", str | None, None),
        ("nonesuch", str | None, "nonesuch"),
        ("256,256", tuple[int, ...], (256, 256)),
        ("(256, 256)", tuple[int, ...], (256, 256)),
        ("[64,]", tuple[int, ...], (64,)),
        ("()", tuple[int, ...], ()),
        ("0.9,0.999", tuple[float, float], (0.9, 0.999)),
        ("async", Literal["sync", "async"], "async"),
        ("2", Literal[1, 2], 2),
        ("0.5", float | Literal["auto"], 0.5),
        ("auto", float | Literal["auto"], "auto"),
        ("9.8", Any, 9.8),
        ("1.0", Any, 1.0),
        ("7", Any, 7),
        ("true", Any, True),
        ("null", Any, None),
        ("hard", Any, "hard"),
    ],
)
def test_value(text, annotation, value):
    found = parse_text(text, annotation)
    assert found == value
    assert type(found) is type(value)


@pytest.mark.parametrize(
    ("text", "annotation", "expected"),
    [
        ("1.5", int, "an integer"),
        ("x", int, "an integer"),
        ("1e400", int, "an integer"),
        ("nan", float, "a finite number"),
        ("1", bool, "true or false"),
        ("x", int | None, "an integer, or none"),
        ("1,2,3", tuple[int, int], "2 values"),
        ("1,x", tuple[int, ...], "an integer"),
        ("asinc", Literal["sync", "async"], "did you mean `async`"),
        ("__import__('os')", int, "an integer"),
    ],
)
def test_error_names_what_was_expected(text, annotation, expected):
    with pytest.raises(ValueError, match=expected):
        parse_text(text, annotation)


def test_code_stays_text():
    assert parse_text("__import__('os').getcwd()", Any) == "__import__('os').getcwd()"


def test_unknown_type_is_the_developers_error():
    with pytest.raises(TypeError, match="no text form"):
        parse_text("x", bytes)


@pytest.mark.parametrize(
    ("annotation", "bounds", "expected"),
    [
        (int | None, {}, "an integer, or none"),
        (int, {"low": 1}, "an integer of 1 or more"),
        (int, {"high": 9}, "an integer of 9 or less"),
        (float, {"above": 0}, "a finite number above 0"),
        (float, {"below": 1}, "a finite number below 1"),
        (float, {"low": 0, "below": 1}, "a number in [0, 1)"),
        (float | None, {"above": 0, "high": 1}, "a number in (0, 1], or none"),
        (int, {"low": 1, "below": 2**31}, "an integer in [1, 2147483648)"),
        (tuple[float, float], {}, "2 values: a finite number, a finite number"),
        (Literal["a", "b"] | None, {}, "one of a, b, or none"),
        (float | Literal["auto"], {}, "a finite number, or auto"),
        (Bounds | None, {}, "Bounds(...), or none"),
        (bool, {}, "true or false"),
    ],
)
def test_a_requirement_is_told_in_words(annotation, bounds, expected):
    assert requirement(annotation, Bounds(**bounds)) == expected


@pytest.mark.parametrize(
    ("bounds", "inside", "outside"),
    [
        ({}, [-1e300, 0, 1e300], [math.inf, -math.inf, math.nan]),
        ({"low": 0}, [0, 1e300], [-1e-300, math.inf, math.nan]),
        ({"above": 0}, [1e-300, 1e300], [0, -1, math.inf]),
        ({"low": 0, "high": 1}, [0, 0.5, 1], [-0.1, 1.1, math.nan]),
        ({"above": 0, "below": 1}, [0.5], [0, 1]),
        ({"high": math.inf}, [math.inf, 0], [-math.inf, math.nan]),
    ],
)
def test_bounds_hold_what_they_name_and_finite_numbers_else(bounds, inside, outside):
    for value in inside:
        assert fits(value, float | None, Bounds(**bounds))
    for value in outside:
        assert not fits(value, float | None, Bounds(**bounds))
    assert fits(None, float | None, Bounds(**bounds))


def test_bounds_of_a_list_hold_for_each_and_it_is_not_empty():
    assert fits((1, 2), tuple[int, ...], Bounds(low=1))
    for wrong in ((), (1, 0), (1, 2.0), (True,), 3):
        assert not fits(wrong, tuple[int, ...], Bounds(low=1))
    assert fits((0.5, 2), tuple[float, float])
    assert not fits((0.5,), tuple[float, float])


@dataclass(frozen=True, kw_only=True)
class Parent:
    size: int = option(2, "how large", topic="shape", low=1)
    rate: float = option(0.5, "how fast", above=0)
    names: Mapping[str, Any] = option({}, "anything")


@dataclass(frozen=True, kw_only=True)
class Other(Parent):
    """Takes the place of nothing: its sibling's help must not fall back to the parent's."""


@dataclass(frozen=True, kw_only=True)
class Slow(Parent):
    rate: float = option(0.1, "how slow")


@dataclass(frozen=True, kw_only=True)
class Child(Other, Slow):
    size: int = 3
    rate: float = 0.1
    more: bool = option(False, "more of it", topic="extras")

    def __post_init__(self):
        check_options(self)


def test_a_child_keeps_help_bounds_and_topic_that_it_does_not_change():
    size, rate, names, more = options_of(Child).values()
    assert (size.default, size.help, size.topic, size.bounds) == (
        3,
        "how large",
        "shape",
        Bounds(low=1),
    )
    assert (rate.default, rate.help, rate.topic, rate.bounds) == (
        0.1,
        "how slow",
        "shape",
        Bounds(above=0),
    )
    assert (names.default, names.topic, names.is_mapping, more.topic) == (
        {},
        "shape",
        True,
        "extras",
    )
    for wrong in ({"size": 0}, {"rate": 0.0}, {"more": 1}):
        with pytest.raises(ValueError, match=f"^`{next(iter(wrong))}` must be .*, got `"):
            Child(**wrong)


def test_a_text_in_place_of_a_number_is_quoted():
    with pytest.raises(ValueError, match=r"`rate` must be a finite number above 0, got `'0\.5'`"):
        Child(rate="0.5")


def test_nearest():
    assert nearest("Learning_Rate", ["learning_rate"]) == "did you mean `learning_rate`?"
    assert nearest("zzz", ["b", "a"]) == "choose from a, b"
    assert nearest("zzz", map(str, range(20))) == "see --help"
    # A member of a group that was written without its group.
    assert nearest("stack", ["stick", "pixels.stack"]) == "did you mean `pixels.stack`?"


@pytest.mark.parametrize(
    ("value", "annotation", "limit"),
    [
        (2**63, int, "below 2**63"),
        (-(2**63), int, "below 2**63"),
        ((8, 10**30), tuple[int, ...], "below 2**63"),
        (1e39, float, "below 1e+38"),
        (10**40, float, "below 2**63"),
    ],
)
def test_a_number_beyond_every_computers_is_refused(value, annotation, limit):
    with pytest.raises(ValueError, match=re.escape(limit)):
        Option(name="x", annotation=annotation, default=1).check(value)


def test_the_largest_numbers_are_taken():
    for value, annotation in ((2**63 - 1, int), (1e38, float), (-math.inf, float)):
        low = Bounds(low=-math.inf)
        Option(name="x", annotation=annotation, default=1, bounds=low).check(value)


@pytest.mark.parametrize("text", ["\uff11\uff12", "\u00b2", "1\u00a0", "\u0967"])
@pytest.mark.parametrize("annotation", [int, float, int | None, tuple[int, ...], Rate])
def test_digits_of_other_scripts_are_no_numbers(text, annotation):
    with pytest.raises(ValueError, match=r"number|integer"):
        parse_text(text, annotation)


def test_digits_of_other_scripts_are_texts():
    assert parse_text("\uff11", Any) == "\uff11"


def test_a_long_value_is_cut_in_its_error():
    with pytest.raises(UsageError) as error:
        Option(name="x", annotation=int, default=1).parse("9" * 5000 + "x")
    assert len(str(error.value)) < 200
