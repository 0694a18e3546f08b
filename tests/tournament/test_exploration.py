"""PB2: numbers are chosen by what earlier pods have gained with them."""

from __future__ import annotations

import json
import math
import sys

import numpy as np
import pytest
from tournament_toys import Toy, check_whole, history, play, rows, toy_tournament

from torchrl_elegant import DQNConfig, PPOConfig
from torchrl_elegant.tournament import TournamentConfig, tournament
from torchrl_elegant.tournament.exploration import upper_bounds
from torchrl_elegant.tournament.space import Integer, LogUniform, Space, Uniform
from torchrl_elegant.tournament.store import Store

PB2 = {"explore": "pb2", "population": 8, "budget": 5_600, "recheck": False}


def test_places_lead_to_values_and_back():
    rate, share, count = LogUniform(1e-5, 1e-1), Uniform(0.5, 1.5), Integer(2, 12)
    assert rate.at(0.5) == pytest.approx(1e-3)
    assert [share.at(place) for place in (0.0, 0.25, 1.0)] == [0.5, 0.75, 1.5]
    assert [count.at(place) for place in (0.0, 0.04, 0.06, 0.5, 1.0)] == [2, 2, 3, 7, 12]
    assert type(count.at(0.3)) is int
    for part in (rate, share, count):
        assert (part.at(0.0), part.at(1.0)) == (part.low, part.high)
        for place in (0.0, 0.3, 1.0):
            assert part.place(part.at(place)) == pytest.approx(place)


def test_numbers_that_form_networks_and_choices_are_no_numbers_to_choose():
    space = {"lr": "log:1e-4..1e-2", "activation": "tanh,relu", "epochs": "int:2..9"}
    assert sorted(Space(PPOConfig(), space).numbers()) == ["epochs", "lr"]


def test_bounds_are_high_where_gains_were_and_where_nobody_has_been():
    rng = np.random.default_rng(0)
    points = np.column_stack([rng.uniform(0.0, 0.6, 30), np.full(30, 1.0)])
    gains = np.exp(-((points[:, 0] - 0.3) ** 2) / 0.02)
    grid = np.column_stack([np.linspace(0, 1, 101), np.full(101, 2.0)])
    none = np.empty((0, 2))
    bounds = upper_bounds(points, gains, none, grid)
    assert bounds[30] > bounds[10] + 0.5
    assert bounds[100] > bounds[55]
    # A pod under way at a place makes it less worth to go there too, and changes little elsewhere.
    there = np.array([[1.0, 2.0]])
    fewer = upper_bounds(points, gains, there, grid)
    assert fewer[100] < bounds[100] - 0.3
    assert abs(fewer[30] - bounds[30]) < 0.1


def test_old_gains_count_for_less():
    """The best place has moved from 0.2 to 0.8."""
    rng = np.random.default_rng(0)
    places, times = rng.uniform(0, 1, 80), np.repeat(np.arange(1, 9), 10).astype(float)
    best = np.where(times <= 4, 0.2, 0.8)
    gains = np.exp(-((places - best) ** 2) / 0.02)
    grid = np.column_stack([np.linspace(0, 1, 101), np.full(101, 9.0)])
    bounds = upper_bounds(np.column_stack([places, times]), gains, np.empty((0, 2)), grid)
    assert 0.7 < grid[int(np.argmax(bounds)), 0] < 0.9


def distances(folder) -> list[float]:
    """Decades between the best rate and those of members that were replaced late."""
    found = rows(folder, "SELECT options FROM pod WHERE operation = 'exploit' AND depth > 4")
    return [abs(math.log10(json.loads(options)["lr"]) + 3) for (options,) in found]


def test_choices_come_near_the_best_value_and_nearer_than_perturbed_ones(tmp_path):
    found = {"pb2": [], "perturb": []}
    for seed in range(4):
        for name in found:
            folder = tmp_path / f"{name}{seed}"
            play(folder, **{**PB2, "explore": name, "seed": seed})
            check_whole(folder)
            found[name] += distances(folder)
    near, far = (np.median(found[name]) for name in ("pb2", "perturb"))
    assert near < 0.1
    assert near < 0.5 * far
    for (options,) in rows(tmp_path / "pb20", "SELECT options FROM pod"):
        assert 1e-5 <= json.loads(options)["lr"] <= 1e-1


def test_the_same_seed_gives_the_same_choices_and_a_stop_changes_none(tmp_path):
    class Stopping(Toy):
        def __call__(self, order, link):
            if order.pod == 30 and order.attempt == 1:
                (tmp_path / "run" / "stop").touch()
            return super().__call__(order, link)

    plan = {**PB2, "budget": 4_800}
    work = Stopping(Store(tmp_path / "run" / "checkpoints"))
    play(tmp_path / "run", work=work, **plan)
    play(tmp_path / "run", **plan)
    play(tmp_path / "whole", **plan)
    play(tmp_path / "other", **plan, seed=1)
    assert history(tmp_path / "run") == history(tmp_path / "whole")
    assert history(tmp_path / "run") != history(tmp_path / "other")
    # A killed pod is in the queue where it was at work: it is under way all the same.
    made = toy_tournament(tmp_path / "run", **plan)
    with made.board:
        bandit, parent = made.generator.exploration, made.board.pod(40)
        chosen = []
        for state in ("running", "queued"):
            with made.board.transaction():
                made.board.set_pod(41, state=state)
            rng = np.random.default_rng(1)
            chosen.append(bandit.explored(made.generator.spaces[0], parent, rng))
    assert chosen[0] == chosen[1]


def test_without_the_extra_the_option_is_refused(monkeypatch):
    assert TournamentConfig(explore="pb2").explore == "pb2"
    monkeypatch.setitem(sys.modules, "sklearn", None)
    told = (
        r"`explore` must be perturb without scikit-learn, got `pb2`; "
        r"pip install torchrl_elegant\[pb2\], or set explore=perturb"
    )
    with pytest.raises(ValueError, match=told):
        TournamentConfig(explore="pb2")
    TournamentConfig()


def test_a_space_without_numbers_is_refused(tmp_path):
    told = "`explore` must be perturb where no number is searched, got `pb2`; add one to space"
    with pytest.raises(ValueError, match=told):
        tournament(
            DQNConfig(num_cells=(8,), batch_size=4, warmup=20),
            "CartPole-v1",
            explore="pb2",
            space={"activation": ["tanh", "relu"], "num_cells": [[8], [9]]},
            folder=str(tmp_path / "run"),
            frames_per_batch=100,
            executor="inline",
        )
    assert not (tmp_path / "run").exists()
