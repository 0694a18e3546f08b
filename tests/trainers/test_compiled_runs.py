"""Runs that compile their updates, and those that do not."""

from __future__ import annotations

import pytest
import torch

from torchrl_elegant import DQNConfig, PPOConfig, SACConfig, resume, train
from torchrl_elegant.objectives.compiled.loss import CompiledLoss
from torchrl_elegant.runs import Trial
from torchrl_elegant.runs.state import open_run
from torchrl_elegant.runs.sweeps.folder import SweepFolder
from torchrl_elegant.runs.train import stored_run
from torchrl_elegant.trainers.family import FAMILIES, family_of
from torchrl_elegant.trainers.ranks import Ranks
from torchrl_elegant.trainers.run_config import RunConfig

SMALL = {"num_cells": (8,), "batch_size": 8, "warmup": 20}
RUN = {"eval_episodes": 1, "progress": False, "logger": "none"}


@pytest.mark.parametrize(
    ("config", "frames", "compiles"),
    [
        (SACConfig(warmup=1000), 31_000, True),
        (SACConfig(warmup=1000), 30_999, False),
        (SACConfig(warmup=1000, updates_per_frame=0.5), 31_000, False),
        (SACConfig(compile=True), 2_000, True),
        (SACConfig(compile=False), 2_000_000, False),
        (DQNConfig(warmup=1000, updates_per_frame=0.5), 61_000, True),
        (PPOConfig(epochs=10, batch_size=64), 400_000, True),
        (PPOConfig(epochs=10, batch_size=64), 380_000, False),
    ],
)
def test_the_planned_updates_alone_decide(config, frames, compiles):
    run = RunConfig(env=config.example, total_frames=frames, frames_per_batch=100)
    assert family_of(run, config, Ranks.alone()).config.compile is compiles


def test_on_a_gpu_nobody_compiles_unasked():
    run = RunConfig(env="Pendulum-v1", total_frames=10**6)
    ranks = Ranks.alone(torch.device("cuda"))
    assert not family_of(run, SACConfig(), ranks).config.compile
    assert family_of(run, SACConfig(compile=True), ranks).config.compile


@pytest.mark.parametrize("config", [SACConfig, PPOConfig])
def test_a_compiled_run_is_the_plain_one(config, graphs, tmp_path):
    options = {"num_cells": (8,), "batch_size": 8}
    options |= {} if config is PPOConfig else {"warmup": 20}
    run = RUN | {"total_frames": 64, "seed": 3}
    policies = []
    for compile in (False, True):
        folder = str(tmp_path / f"{compile}")
        result = train(config(compile=compile, **options), "Pendulum-v1", folder=folder, **run)
        policies.append(result.policy.state_dict())
    torch.testing.assert_close(policies[1], policies[0], rtol=1e-4, atol=1e-5)
    assert len(graphs) == 1


def test_a_compiled_run_goes_on(graphs, tmp_path):
    config = SACConfig(compile=True, normalize_observation=True, **SMALL)
    run = RUN | {"seed": 3, "checkpoint_interval": 40}
    whole = train(config, "Pendulum-v1", folder=str(tmp_path / "a"), total_frames=80, **run)
    train(config, "Pendulum-v1", folder=str(tmp_path / "b"), total_frames=40, **run)
    again = resume(str(tmp_path / "b"), total_frames=80)
    assert len(graphs) == 3
    assert again.history[-1]["updates"] == whole.history[-1]["updates"]


@pytest.fixture
def soon(monkeypatch):
    """Runs of 50 updates are worth compiling, and shorter ones are not."""
    monkeypatch.setattr(FAMILIES["off_policy"], "worth_compiling", 50)


@pytest.mark.parametrize(("frames", "compiles"), [(40, False), (80, True)])
def test_a_run_that_goes_on_keeps_what_was_decided_at_its_start(
    frames, compiles, soon, graphs, tmp_path
):
    run = RUN | {"seed": 3, "checkpoint_interval": 20, "total_frames": frames}
    folder = train(SACConfig(**SMALL), "Pendulum-v1", folder=str(tmp_path / "a"), **run).folder
    for more in (100, 120):
        resume(folder, total_frames=more, updates_per_frame=0.25)
        assert stored_run(folder)[2].compile is compiles
    assert len(graphs) == 3 * compiles
    # Asked again, it is decided anew.
    resume(folder, total_frames=200, compile="auto", updates_per_frame=1.0)
    assert stored_run(folder)[2].compile is True


@pytest.mark.usefixtures("soon")
def test_a_run_without_a_checkpoint_starts_over_as_it_was_begun(graphs, tmp_path):
    config = SACConfig(**SMALL)
    folder = tmp_path / "a"
    with (
        Trial(config, "Pendulum-v1", total_frames=40, folder=str(folder)) as trial,
        open_run(trial, folder=None),
    ):
        pass
    resume(folder, total_frames=200, eval_episodes=1, progress=False, logger="none")
    assert not graphs


@pytest.mark.usefixtures("soon")
def test_seeds_that_a_sweep_is_given_later_compile_as_the_others_do(tmp_path):
    run = RunConfig(env="Pendulum-v1", total_frames=40)
    sweep = SweepFolder.create(tmp_path / "sweep", run=run, config=SACConfig(**SMALL), seeds=1)
    sweep.plan(seeds=2, total_frames=1000)
    for seed in sweep.seeds:
        assert stored_run(sweep.prepare(seed))[2].compile is False


def test_targets_and_schedules_are_those_of_the_learner(graphs):
    config = SACConfig(compile=True, actor_lr=(1e-3, 0.0), **SMALL)
    with Trial(config, "Pendulum-v1", total_frames=100, seed=0) as trial:
        assert isinstance(trial.learner._update_loss, CompiledLoss)
        before = {key: value.clone() for key, value in trial.learner.loss.state_dict().items()}
        trial.train(frames=60)
        after = trial.learner.loss.state_dict()
        rate = trial.learner.optimizer.param_groups[0]["lr"]
    moved = [key for key, value in after.items() if not torch.equal(value, before[key])]
    assert any("target_qvalue" in key for key in moved)
    assert 0.0 < rate < 1e-3
