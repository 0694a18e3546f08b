"""From configurations to the objects of a run."""

from __future__ import annotations

import pytest
import torch

from torchrl_elegant.algorithms import SACConfig
from torchrl_elegant.trainers.config import RunConfig
from torchrl_elegant.trainers.plan import (
    Counters,
    check_plan,
    free_frames,
    seed_of,
    set_threads,
)
from torchrl_elegant.trainers.setup import their_mistake
from torchrl_elegant.trainers.values import UsageError


@pytest.mark.parametrize(
    ("rate", "counters", "free"),
    [
        (1.0, Counters(), 100),
        (0.5, Counters(frames=50), 100),
        (1.0, Counters(frames=300, updates=200), 100),
        (1.0, Counters(frames=300, updates=150, debt=50), 100),  # stopped with updates undone
        (2.0, Counters(frames=300, updates=100), 250),  # the rate was raised
        (0.5, Counters(frames=300, updates=200), -100),  # the rate was lowered
        (1.0, Counters(frames=300, updates=200, refill=200), 300),
        (1.0, Counters(frames=90, refill=90), 180),
        (1.0, Counters(frames=20, refill=20), 100),  # the warm-up is longer than the refill
    ],
)
def test_a_run_owes_what_it_owed_before(rate, counters, free):
    config = SACConfig(warmup=100, updates_per_frame=rate)
    assert free_frames(config, counters) == free
    if counters.updates:
        owed = rate * (counters.frames - free) - counters.updates
        assert owed == counters.debt - rate * counters.refill


def test_seeds_of_different_uses_differ():
    seeds = {seed_of(RunConfig(seed=s), *use) for s in range(4) for use in ((0,), (1,), (2, 0))}
    assert len(seeds) == 12
    assert all(0 <= seed < 2**31 for seed in seeds)


@pytest.mark.parametrize(("cells", "given", "threads"), [((64, 64), 0, 1), ((64, 64), 3, 3)])
def test_narrow_networks_get_one_thread_unless_told_otherwise(cells, given, threads):
    torch.set_num_threads(2)
    set_threads(RunConfig(threads=given), SACConfig(num_cells=cells))
    assert torch.get_num_threads() == threads


def test_wide_networks_keep_the_threads_there_are():
    torch.set_num_threads(2)
    set_threads(RunConfig(), SACConfig(num_cells=(256,)))
    assert torch.get_num_threads() == 2


@pytest.mark.parametrize(
    ("frames", "warmup", "rate"), [(100, 100, 1.0), (100, 99, 0.5), (100, 1_000, 1.0)]
)
def test_a_run_without_an_update_is_refused(frames, warmup, rate):
    config = SACConfig(warmup=warmup, updates_per_frame=rate)
    with pytest.raises(UsageError, match="no update would ever be made"):
        check_plan(RunConfig(total_frames=frames, logger="none"), config)


def test_a_run_with_a_single_update_is_allowed():
    check_plan(
        RunConfig(total_frames=110, logger="none"), SACConfig(warmup=100, updates_per_frame=0.1)
    )


def test_what_an_environment_raises_is_told_with_its_place():
    with pytest.raises(UsageError, match=r"KeyError from 'mine:make': 'x' \(.*test_setup.py, line"):  # noqa: SIM117
        with their_mistake(RunConfig(env="mine:make")):
            {}["x"]
