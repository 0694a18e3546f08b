"""Finished seeds of the study of a tournament's value: kept in its table, by their settings."""

from __future__ import annotations

import math
import sys
from dataclasses import replace
from pathlib import Path

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


sys.path.insert(0, str(BENCHMARKS))
from _value_tasks import Outcome  # noqa: E402
from tournament_value import Study, settings_of  # noqa: E402

FINISHED = Outcome(
    task="cartpole",
    arm="tournament",
    seed=3,
    settings=settings_of("cartpole", "tournament", 2),
    held_out=499.5,
    frames=math.inf,
    curve=((100.0, 10.0), (200.0, 10.0), (300.0, 20.5), (400.0, 20.5), (500.0, 20.5)),
)


def test_a_seed_comes_back_from_the_table_with_its_curve_where_that_rises(tmp_path):
    kept = Study(tmp_path / "table.csv", 2)
    kept.add(FINISHED)
    kept.add(replace(FINISHED, seed=2, frames=300.0, seconds=1.5, whole=2.5, curve=()))
    again = Study(tmp_path / "table.csv", 2)
    assert ("cartpole", "tournament", 3) in again
    first, second = again.outcomes()
    assert (first.seed, first.frames, first.whole, first.curve) == (2, 300.0, 2.5, ())
    assert second.frames == math.inf
    assert math.isnan(second.seconds)
    assert second.curve == ((100.0, 10.0), (300.0, 20.5), (500.0, 20.5))


def test_seeds_of_other_settings_are_left_out_and_told(tmp_path, capsys):
    Study(tmp_path / "table.csv", 2).add(FINISHED)
    others = Study(tmp_path / "table.csv", 3)
    assert ("cartpole", "tournament", 3) not in others
    assert others.outcomes() == []
    assert "1 seeds in " in capsys.readouterr().err
