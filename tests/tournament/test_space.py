"""Search spaces: what is drawn, how it moves, and whose it is."""

from __future__ import annotations

import numpy as np
import pytest

from torchrl_elegant.algorithms import A2CConfig, PPOConfig, SACConfig
from torchrl_elegant.config.text import UsageError
from torchrl_elegant.tournament import Choice, Integer, LogUniform, Uniform
from torchrl_elegant.tournament.space import Space, configured, plain_space, spaces_of

RNG = np.random.default_rng


def test_numbers_are_drawn_as_they_say():
    rng = RNG(0)
    rates = np.array([LogUniform(1e-5, 1e-1).sample(rng) for _ in range(4_000)])
    assert rates.min() >= 1e-5
    assert rates.max() <= 1e-1
    # As many in each decade.
    counts, _ = np.histogram(np.log10(rates), bins=4, range=(-5, -1))
    assert counts.min() > 900
    evenly = np.array([Uniform(1e-5, 1e-1).sample(rng) for _ in range(1_000)])
    assert (evenly < 1e-2).mean() < 0.15
    whole = {Integer(3, 5).sample(rng) for _ in range(100)}
    assert whole == {3, 4, 5}
    assert all(type(value) is int for value in whole)
    assert {Choice(("a", "b")).sample(rng) for _ in range(50)} == {"a", "b"}


def test_numbers_move_up_or_down_within_their_bounds():
    rng = RNG(0)
    near = {round(Uniform(0.1, 2.0).moved(1.0, 1.25, rng), 6) for _ in range(50)}
    assert near == {0.8, 1.25}
    assert {Uniform(0.9, 1.1).moved(1.0, 1.25, rng) for _ in range(50)} == {0.9, 1.1}
    # A small integer moves by one at least.
    assert {Integer(1, 9).moved(2, 1.2, rng) for _ in range(50)} == {1, 3}
    assert {Integer(1, 9).moved(1, 1.2, rng) for _ in range(50)} == {1, 2}
    assert {Integer(1, 99).moved(50, 1.2, rng) for _ in range(50)} == {42, 60}
    assert {Choice(("a", "b")).moved("a", 1.2, rng) for _ in range(20)} == {"a"}


@pytest.mark.parametrize("resample", [0.0, 1.0])
def test_exploring_moves_all_or_draws_all_anew_but_for_what_forms_networks(resample):
    space = Space(
        PPOConfig(),
        {"lr": LogUniform(1e-5, 1e-2), "num_cells": [(8,), (16,)], "activation": "tanh,relu"},
    )
    rng = RNG(0)
    values = {"lr": 1e-3, "num_cells": (8,), "activation": "relu"}
    found = [
        space.explored(values, resample=resample, factor=1.2, rng=rng)["lr"] for _ in range(30)
    ]
    if resample:
        assert len(set(found)) == 30
    else:
        assert {round(value, 9) for value in found} == {round(1e-3 / 1.2, 9), 1.2e-3}
    forms = space.explored(values, resample=1.0, factor=1.2, rng=rng)
    assert (forms["num_cells"], forms["activation"]) == ((8,), "relu")
    assert values == {"lr": 1e-3, "num_cells": (8,), "activation": "relu"}


def test_an_option_belongs_to_those_that_have_it():
    configs = [PPOConfig(), SACConfig(), A2CConfig()]
    space = {"lr": "log:1e-5..1e-2", "gamma": "uniform:0.9..1", "sac": {"tau": "0.01,0.02"}}
    ppo, sac, a2c = spaces_of(configs, space)
    assert [sorted(one.parts) for one in (ppo, sac, a2c)] == [
        ["gamma", "lr"],
        ["gamma", "tau"],
        ["gamma", "lr"],
    ]
    assert sac.parts["tau"] == Choice((0.01, 0.02))


def test_usual_rates_are_those_that_a_configuration_uses():
    usual, fixed, moving = spaces_of(
        [SACConfig(), SACConfig(temperature="fixed"), PPOConfig(lr=(3e-4, 0.0))], {}
    )
    assert sorted(usual.parts) == ["actor_lr", "alpha_lr", "critic_lr"]
    assert sorted(fixed.parts) == ["actor_lr", "critic_lr"]
    assert moving.parts == {}
    assert usual.parts["actor_lr"] == LogUniform(3e-4 / 10, 3e-4 * 10)


def test_values_reach_groups():
    made = configured(SACConfig(), {"hterm.horizon": 4, "num_cells": [8, 8]})
    assert made.hterm is not None
    assert made.hterm.horizon == 4
    assert made.num_cells == (8, 8)
    with pytest.raises(UsageError, match=r"unknown option `space.hterm.horizn`|horizn"):
        Space(SACConfig(), {"hterm.horizn": "int:1..4"})


@pytest.mark.parametrize(
    "value", ["log:0..1", "uniform:2..1", "int:4..4", ["tanh"]], ids=["log", "bounds", "int", "one"]
)
def test_a_refusal_names_the_option(value):
    word = "activation" if isinstance(value, list) else "epochs" if value[0] == "i" else "lr"
    with pytest.raises(UsageError, match=f"^`space.{word}` must "):
        Space(PPOConfig(), {word: value})


def test_bounds_that_come_from_numpy_are_stored_as_numbers():
    low, high = np.float64(1e-5), np.float64(1e-2)
    assert plain_space({"lr": LogUniform(low, high)}) == {"lr": "log:1e-05..0.01"}
    assert plain_space({"epochs": Integer(np.int64(1), np.int64(4))}) == {"epochs": "int:1..4"}
