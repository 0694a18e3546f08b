"""Options held against memory and cores before anything is made."""

from __future__ import annotations

import pytest
import torch
from torchrl.envs import EnvBase

from torchrl_elegant import DiscreteSACConfig, DQNConfig, PPOConfig, SACConfig, Trial
from torchrl_elegant.algorithms import HTermConfig
from torchrl_elegant.config import machine
from torchrl_elegant.config.text import UsageError
from torchrl_elegant.envs import Pixels, make_env
from torchrl_elegant.trainers import resources
from torchrl_elegant.trainers.run_config import RunConfig

GIB = 1 << 30


@pytest.fixture(autouse=True)
def room(monkeypatch):
    """A machine of 1 GiB and two cores."""
    for module in (machine, resources):
        monkeypatch.setattr(module, "available_memory", lambda: GIB)
        monkeypatch.setattr(module, "total_memory", lambda: GIB)
    monkeypatch.setattr(machine, "cores", lambda: 2)


@pytest.fixture(scope="module")
def env() -> EnvBase:
    return make_env("Pendulum-v1", 2)


def checked(config, env, **run):
    run = {"total_frames": 10**9, "frames_per_batch": 64, "num_envs": 2} | run
    resources.check_memory(RunConfig(**run), config, env)


SMALL = {"num_cells": (8,), "batch_size": 8}


@pytest.mark.parametrize(
    ("config", "named"),
    [
        (SACConfig(**SMALL, buffer_size=10**8), r"`buffer_size` .* 100000000 rows of 44 bytes"),
        (SACConfig(batch_size=8, num_cells=(10**7,)), "`num_cells` "),
        (SACConfig(batch_size=8, num_cells=(10**5, 10**5)), "`num_cells` "),
        (SACConfig(num_cells=(8,), batch_size=10**7, buffer_size=10**7), "`batch_size` "),
        (SACConfig(**SMALL, num_critics=10**7), "`num_critics` "),
        (PPOConfig(recurrent=True, hidden_size=10**5), "`hidden_size` "),
        (DQNConfig(num_cells=(10**8,), batch_size=8), "`num_cells` "),
        (DiscreteSACConfig(**SMALL, num_critics=10**7), "`num_critics` "),
        (PPOConfig(num_cells=(10**8,)), "`num_cells` "),
        (SACConfig(hterm=HTermConfig(slices=10**9)), r"`hterm\.slices` "),
        (SACConfig(hterm=HTermConfig(horizon=10**9)), r"`hterm\.horizon` "),
        (SACConfig(hterm=HTermConfig(max_age=2 * 10**9)), r"`hterm\.max_age` "),
        (SACConfig(hterm=HTermConfig(capacity=10**9)), r"`hterm\.capacity` "),
    ],
)
def test_what_cannot_fit_is_refused_by_the_option_that_asks_for_it(env, config, named):
    with pytest.raises(UsageError, match=named + ".*1.0 GiB that there are"):
        checked(config, env)


def test_batches_that_cannot_fit_are_refused(env):
    for run, name in (
        ({"frames_per_batch": 10**8}, "frames_per_batch"),
        ({"num_envs": 10**8, "frames_per_batch": 10**8}, "num_envs"),
        ({"collector": "async", "num_workers": 50, "frames_per_batch": 10**6}, "frames_per_batch"),
    ):
        with pytest.raises(UsageError, match=f"`{name}` must fit into memory"):
            checked(PPOConfig(**SMALL), env, **run)


def test_only_rows_that_come_are_counted(env):
    # 4 GiB of rows would be too much for 1 GiB, were they all filled; 1 GiB is built in.
    large = SACConfig(**SMALL, buffer_size=20_000_000)
    checked(large, env, total_frames=10**6)
    with pytest.raises(UsageError, match="`buffer_size`"):
        checked(SACConfig(**SMALL, buffer_size=40_000_000), env, total_frames=10**6)


@pytest.mark.parametrize("config", [SACConfig(), PPOConfig(), SACConfig(hterm=HTermConfig())])
def test_defaults_fit(env, config):
    checked(config, env)


def test_pictures_tell_how_to_make_them_smaller():
    pixels = Pixels(source="render")
    env = make_env("CartPole-v1", 1, pixels=pixels)
    with pytest.raises(UsageError, match=r"`buffer_size`.*1,440,0\d\d bytes.*pixels\.resize=84"):
        checked(DQNConfig(), env, pixels=pixels, num_envs=1)


def test_the_memory_of_a_gpu_is_asked_of_the_gpu(monkeypatch):
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (5, 7))
    assert resources._there(torch.device("cuda:0")) == (5, 7)
    assert resources._there(torch.device("cpu")) == (GIB, GIB)


@pytest.mark.parametrize(
    ("run", "named"),
    [
        ({"collector": "async", "num_workers": 65}, "`num_workers` must be at most 64"),
        ({"env_backend": "parallel", "num_envs": 65}, "`num_envs` must be at most 64"),
        ({"collector": "async", "num_workers": 20}, "`num_workers` must fit into memory"),
        ({"num_envs": 10**9}, "`num_envs` must fit into memory"),
        ({"frames_per_batch": 10**9}, "`frames_per_batch` must fit into memory"),
    ],
)
def test_too_many_processes_and_rows_are_refused_before_anything_is_made(run, named):
    def never():
        raise AssertionError("an environment was made")

    with pytest.raises(UsageError, match=named):
        Trial(PPOConfig(), never, total_frames=10**12, **run)


def test_more_environments_than_frames_are_refused(monkeypatch):
    with pytest.raises(UsageError, match=r"`num_envs` must not give more .* total_frames \(30\)"):
        Trial(SACConfig(**SMALL), total_frames=30, num_envs=31)
