"""Origin of exceptions."""

from __future__ import annotations

import functools
import json

import gymnasium
import numpy as np
import pytest

from torchrl_elegant.config.blame import is_users_own, place, raised_in
from torchrl_elegant.config.options import check
from torchrl_elegant.config.text import UsageError
from torchrl_elegant.envs import make_env


def mine():
    raise ValueError("mine")


def through_numpy():
    np.zeros(3).reshape(2)


def through_ours():
    check(False, "x", "be right", 1)


def caught(call) -> Exception:
    # Called by a frame of the library, as an environment is.
    try:
        functools.partial(call)()
    except Exception as error:
        # What this file itself adds to the traceback belongs to the caller.
        return error.with_traceback(error.__traceback__.tb_next)
    raise AssertionError("nothing was raised")


@pytest.mark.parametrize("call", [mine, through_numpy, lambda: json.loads("{")])
def test_what_a_user_writes_is_the_users(call):
    assert is_users_own(caught(call))


def test_our_own_checks_are_not_whoever_calls_them():
    error = caught(through_ours)
    assert not is_users_own(error)
    assert raised_in(error) == "torchrl_elegant.config.options"
    assert "options.py, line" in place(error)


@pytest.mark.parametrize(
    "call",
    [
        functools.partial(make_env, "NoSuchEnv-v0"),
        functools.partial(make_env, "Pendulum-v1", env_kwargs={"lenth": 3}),
        functools.partial(gymnasium.make, "NoSuchEnv-v0"),
        functools.partial(json.loads, "{"),
    ],
)
def test_installed_packages_are_not(call):
    assert not is_users_own(caught(call))


def test_an_error_that_was_never_raised_has_no_owner():
    assert not is_users_own(UsageError("x"))
    assert raised_in(UsageError("x")) == ""
