"""Refusal of environments with the older Gym interface, which would be taken apart in silence.

There `reset()` returns an observation alone and `step()` four values. An observation of two entries
looks like Gymnasium's `(observation, info)`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from torchrl_elegant.config.blame import raised_in
from torchrl_elegant.config.text import UsageError

_WRAP = "or wrap it: shimmy.GymV21CompatibilityV0(env=...) of the package shimmy takes older ones"
_CALLED = re.compile(r"reset\(\) (got an unexpected keyword argument|takes \d+ positional arg)")
_UNPACKED = re.compile(r"unpack \(expected 5|unpack non-iterable")


def first_observation(result: Any, env: Any) -> Any:
    """The observation of what the `reset` of `env` returned.

    >>> first_observation(([1.0, 2.0], {}), None)
    [1.0, 2.0]
    """
    if isinstance(result, tuple) and len(result) == 2 and isinstance(result[1], Mapping):
        return result[0]
    raise UsageError(
        f"`reset` of {_name(env)} must return (observation, info) as in Gymnasium, got "
        f"`{type(result).__name__}`; return observation, {{}} {_WRAP}"
    )


@contextmanager
def gymnasium_reset(env: Any) -> Iterator[None]:
    """Refuse an environment whose `reset` takes no seed, as in the older interface."""
    try:
        yield
    except TypeError as error:
        if not (_CALLED.search(str(error)) and _at_the_border(error)):
            raise
        raise UsageError(
            f"`reset` of {_name(env)} must take seed and options by name as in Gymnasium, got "
            f"{error}; write def reset(self, *, seed=None, options=None), {_WRAP}"
        ) from error


def refuse_short_step(error: Exception, env: Any) -> None:
    """Raise a clear error in place of `error` if a step did not return five values."""
    if _UNPACKED.search(str(error)) and _at_the_border(error):
        raise UsageError(
            f"`step` of {_name(env)} must return (observation, reward, terminated, truncated, "
            f"info) as in Gymnasium, got {_count(str(error))}; tell terminated from truncated, "
            f"{_WRAP}"
        ) from error


def is_of_older_gym(env: Any) -> bool:
    """True for an instance of the package `gym`, which Gymnasium has replaced."""
    return any(kind.__module__.partition(".")[0] == "gym" for kind in type(env).__mro__)


def _at_the_border(error: Exception) -> bool:
    """True unless the error was raised inside an environment, about values of its own."""
    return raised_in(error).partition(".")[0] in ("gymnasium", __name__.partition(".")[0])


def _count(text: str) -> str:
    found = re.search(r"got (\d+)", text)
    if found:
        return f"{found[1]} values"
    return "more than five" if text.startswith("too many") else text


def _name(env: Any) -> str:
    return type(env.unwrapped).__name__
