"""The stored side of a run."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from torchrl_elegant.algorithms import REDQConfig, SACConfig
from torchrl_elegant.config.text import UsageError
from torchrl_elegant.data import make_buffer
from torchrl_elegant.envs import make_env
from torchrl_elegant.runs.files import sole_use
from torchrl_elegant.runs.state import RunState, open_run
from torchrl_elegant.trainers.learner import Learner
from torchrl_elegant.trainers.ranks import Ranks
from torchrl_elegant.trainers.run_config import RunConfig

CONFIG = SACConfig(num_cells=(8,), batch_size=8, warmup=20)


def opened(
    path: Path,
    *,
    again: bool = False,
    config: SACConfig = CONFIG,
    ranks: Ranks | None = None,
    **run,
) -> tuple[RunState, Learner, object]:
    env = make_env("faults.fault_envs:point", 1, seed=0)
    learner = Learner(config.build(env))
    buffer = make_buffer(size=100)
    settings = RunConfig(folder=str(path), total_frames=1_000, logger="none", **run)
    if not again:
        buffer.extend(env.rollout(10).reshape(-1).select(*learner.loss.in_keys))
    folder = path if again else None
    with open_run(
        settings, config, learner, buffer, ranks=ranks or Ranks(), folder=folder
    ) as state:
        return state, learner, buffer


@pytest.mark.parametrize(("kept", "rows", "refill"), [(True, 10, 0), (False, 0, 60)])
def test_a_run_is_found_as_it_was_left(tmp_path, kept, rows, refill):
    state, learner, _ = opened(tmp_path / "run", save_buffer=kept)
    learner.updates, state.progress.frames, state.progress.debt = 33, 60, 7.0
    state.checkpoints.save(60, {})
    state.folder.metrics.append({"frames": 60, "updates": 33})
    state.folder.metrics.append({"frames": 70, "updates": 50})
    state.folder.stop_path.touch()
    again, found, buffer = opened(tmp_path / "run", again=True, save_buffer=kept)
    counters = again.counters
    assert (counters.frames, counters.updates, counters.debt) == (60, 33, 7.0)
    assert (found.updates, len(buffer), counters.refill) == (33, rows, refill)
    assert [row["frames"] for row in again.folder.metrics.rows()] == [60]
    assert not again.folder.stop_path.exists()


def test_a_refill_that_leaves_nothing_to_learn_from_is_refused(tmp_path):
    state, learner, _ = opened(tmp_path / "run", save_buffer=False)
    learner.updates, state.progress.frames = 33, 600
    state.checkpoints.save(600, {})
    long = SACConfig(num_cells=(8,), batch_size=8, warmup=600)
    with pytest.raises(UsageError, match=r"after the 600 that fill the buffer anew.*got 1000"):
        opened(tmp_path / "run", again=True, config=long, save_buffer=False)


def test_a_damaged_checkpoint_is_passed_over(tmp_path, caplog):
    state, learner, _ = opened(tmp_path / "run")
    for frames in (30, 60):
        learner.updates = state.progress.frames = frames
        last = state.checkpoints.save(frames, {})
    victim = next((last / "components").rglob("state.pt"))
    victim.write_bytes(victim.read_bytes()[:-5])
    again, found, _ = opened(tmp_path / "run", again=True)
    assert again.counters.frames == found.updates == 30
    assert "is damaged and passed over" in caplog.text


def test_a_run_without_a_checkpoint_starts_over(tmp_path):
    opened(tmp_path / "run")
    again, learner, buffer = opened(tmp_path / "run", again=True)
    assert (again.counters.frames, again.counters.refill, learner.updates, len(buffer)) == (0,) * 4


@pytest.mark.parametrize("kind", [SACConfig, REDQConfig])
def test_what_is_configured_wins_over_what_is_stored(tmp_path, kind):
    state, learner, _ = opened(tmp_path / "run", config=kind(num_cells=(8,), batch_size=8))
    learner.loss.log_alpha.data.fill_(-2.0)
    learner.updates = state.progress.frames = 60
    state.checkpoints.save(60, {})
    config = kind(
        num_cells=(8,),
        batch_size=8,
        actor_lr=1e-2,
        critic_lr=2e-2,
        alpha_lr=3e-2,
        gamma=0.5,
        target_entropy=-7.0,
    )
    _, found, _ = opened(tmp_path / "run", again=True, config=config)
    assert [group["lr"] for group in found.optimizer.param_groups] == [1e-2, 2e-2, 3e-2]
    assert float(found.loss.value_estimator.gamma) == 0.5
    assert float(found.loss.target_entropy) == -7.0
    assert float(found.loss.log_alpha.detach()) == -2.0  # learnt
    for stored, loaded in zip(learner.policy.parameters(), found.policy.parameters(), strict=True):
        assert torch.equal(stored, loaded)


def test_a_fixed_temperature_is_the_configured_one(tmp_path):
    fixed = {"num_cells": (8,), "batch_size": 8, "temperature": "fixed"}
    state, learner, _ = opened(tmp_path / "run", config=SACConfig(alpha=0.5, **fixed))
    learner.updates = state.progress.frames = 60
    state.checkpoints.save(60, {})
    _, found, _ = opened(tmp_path / "run", again=True, config=SACConfig(alpha=0.125, **fixed))
    assert float(found.loss.log_alpha.exp()) == pytest.approx(0.125)


def test_ranks_that_go_on_draw_noise_of_their_own_and_none_a_second_time(tmp_path, monkeypatch):
    state, learner, _ = opened(tmp_path / "run")
    from_torch, from_numpy = [], []
    for frames in (30, 60):
        learner.updates = state.progress.frames = frames
        state.checkpoints.save(frames, {})
        for rank in ("1", "2"):
            # All processes begin alike.
            torch.manual_seed(0)
            np.random.seed(0)  # noqa: NPY002 (libraries draw from it)
            with monkeypatch.context() as patch:
                patch.setenv("WORLD_SIZE", "3")
                patch.setenv("RANK", rank)
                opened(tmp_path / "run", again=True, ranks=Ranks())
            from_torch.append(torch.rand(()).item())
            from_numpy.append(np.random.rand())  # noqa: NPY002
    assert len(set(from_torch)) == len(set(from_numpy)) == 4


def test_several_ranks_say_that_their_buffers_are_not_stored(tmp_path, monkeypatch, caplog):
    opened(tmp_path / "one")
    assert "not stored" not in caplog.text
    ranks = Ranks()
    ranks.count = 2
    monkeypatch.setattr(ranks, "same", lambda value: value)
    opened(tmp_path / "two", ranks=ranks)
    assert "the replay buffers of 2 ranks are not stored" in caplog.text


def test_another_process_cannot_open_a_run(tmp_path, monkeypatch):
    opened(tmp_path / "run")
    monkeypatch.setattr("torchrl_elegant.runs.files._PATIENCE", 0.0)
    holds = (
        "import fcntl, os, sys; fd = os.open(sys.argv[1], os.O_RDONLY);"
        "fcntl.flock(fd, fcntl.LOCK_EX); print(1, flush=True); sys.stdin.read()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", holds, str(tmp_path / "run")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as other:
        assert other.stdout.readline() == b"1\n"
        with pytest.raises(UsageError, match="is in use by another process"):
            opened(tmp_path / "run", again=True)
    opened(tmp_path / "run", again=True)  # the lock went with its process


def test_a_run_holds_its_folder_until_it_is_left(tmp_path, monkeypatch):
    monkeypatch.setattr("torchrl_elegant.runs.files._PATIENCE", 0.0)
    with sole_use(tmp_path), pytest.raises(UsageError, match="in use"), sole_use(tmp_path):
        pass
    with sole_use(tmp_path):
        pass
