"""Families: what they refuse before anything is made, and what they hand to workers."""

from __future__ import annotations

from dataclasses import dataclass
from unittest.mock import Mock

import pytest

from torchrl_elegant.algorithms import ALGORITHMS, SACConfig, register
from torchrl_elegant.config.text import UsageError
from torchrl_elegant.trainers import off_policy
from torchrl_elegant.trainers.environments import Environments
from torchrl_elegant.trainers.family import family_of
from torchrl_elegant.trainers.ranks import Ranks
from torchrl_elegant.trainers.run_config import RunConfig


@pytest.mark.parametrize(
    ("frames", "warmup", "rate"), [(100, 100, 1.0), (100, 99, 0.5), (100, 1_000, 1.0)]
)
def test_a_run_without_an_update_is_refused(frames, warmup, rate):
    config = SACConfig(warmup=warmup, updates_per_frame=rate)
    with pytest.raises(ValueError, match="no update would ever be made"):
        family_of(RunConfig(total_frames=frames, logger="none"), config, Ranks())


def test_a_run_with_a_single_update_is_allowed():
    run = RunConfig(total_frames=110, logger="none")
    family_of(run, SACConfig(warmup=100, updates_per_frame=0.1), Ranks())


def test_a_class_that_is_not_registered_is_refused():
    @dataclass(frozen=True, kw_only=True)
    class MineConfig(SACConfig):
        pass

    run = RunConfig(total_frames=2_000, logger="none")
    with pytest.raises(UsageError, match=r"got MineConfig; decorate it with @register\('mine'\)"):
        family_of(run, MineConfig(), Ranks())
    family_of(run, SACConfig(), Ranks())
    try:
        family_of(run, register("mine")(MineConfig)(), Ranks())
    finally:
        del ALGORITHMS["mine"]


def test_workers_count_random_frames_from_the_start_of_the_run(monkeypatch):
    given = {}

    class Workers:
        def __init__(self, *args, **kwargs):
            given.update(kwargs)

    monkeypatch.setattr(off_policy, "AsyncCollector", Workers)
    run = RunConfig(
        env="faults.fault_envs:point", frames_per_batch=4, total_frames=100, collector="async"
    )
    family = family_of(run, SACConfig(num_cells=(8,), batch_size=8, warmup=22), Ranks())
    environments = Environments(family.run, workers=family.has_workers)
    learner = family.learner(family.share.assemble(environments.specs()))
    learner.ledger.frames = 10
    family.source(environments, learner, Mock())
    environments.close()
    assert (given["frames_done"], given["init_random_frames"]) == (10, 22)
