"""Origin of exceptions: a wrong option is told in a line, a bug keeps its traceback."""

from __future__ import annotations

import sys
import sysconfig
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType, TracebackType

from torchrl_elegant.config.text import UsageError

_PACKAGE = __name__.partition(".")[0]
_INSTALLED = tuple({sysconfig.get_paths()[kind] for kind in ("purelib", "platlib")})


def raised_in(error: BaseException) -> str:
    """Name of the module in which ``error`` was raised, as far as it is written in Python.

    >>> try:
    ...     int("x")
    ... except ValueError as error:
    ...     raised_in(error) == __name__
    True
    """
    frames = _frames(error.__traceback__)
    return _module(frames[-1]) if frames else ""


def is_users_own(error: BaseException) -> bool:
    """True if ``error`` comes from code that is neither ours nor an installed package's.

    Such code is an environment or a network that somebody is writing: the error is theirs to mend,
    and its traceback shows where. An error that our own checks raise is a wrong value, whoever
    calls them.
    """
    frames = _frames(error.__traceback__)
    return bool(frames) and not _is_ours(frames[-1]) and any(map(_is_theirs, frames))


@contextmanager
def mistakes_are_told() -> Iterator[None]:
    """While something is set up, a wrong value is a wrong option: one clear line for commands.

    An error in an environment or a network that somebody is writing keeps its traceback.

    >>> with mistakes_are_told():
    ...     int("x")
    Traceback (most recent call last):
    torchrl_elegant.config.text.UsageError: invalid literal for int() with base 10: 'x'
    """
    try:
        yield
    except (ValueError, TypeError, ImportError) as error:
        if isinstance(error, UsageError) or is_users_own(error):
            raise
        raise UsageError(str(error)) from error


def place(error: BaseException) -> str:
    """File and line where ``error`` was raised."""
    last = traceback.extract_tb(error.__traceback__)[-1]
    return f"{last.filename}, line {last.lineno}"


def _frames(trace: TracebackType | None) -> list[FrameType]:
    return [frame for frame, _ in traceback.walk_tb(trace)]


def _module(frame: FrameType) -> str:
    return str(frame.f_globals.get("__name__", ""))


def _is_ours(frame: FrameType) -> bool:
    return _module(frame).partition(".")[0] == _PACKAGE


def _is_theirs(frame: FrameType) -> bool:
    if _is_ours(frame) or _module(frame).partition(".")[0] in sys.stdlib_module_names:
        return False
    return not frame.f_code.co_filename.startswith(_INSTALLED)
