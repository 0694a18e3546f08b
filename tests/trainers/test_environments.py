"""Environments of a run: their seeds, their number, and mistakes in making them."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from torchrl_elegant.config.text import UsageError
from torchrl_elegant.envs import make_env
from torchrl_elegant.trainers.environments import (
    Environments,
    seed_of,
    their_mistake,
)
from torchrl_elegant.trainers.run_config import RunConfig

sys.path.insert(0, str(Path(__file__).parent))
from lanes import Lanes

POINT = "faults.fault_envs:point"


def test_seeds_of_different_uses_differ():
    seeds = {seed_of(RunConfig(seed=s), *use) for s in range(4) for use in ((0,), (1,), (2, 0))}
    assert len(seeds) == 12
    assert all(0 <= seed < 2**31 for seed in seeds)


def test_what_an_installed_package_raises_is_told_with_its_place(monkeypatch):
    monkeypatch.setattr("torchrl_elegant.trainers.environments.is_users_own", lambda error: False)
    told = r"KeyError from 'mine:make': 'x' \(.*test_environments.py, line"
    with pytest.raises(UsageError, match=told), their_mistake(RunConfig(env="mine:make")):
        {}["x"]


def test_what_code_that_somebody_is_writing_raises_keeps_its_traceback():
    with pytest.raises(KeyError), their_mistake(RunConfig(env="mine:make")):
        {}["x"]


def spied(environments: Environments) -> list[int]:
    """The seeds with which environments are made from now on."""
    seeds, make = [], environments.make

    def spy(*args, seed, **kwargs):
        seeds.append(seed)
        return make(*args, seed=seed, **kwargs)

    environments.make = spy
    return seeds


def test_evaluation_after_a_resume_has_other_seeds():
    seeds = []
    for frames in (0, 0, 60):
        environments = Environments(RunConfig(env=POINT))
        seeds.append(spied(environments))
        environments.evaluation(4, frames)
        environments.close()
    assert seeds[0] == seeds[1] != seeds[2]
    assert all(len(one) == 2 for one in seeds)  # one for training, one for evaluation


def test_each_environment_is_made_once():
    environments = Environments(RunConfig(env=POINT, num_envs=3))
    seeds = spied(environments)
    assert environments.specs() is environments.training() is environments.training()
    assert environments.evaluation(4) is environments.evaluation(4)
    assert environments.evaluation(4) is not environments.training()
    assert (environments.training().num_envs, environments.evaluation(4).num_envs) == (3, 4)
    assert len(set(seeds)) == len(seeds) == 2
    environments.close()
    environments.close()
    assert environments.training().is_closed
    assert environments.evaluation(4).is_closed


def test_a_shared_environment_serves_everything():
    environments = Environments(RunConfig(env=POINT, evaluation_env="shared"))
    seeds = spied(environments)
    assert environments.evaluation(4) is environments.training() is environments.specs()
    assert len(seeds) == 1
    environments.close()


@pytest.mark.parametrize(("episodes", "count"), [(1, 1), (5, 5), (40, 16)])
def test_as_many_simulators_as_are_stepped_together(episodes, count):
    environments = Environments(RunConfig(env=POINT))
    assert environments.evaluation(episodes).num_envs == count
    assert environments.alone(episodes, seed=3).num_envs == count
    environments.close()


def test_a_factory_of_batches_decides_its_size():
    made = []

    def seven():
        made.append(make_env(POINT, 7))
        return Lanes(num_envs=7)

    environments = Environments(RunConfig(num_envs=7), seven)
    assert environments.training().batch_size == environments.evaluation(3).batch_size == (7,)
    assert len(made) == 2
    environments.close()


def test_the_mistake_of_a_factory_is_not_taken_for_a_size():
    def licensed(num_envs=1):
        raise ValueError("the license allows 4 rows")

    with pytest.raises(ValueError, match="the license allows 4 rows"):
        Environments(RunConfig(), licensed).evaluation(10)


def test_every_environment_is_closed_once():
    """TorchRL's environments say that they are closed before anybody has closed them."""
    closed = []

    class Watched(Lanes):
        def close(self, *, raise_if_closed=True):
            closed.append(self)
            super().close(raise_if_closed=raise_if_closed)

    environments = Environments(RunConfig(num_envs=4), lambda: Watched(num_envs=4))
    environments.training()
    environments.evaluation(3)
    environments.close()
    environments.close()
    assert len(closed) == len(set(map(id, closed))) == 2


def test_a_factory_cannot_disturb_the_streams_of_its_caller():
    def rude(num_envs=4):
        np.random.seed(1)  # noqa: NPY002
        torch.manual_seed(1)
        return Lanes(num_envs=num_envs)

    torch.manual_seed(5)
    np.random.seed(5)  # noqa: NPY002
    expected = (torch.rand(2).tolist(), np.random.rand(2).tolist())  # noqa: NPY002
    torch.manual_seed(5)
    np.random.seed(5)  # noqa: NPY002
    Environments(RunConfig(num_envs=4), rude).evaluation(2)
    assert (torch.rand(2).tolist(), np.random.rand(2).tolist()) == expected  # noqa: NPY002


def test_workers_have_no_environment_to_share():
    with pytest.raises(ValueError, match="`evaluation_env` must stay own with collector=async"):
        RunConfig(collector="async", evaluation_env="shared")
