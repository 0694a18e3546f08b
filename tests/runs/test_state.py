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
from torchrl_elegant.runs.files import sole_use
from torchrl_elegant.runs.state import RunState, open_run
from torchrl_elegant.runs.trial import Trial
from torchrl_elegant.trainers.off_policy import row_keys
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
) -> tuple[RunState, Trial]:
    settings = RunConfig(
        env="faults.fault_envs:point", folder=str(path), total_frames=1_000, logger="none", **run
    )
    with Trial(config, run=settings, ranks=ranks) as trial:
        if not again:
            rows = trial.environments.specs().rollout(10).reshape(-1)
            trial.store.extend(rows.select(*row_keys(trial.learner)))
        with open_run(trial, folder=path if again else None) as state:
            return state, trial


def save(state: RunState, trial: Trial, *, frames: int, updates: int) -> Path:
    trial.ledger.frames, trial.ledger.updates = frames, updates
    return state.checkpoints.save(frames, {})


@pytest.mark.parametrize(("kept", "rows", "refill"), [(True, 10, 0), (False, 0, 60)])
def test_a_run_is_found_as_it_was_left(tmp_path, kept, rows, refill):
    state, trial = opened(tmp_path / "run", save_buffer=kept)
    state.progress.seconds, state.callbacks.best.best = 5.0, -2.0
    save(state, trial, frames=60, updates=33)
    assert trial.ledger.owed == 7.0
    state.folder.metrics.append({"frames": 60, "updates": 33})
    state.folder.metrics.append({"frames": 70, "updates": 50})
    state.folder.stop_path.touch()
    again, found = opened(tmp_path / "run", again=True, save_buffer=kept)
    ledger = found.ledger
    assert (ledger.frames, ledger.updates, ledger.loaded_owed) == (60, 33, 7.0)
    # Frames that fill the buffer anew ask for no update.
    assert ledger.owed == (-refill if refill else 7.0)
    assert (found.learner.updates, len(found.store)) == (33, rows)
    assert vars(again.progress) == vars(state.progress)
    assert again.callbacks.best.best == -2.0
    assert [row["frames"] for row in again.folder.metrics.rows()] == [60]
    assert not again.folder.stop_path.exists()


def test_a_refill_that_leaves_nothing_to_learn_from_is_refused(tmp_path):
    state, trial = opened(tmp_path / "run", save_buffer=False)
    save(state, trial, frames=600, updates=33)
    long = SACConfig(num_cells=(8,), batch_size=8, warmup=600)
    with pytest.raises(UsageError, match=r"after the 600 that fill the buffer anew.*got 1000"):
        opened(tmp_path / "run", again=True, config=long, save_buffer=False)


def test_a_damaged_checkpoint_is_passed_over(tmp_path, caplog):
    state, trial = opened(tmp_path / "run")
    for frames in (30, 60):
        last = save(state, trial, frames=frames, updates=frames)
    victim = next((last / "components").rglob("state.pt"))
    victim.write_bytes(victim.read_bytes()[:-5])
    _, found = opened(tmp_path / "run", again=True)
    assert found.ledger.frames == found.ledger.updates == 30
    assert "is damaged and passed over" in caplog.text


def test_a_run_without_a_checkpoint_starts_over(tmp_path):
    opened(tmp_path / "run")
    _, found = opened(tmp_path / "run", again=True)
    assert (found.ledger.frames, found.ledger.updates, len(found.store)) == (0, 0, 0)
    assert found.ledger.free_frames == CONFIG.warmup


@pytest.mark.parametrize("kind", [SACConfig, REDQConfig])
def test_what_is_configured_wins_over_what_is_stored(tmp_path, kind):
    state, trial = opened(tmp_path / "run", config=kind(num_cells=(8,), batch_size=8, warmup=20))
    learner = trial.learner
    learner.loss.log_alpha.data.fill_(-2.0)
    save(state, trial, frames=60, updates=60)
    config = kind(
        num_cells=(8,),
        batch_size=8,
        warmup=20,
        actor_lr=1e-2,
        critic_lr=2e-2,
        alpha_lr=3e-2,
        gamma=0.5,
        target_entropy=-7.0,
    )
    found = opened(tmp_path / "run", again=True, config=config)[1].learner
    assert [group["lr"] for group in found.optimizer.param_groups] == [1e-2, 2e-2, 3e-2]
    assert float(found.loss.value_estimator.gamma) == 0.5
    assert float(found.loss.target_entropy) == -7.0
    assert float(found.loss.log_alpha.detach()) == -2.0  # learnt
    for stored, loaded in zip(learner.policy.parameters(), found.policy.parameters(), strict=True):
        assert torch.equal(stored, loaded)


def test_a_fixed_temperature_is_the_configured_one(tmp_path):
    fixed = {"num_cells": (8,), "batch_size": 8, "warmup": 20, "temperature": "fixed"}
    state, trial = opened(tmp_path / "run", config=SACConfig(alpha=0.5, **fixed))
    save(state, trial, frames=60, updates=60)
    _, found = opened(tmp_path / "run", again=True, config=SACConfig(alpha=0.125, **fixed))
    assert float(found.learner.loss.log_alpha.exp()) == pytest.approx(0.125)


def test_ranks_that_go_on_draw_noise_of_their_own_and_none_a_second_time(tmp_path, monkeypatch):
    state, trial = opened(tmp_path / "run")
    from_torch, from_numpy = [], []
    for frames in (30, 60):
        save(state, trial, frames=frames, updates=frames)
        for rank in ("1", "2"):
            with monkeypatch.context() as patch:
                patch.setenv("WORLD_SIZE", "4")
                patch.setenv("RANK", rank)
                patch.setattr(Ranks, "share", lambda self, module: None)
                # All processes begin alike.
                patch.setattr(Trial, "_seed", only_after_a_resume(Trial._seed))
                _, found = opened(tmp_path / "run", again=True, ranks=Ranks())
            with found.random.active():
                from_torch.append(torch.rand(()).item())
                from_numpy.append(np.random.rand())  # noqa: NPY002
    assert len(set(from_torch)) == len(set(from_numpy)) == 4


def only_after_a_resume(seed):
    return lambda self, frames=0: seed(self, frames) if frames else 0


def test_several_ranks_say_that_their_buffers_are_not_stored(tmp_path, monkeypatch, caplog):
    opened(tmp_path / "one")
    assert "not stored" not in caplog.text
    ranks = Ranks()
    ranks.count = 2
    monkeypatch.setattr(ranks, "same", lambda value: value)
    monkeypatch.setattr(ranks, "share", lambda module: None)
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
