"""From configurations to the objects of a run."""

from __future__ import annotations

import importlib
from dataclasses import dataclass

import pytest
import torch
from tensordict.nn import TensorDictModule

from torchrl_elegant.algorithms import ALGORITHMS, SACConfig, register
from torchrl_elegant.config.text import UsageError
from torchrl_elegant.data import make_buffer
from torchrl_elegant.runs.collection import build_source
from torchrl_elegant.runs.plan import Counters, free_frames, planned, seed_of, set_threads
from torchrl_elegant.runs.setup import build_evaluator, build_learner, env_factory, their_mistake
from torchrl_elegant.trainers.learner import Learner
from torchrl_elegant.trainers.ranks import Ranks
from torchrl_elegant.trainers.run_config import RunConfig


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
    with pytest.raises(ValueError, match="no update would ever be made"):
        planned(RunConfig(total_frames=frames, logger="none"), config)


def test_a_run_with_a_single_update_is_allowed():
    planned(
        RunConfig(total_frames=110, logger="none"), SACConfig(warmup=100, updates_per_frame=0.1)
    )


def test_what_an_environment_raises_is_told_with_its_place():
    with pytest.raises(UsageError, match=r"KeyError from 'mine:make': 'x' \(.*test_setup.py, line"):  # noqa: SIM117
        with their_mistake(RunConfig(env="mine:make")):
            {}["x"]


POINT = "faults.fault_envs:point"


def test_a_class_that_is_not_registered_is_refused():
    @dataclass(frozen=True, kw_only=True)
    class MineConfig(SACConfig):
        pass

    run = RunConfig(total_frames=2_000, logger="none")
    with pytest.raises(UsageError, match=r"got MineConfig; decorate it with @register\('mine'\)"):
        planned(run, MineConfig())
    planned(run, SACConfig())
    try:
        planned(run, register("mine")(MineConfig)())
    finally:
        del ALGORITHMS["mine"]


@pytest.mark.parametrize("with_spec", [False, True])
def test_a_policy_that_could_not_be_stored_is_refused_at_once(monkeypatch, with_spec):
    class Mine(TensorDictModule):
        pass

    if with_spec:
        Mine.spec_dict = lambda self: {}
    build = SACConfig.build

    def other(self, env):
        parts = build(self, env)
        parts.policy = Mine(torch.nn.Linear(2, 1), in_keys=["observation"], out_keys=["action"])
        return parts

    monkeypatch.setattr(SACConfig, "build", other)
    run = RunConfig(env=POINT)
    with pytest.raises(UsageError, match=r"policy\.BUILDERS.*spec_dict.*got Mine"):
        build_learner(run, SACConfig(num_cells=(8,)), env_factory(run, POINT), Ranks())


SMALL = SACConfig(num_cells=(8,), batch_size=8, warmup=22)


def source_at(frames: int, **changes):
    run = RunConfig(env=POINT, frames_per_batch=4, total_frames=100, **changes)
    make = env_factory(run, POINT)
    learner, _ = build_learner(run, SMALL, make, Ranks())
    learner.loss.actor_network_params.apply_(lambda weight: weight.data.fill_(torch.nan))
    buffer = make_buffer(size=100)
    return build_source(run, SMALL, make, learner, buffer, Counters(frames=frames), Ranks()), buffer


@pytest.mark.parametrize(("frames", "random"), [(0, 24), (10, 12), (21, 4), (22, 0), (60, 0)])
def test_random_actions_end_with_the_warmup_of_the_whole_run(frames, random):
    # The policy gives no numbers: what is a number was drawn.
    source, buffer = source_at(frames)
    with pytest.raises(FloatingPointError, match=f"at frame {frames + random + 1};"):
        for _ in source:
            pass
    source.shutdown()
    assert len(buffer) == random


def test_workers_count_random_frames_from_the_start_of_the_run(monkeypatch):
    given = {}

    class Workers:
        def __init__(self, *args, **kwargs):
            given.update(kwargs)

    module = importlib.import_module("torchrl_elegant.runs.collection")
    monkeypatch.setattr(module, "AsyncCollector", Workers)
    source_at(10, collector="async")
    assert (given["frames_done"], given["init_random_frames"]) == (10, SMALL.warmup)


def test_evaluation_after_a_resume_has_other_seeds():
    seeds = []

    def make(*args, seed, **kwargs):
        seeds[-1].add(seed)
        return env_factory(run, POINT)(*args, seed=seed, **kwargs)

    run = RunConfig(env=POINT)
    learner = Learner(SMALL.build(env_factory(run, POINT)(1)))
    for frames in (0, 0, 60):
        seeds.append(set())
        build_evaluator(run, make, learner, Counters(frames=frames)).shutdown()
    assert seeds[0] == seeds[1] != seeds[2]
    assert all(len(one) == 1 for one in seeds)
