"""Texts into values."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, Optional

import pytest

from torchrl_elegant.config.text import nearest, parse_value, type_name


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
    found = parse_value(text, annotation)
    assert found == value
    assert type(found) is type(value)


@pytest.mark.parametrize(
    ("text", "annotation", "expected"),
    [
        ("1.5", int, "an integer"),
        ("x", int, "an integer"),
        ("1e400", int, "an integer"),
        ("nan", float, "a number"),
        ("1", bool, "true or false"),
        ("x", int | None, "an integer or none"),
        ("1,2,3", tuple[int, int], "2 values"),
        ("1,x", tuple[int, ...], "an integer"),
        ("asinc", Literal["sync", "async"], "did you mean `async`"),
        ("__import__('os')", int, "an integer"),
    ],
)
def test_error_names_what_was_expected(text, annotation, expected):
    with pytest.raises(ValueError, match=expected):
        parse_value(text, annotation)


def test_code_stays_text():
    assert parse_value("__import__('os').getcwd()", Any) == "__import__('os').getcwd()"


def test_unknown_type_is_the_developers_error():
    with pytest.raises(TypeError, match="no text form"):
        parse_value("x", bytes)


def test_type_names():
    assert type_name(int | None) == "int | none"
    assert type_name(tuple[float, float]) == "float,float"
    assert type_name(Mapping[str, Any]) == "name=value"


def test_nearest():
    assert nearest("Learning_Rate", ["learning_rate"]) == "did you mean `learning_rate`?"
    assert nearest("zzz", ["b", "a"]) == "choose from a, b"
    assert nearest("zzz", map(str, range(20))) == "see --help"
