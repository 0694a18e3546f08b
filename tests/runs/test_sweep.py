"""Sweeps: a run for each seed in one folder; what fails or is stopped goes on later."""

from __future__ import annotations

import contextlib
import errno
import importlib
import io
import os
import signal
import subprocess
import sys
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import yaml
from faults.runs import PATIENCE, SMALL, environment, saved_frames, wait_until
from quiet_runs import QUIET

import torchrl_elegant
from torchrl_elegant.algorithms import SACConfig
from torchrl_elegant.cli.main import main
from torchrl_elegant.config.text import UsageError
from torchrl_elegant.runs import Callback
from torchrl_elegant.runs.files import sole_use
from torchrl_elegant.runs.metrics import read_metrics
from torchrl_elegant.runs.policy import Policy
from torchrl_elegant.runs.reporter import Reporter
from torchrl_elegant.runs.sweeps.folder import SweepFolder, note_finished
from torchrl_elegant.runs.sweeps.side_by_side import MISTAKE, Ending
from torchrl_elegant.runs.sweeps.sweep import (
    note_end,
    resume_sweep,
    run_seeds,
    sweep,
    sweep_path,
)
from torchrl_elegant.runs.train import TrainResult, train
from torchrl_elegant.trainers.run_config import RunConfig

# The package has a function of the same name.
sweeps = importlib.import_module("torchrl_elegant.runs.sweeps.sweep")

SAC = SACConfig(num_cells=(8,), batch_size=8, warmup=20)
RUN = {"total_frames": 40, "eval_interval": 20, "eval_episodes": 1, **QUIET}


class FailsOnSeedOne(Callback):
    def on_start(self, run) -> None:
        if run.trial.run.seed == 1:
            raise RuntimeError("no seat left")


class StopsEarly(Callback):
    def on_evaluation(self, run, evaluation) -> None:
        run.stop("enough")


def new_sweep(path: Path, seeds: int = 3, **run) -> SweepFolder:
    return SweepFolder.create(path, run=RunConfig(**run), config=SAC, seeds=seeds)


@pytest.fixture
def started(monkeypatch) -> list[dict]:
    """Tasks that would have run side by side; each of them ends well."""
    calls: list[dict] = []

    def pretend(tasks, *, jobs, last_codes=()):
        calls.append({"tasks": tasks, "jobs": jobs, "last_codes": last_codes})
        return Ending(codes=dict.fromkeys(tasks, 0))

    monkeypatch.setattr(sweeps, "run_side_by_side", pretend)
    return calls


@pytest.fixture
def in_this_process(monkeypatch) -> None:
    """Tasks one after another, in the process of the test."""

    def pretend(tasks, *, jobs, last_codes=()):
        ending = Ending()
        for name, task in tasks.items():
            told = io.StringIO()
            try:
                with contextlib.redirect_stderr(told):
                    ending.codes[name] = task()
            except UsageError as error:
                ending.codes[name] = MISTAKE
                told.write(f"error: {error}\n")
            ending.last_lines[name] = told.getvalue().strip().rpartition("\n")[2]
            if ending.codes[name] in last_codes:
                break
        return ending

    monkeypatch.setattr(sweeps, "run_side_by_side", pretend)


def words_of(task: partial) -> list[str]:
    """Words of the command that a task runs."""
    (words,) = task.args
    return words


def test_seeds_side_by_side_are_the_runs_that_one_after_another_would_be(tmp_path):
    folder = tmp_path / "sweep"
    # A lambda, which no other process could import.
    make = lambda: __import__("gymnasium").make("Pendulum-v1")  # noqa: E731
    result = sweep(
        SAC, make, seeds=3, jobs=2, callbacks=[FailsOnSeedOne()], folder=str(folder), **RUN
    )
    assert [one.outcome for one in result.seeds] == ["finished", "failed", "finished"]
    assert (result.exit_code, result.folder) == (1, folder)
    (failed,) = result.failed
    assert (failed.seed, failed.reason) == (1, "RuntimeError: no seat left")
    alone = train(SAC, make, seed=2, folder=str(tmp_path / "alone"), threads=1, **RUN)
    named = ("frames", "updates", "return_mean", "loss_qvalue")
    both = (result.seeds[2].history, alone.history)
    first, second = ([[row[name] for name in named] for row in rows] for rows in both)
    assert first == second
    assert result.seeds[2].policy()(np.zeros(3, np.float32)).shape == (1,)

    before = (folder / "seed-0" / "metrics.csv").stat().st_mtime_ns
    again = resume_sweep(folder, env_factory=make)
    assert [one.outcome for one in again.seeds] == ["finished"] * 3
    assert again.exit_code == 0
    assert (folder / "seed-0" / "metrics.csv").stat().st_mtime_ns == before
    assert read_metrics(folder / "seed-1" / "metrics.csv")[-1]["frames"] == 40


def test_a_sweep_that_is_stopped_saves_and_goes_on(tmp_path, capsys):
    folder = tmp_path / "sweep"
    words = [
        *SMALL,
        "seeds=2",
        f"folder={folder}",
        "total_frames=1000000",
        "checkpoint_interval=50",
    ]
    process = subprocess.Popen(
        [sys.executable, "-m", "torchrl_elegant", "train", *words],
        env=environment(),
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    wait_until(lambda: saved_frames(folder / "seed-0") > 0, process)
    # To all of its group, as a terminal does it.
    os.killpg(process.pid, signal.SIGINT)
    _, err = process.communicate(timeout=PATIENCE)
    assert process.returncode == 130, err
    for told in ("seed 0 stopped", "seed 1 not started", f"resume={folder}"):
        assert told in err
    saved = saved_frames(folder / "seed-0")
    reached = ["target_return=-1e9", "eval_interval=20"]
    assert main(["train", f"resume={folder}", "trust=true", "jobs=2", *reached]) == 0
    assert f"seed 0 | going on from frame {saved} " in capsys.readouterr().err
    assert saved < saved_frames(folder / "seed-0") <= saved + 40
    assert 0 < saved_frames(folder / "seed-1") <= 40
    # To reach the goal is a planned end.
    assert SweepFolder.open(folder).unfinished() == []


def test_a_command_gives_each_seed_a_run_of_its_own(tmp_path, started):
    folder = tmp_path / "sweep"
    words = [*SMALL, "seed=7", "seeds=3", "jobs=2", "total_frames=48", f"folder={folder}"]
    assert main(["train", *words]) == 0
    (call,) = started
    assert call["jobs"] == 2
    assert [words_of(one) for one in call["tasks"].values()] == [
        [*SMALL, "total_frames=48", f"seed={seed}", f"folder={folder / f'seed-{seed}'}"]
        for seed in (7, 8, 9)
    ]


def test_a_command_goes_on_with_what_is_not_finished(tmp_path, started):
    folder = new_sweep(tmp_path / "sweep", total_frames=48)
    for seed, frames in ((0, 48), (1, 30)):
        note_finished(folder.prepare(seed), frames)
    assert main(["train", f"resume={folder.path}", "gamma=0.5"]) == 0
    assert [words_of(one) for one in started[0]["tasks"].values()] == [
        ["gamma=0.5", "total_frames=48", f"resume={folder.of(seed)}"] for seed in (1, 2)
    ]
    # Frames that were raised once are the plan from then on.
    assert main(["train", f"resume={folder.path}", "total_frames=60", "seeds=4"]) == 0
    assert len(started[1]["tasks"]) == 4
    assert SweepFolder.open(folder.path).unfinished() == [0, 1, 2, 3]
    # A seed that did not begin then still has the older plan in its folder.
    assert main(["train", f"resume={folder.path}"]) == 0
    assert all("total_frames=60" in words_of(one) for one in started[2]["tasks"].values())
    resume_sweep(folder.path)
    assert all(one.args[-1] == {"total_frames": 60} for one in started[3]["tasks"].values())


def test_a_later_seed_learns_with_the_options_of_the_first(tmp_path, started):
    folder = new_sweep(tmp_path / "sweep", total_frames=48)
    first = train(SAC, folder=str(tmp_path / "first"), **{**RUN, "total_frames": 48}).folder
    stored = yaml.safe_load((first / "config.yaml").read_text())["run"]["frames_per_batch"]
    # By themselves 49 frames would come in batches of 7.
    resume_sweep(folder.path, seeds=4, total_frames=49)
    later = yaml.safe_load((folder.of(3) / "config.yaml").read_text())["run"]
    assert (later["frames_per_batch"], stored) == (16, 16)


def test_a_new_sweep_stores_what_the_algorithm_chooses(tmp_path, started):
    sweep(SAC, seeds=2, folder=str(tmp_path / "python"), **RUN)
    words = [*SMALL, "seeds=2", "total_frames=40", f"folder={tmp_path / 'words'}"]
    assert main(["train", *words]) == 0
    for name in ("python", "words"):
        page = yaml.safe_load((tmp_path / name / "sweep.yaml").read_text())
        assert page["run"]["frames_per_batch"] == 10


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"total_frames": 47}, "`total_frames` must be at least 48, which the sweep in"),
        ({"total_frames": 600, "sav_buffer": True}, "did you mean `save_buffer`"),
        ({"total_frames": 600, "gama": 0.5}, "did you mean `gamma`"),
        ({"total_frames": 600, "gamma": 2.0}, "`gamma` must be a number in [0, 1]"),
        ({"total_frames": 600, "alpha": 0.3}, "`alpha` cannot change on resume"),
        # Seeds that have not begun would go on with other networks than those that have.
        ({"total_frames": 600, "num_cells": (16,)}, "`num_cells` cannot change on resume"),
        ({"seeds": 5, "num_critics": 3}, "`num_critics` cannot change on resume"),
        ({"seeds": 5, "actor_keys": ("observation",)}, "`actor_keys` cannot change on resume"),
        ({"seeds": 5, "normalize_value": True}, "`normalize_value` cannot change on resume"),
        ({"seeds": 5, "temperature": "fixed"}, "`temperature` cannot change on resume"),
        ({"total_frames": 600, "env": "CartPole-v1"}, "`env` must stay 'Pendulum-v1'"),
        ({"total_frames": 600, "frames_per_batch": 601}, "`frames_per_batch` must be at most"),
        ({"total_frames": 600, "num_envs": 0}, "`num_envs` must be an integer of 1 or more"),
        ({"total_frames": "600"}, "`total_frames` must be an integer"),
        ({"total_frames": None}, "`total_frames` must be an integer"),
        ({"total_frames": 600, "seed": 5}, "`seed` must not be given"),
        ({"seeds": 2, "total_frames": 600}, "`seeds` must be at least 3"),
        ({"seeds": 5, "total_frames": 47}, "`total_frames` must be at least 48"),
    ],
)
def test_a_mistake_in_changes_leaves_the_sweep_as_it_was(tmp_path, started, changes, told):
    folder = new_sweep(tmp_path / "sweep", total_frames=48)
    note_finished(folder.prepare(0), 48)
    before = (folder.path / "sweep.yaml").read_text()
    with pytest.raises(UsageError) as caught:
        resume_sweep(folder.path, **changes)
    assert told in str(caught.value)
    assert (folder.path / "sweep.yaml").read_text() == before
    assert not folder.of(1).exists()
    assert not started


def test_changes_of_resume_itself_are_known(tmp_path, started):
    folder = new_sweep(tmp_path / "sweep")
    resume_sweep(folder.path, trust=True, env_factory=int, networks={}, eval_episodes=3)
    assert len(started[0]["tasks"]) == 3


def test_each_seed_goes_on_with_changes_as_a_run_does(tmp_path, in_this_process):
    folder = tmp_path / "sweep"
    sweep(SAC, seeds=2, folder=str(folder), **RUN)
    changed = {"total_frames": 60, "gamma": 0.5, "networks": None}
    assert resume_sweep(folder, **changed).exit_code == 0
    assert main(["train", f"resume={folder}", "total_frames=80", "tau=0.5"]) == 0
    assert SweepFolder.open(folder).unfinished() == []
    for seed in (0, 1):
        page = yaml.safe_load((folder / f"seed-{seed}" / "config.yaml").read_text())
        assert (page["config"]["gamma"], page["config"]["tau"]) == (0.5, 0.5)


def test_a_change_that_a_seed_refuses_is_told_once(tmp_path, in_this_process, capsys):
    """A size shows only when a seed is loaded; no other may begin with it meanwhile."""
    folder = new_sweep(tmp_path / "sweep", total_frames=40)
    train(SAC, folder=str(folder.of(0)), **RUN)
    with pytest.raises(UsageError, match="`buffer_size` cannot change on resume"):
        resume_sweep(folder.path, total_frames=60, buffer_size=30)
    assert main(["train", f"resume={folder.path}", "buffer_size=30"]) == 2
    err = capsys.readouterr().err
    assert [line for line in err.splitlines() if line.startswith("error: ")] == [err.strip()]
    assert not list(folder.path.glob("seed-*/checkpoints/checkpoint-*60-*"))
    assert not (folder.of(1) / "checkpoints").exists()


def test_why_a_seed_failed_is_told_without_a_second_word_for_it(tmp_path, monkeypatch):
    ending = Ending(codes={"seed 0": MISTAKE}, last_lines={"seed 0": "error: no seat left"})
    monkeypatch.setattr(sweeps, "run_side_by_side", lambda *args, **options: ending)
    folder = new_sweep(tmp_path / "sweep", seeds=1)
    assert run_seeds(folder, {0: int}, jobs=1).failed[0].reason == "no seat left"


def test_a_seed_that_fails_under_more_frames_stops_no_other(tmp_path, started):
    folder = new_sweep(tmp_path / "sweep", total_frames=40)
    resume_sweep(folder.path, total_frames=50)
    assert main(["train", f"resume={folder.path}", "total_frames=60", "trust=true"]) == 0
    assert [call["last_codes"] for call in started] == [[], []]


def test_a_sweep_in_use_is_left_as_it_was(tmp_path, started, capsys, monkeypatch):
    monkeypatch.setattr(importlib.import_module("torchrl_elegant.runs.files"), "_PATIENCE", 0)
    folder = new_sweep(tmp_path / "sweep", total_frames=48)
    before = (folder.path / "sweep.yaml").read_text()
    with sole_use(folder.path):
        with pytest.raises(UsageError, match="`folder` must not be in use"):
            resume_sweep(folder.path, seeds=5, total_frames=60)
        assert main(["train", f"resume={folder.path}", "seeds=5", "total_frames=60"]) == 2
    assert "`folder` must not be in use" in capsys.readouterr().err
    assert (folder.path / "sweep.yaml").read_text() == before
    assert not started


def test_the_folder_is_in_use_while_seeds_run(tmp_path, monkeypatch):
    monkeypatch.setattr(importlib.import_module("torchrl_elegant.runs.files"), "_PATIENCE", 0)
    refused = []

    def pretend(tasks, **options):
        with pytest.raises(UsageError, match="must not be in use"), sole_use(tmp_path / "sweep"):
            pass
        refused.append(list(tasks))
        return Ending(codes=dict.fromkeys(tasks, 0))

    monkeypatch.setattr(sweeps, "run_side_by_side", pretend)
    sweep(SAC, seeds=1, folder=str(tmp_path / "sweep"), **RUN)
    resume_sweep(tmp_path / "sweep")
    assert main(["train", f"resume={tmp_path / 'sweep'}", "total_frames=60"]) == 0
    assert len(refused) == 3


def killed(*args: object) -> None:
    raise KeyboardInterrupt


@pytest.mark.parametrize(
    ("owner", "name"),
    [
        # Before its last policy, at its very end, and before its note.
        (Reporter, "policy"),
        (Reporter, "finish"),
        (sweeps, "note_finished"),
    ],
)
def test_a_seed_killed_in_its_last_moments_is_finished_later(
    tmp_path, in_this_process, monkeypatch, owner, name
):
    folder = tmp_path / "sweep"
    once = {**RUN, "eval_interval": 40, "checkpoint_interval": 40}
    with monkeypatch.context() as inside:
        inside.setattr(owner, name, killed)
        with pytest.raises(KeyboardInterrupt):
            sweep(SAC, seeds=1, folder=str(folder), **once)
    assert not (folder / "seed-0" / "finished").exists()
    rows = (folder / "seed-0" / "metrics.csv").read_bytes()
    assert main(["train", f"resume={folder}"]) == 0
    assert [one.outcome for one in resume_sweep(folder).seeds] == ["finished"]
    assert (folder / "seed-0" / "metrics.csv").read_bytes() == rows
    assert Policy.load(folder / "seed-0" / "policy.pt").metadata["frames"] == 40


def test_a_seed_of_a_longer_plan_that_was_killed_before_its_note_is_finished(tmp_path):
    folder = new_sweep(tmp_path / "sweep", total_frames=40)
    train(SAC, folder=str(folder.of(0)), **RUN)
    note_finished(folder.of(0), 20)
    assert folder.is_finished(0)
    folder.plan(total_frames=60)
    assert not folder.is_finished(0)


@pytest.mark.parametrize("gone", ["policy.pt", "metrics.csv", "checkpoints"])
def test_a_seed_that_lacks_a_file_is_not_taken_as_finished(tmp_path, gone):
    folder = new_sweep(tmp_path / "sweep", total_frames=40)
    run = train(SAC, folder=str(folder.of(0)), **RUN).folder
    assert folder.is_finished(0)
    (run / gone).rename(tmp_path / gone)
    assert not folder.is_finished(0)


@pytest.mark.parametrize(
    ("stopped_by", "frames", "unsaved", "finished"),
    [
        (None, 48, {}, True),
        ("target_return", 20, {}, True),
        ("stop file", 20, {}, False),
        ("enough", 20, {}, False),
        # Nothing is left to do: to go on would be refused.
        ("enough", 48, {}, True),
        ("SIGTERM", 20, {}, False),
        (None, 48, {"policy.pt": 20}, False),
    ],
)
def test_only_a_planned_end_is_noted(tmp_path, stopped_by, frames, unsaved, finished):
    folder = new_sweep(tmp_path / "sweep", total_frames=48)
    result = TrainResult(
        policy=None,
        history=[{"frames": frames}],
        folder=folder.prepare(0),
        stopped_by=stopped_by,
        unsaved=unsaved,
    )
    assert note_end(48, result) == result.exit_code
    assert folder.is_finished(0) is finished


def test_a_seed_that_a_callback_ends_goes_on_later(tmp_path, in_this_process):
    folder = tmp_path / "sweep"
    result = sweep(SAC, seeds=1, folder=str(folder), callbacks=[StopsEarly()], **RUN)
    assert [one.outcome for one in result.seeds] == ["stopped"]
    assert (result.exit_code, result.failed) == (0, ())
    assert main(["train", f"resume={folder}"]) == 0
    assert SweepFolder.open(folder).unfinished() == []
    assert read_metrics(folder / "seed-0" / "metrics.csv")[-1]["frames"] == 40


def test_a_seed_that_had_not_begun_begins_as_the_others_did(tmp_path):
    folder = new_sweep(tmp_path / "sweep", total_frames=48, env_kwargs={"g": 9.0})
    page = yaml.safe_load((folder.prepare(2) / "config.yaml").read_text())
    assert (page["run"]["seed"], page["run"]["env_kwargs"]) == (2, {"g": 9.0})
    assert page["config"]["batch_size"] == 8


@pytest.mark.parametrize(
    ("ending", "outcomes", "code"),
    [
        (Ending(codes={"seed 0": 0, "seed 1": 0, "seed 2": 0}), "finished " * 3, 0),
        (Ending(codes={"seed 0": 0, "seed 1": 0, "seed 2": 0}), "finished stopped finished", 0),
        (Ending(codes={"seed 0": 0, "seed 1": 1, "seed 2": 137}), "finished failed failed", 1),
        (
            Ending(codes={"seed 0": 0, "seed 1": 143}, stopped_by="SIGINT"),
            "finished stopped not_started",
            130,
        ),
        (
            Ending(codes={"seed 0": 1, "seed 1": 143}, stopped_by="SIGTERM"),
            "failed stopped not_started",
            143,
        ),
    ],
)
def test_how_a_sweep_ends(tmp_path, monkeypatch, ending, outcomes, code):
    folder = new_sweep(tmp_path / "sweep")

    def pretend(tasks, **options):
        for seed, outcome in zip(folder.seeds, outcomes.split(), strict=True):
            if outcome == "finished":
                note_finished(folder.prepare(seed), folder.total_frames)
        return ending

    monkeypatch.setattr(sweeps, "run_side_by_side", pretend)
    result = run_seeds(folder, dict.fromkeys(folder.seeds, int), jobs=1)
    assert [one.outcome.replace(" ", "_") for one in result.seeds] == outcomes.split()
    assert result.exit_code == code


def test_a_mistake_of_all_seeds_is_one_line_and_leaves_no_folder(tmp_path, capsys, monkeypatch):
    def mistaken(tasks, **options):
        return Ending(codes={"seed 0": 2}, last_lines={"seed 0": "error: `env` must be another"})

    monkeypatch.setattr(sweeps, "run_side_by_side", mistaken)
    folder = tmp_path / "sweep"
    assert main(["train", *SMALL, "seeds=3", f"folder={folder}"]) == 2
    assert capsys.readouterr().err == "error: `env` must be another\n"
    assert not folder.exists()


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["seeds=0"], "`seeds` must be an integer in [1, 10000]"),
        (["jobs=2"], "`jobs` must be 1 for one run"),
        (["seeds=2", "jobs=0"], "`jobs` must be an integer of 1 or more"),
        (["resume=RUN", "seeds=3"], "`seeds` must be none with resume"),
        (["resume=SWEEP", "seeds=2"], "`seeds` must be at least 3"),
        (["resume=SWEEP", "total_frames=29999"], "`total_frames` must be at least 30000"),
        (["resume=SWEEP", "seed=3"], "`seed` must not be given"),
        (["resume=SWEEP", "folder=elsewhere"], "`folder` must not be given"),
        (["resume=SWEEP", "algorithm=td3"], "the stored run trains algorithm=sac"),
        (["resume=SWEEP", "alpha=0.3"], "`alpha` cannot change on resume"),
        (["resume=SWEEP", "env=CartPole-v1"], "`env` must stay 'Pendulum-v1'"),
        (["resume=SWEEP", "total_frames=2"], "`total_frames` must be at least 30000"),
        (["seeds=2", "folder=SWEEP"], "continue a sweep with resume="),
        (["resume=GARBAGE"], "whose sweep.yaml is not that of one"),
        (["resume=BROKEN"], "whose sweep.yaml cannot be read"),
    ],
)
def test_a_mistake_is_one_line(tmp_path, capsys, words, told):
    new_sweep(tmp_path / "SWEEP")
    for name, text in (("GARBAGE", "seeds: [x]"), ("BROKEN", "[")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "sweep.yaml").write_text(text)
    for name in ("RUN", "SWEEP", "GARBAGE", "BROKEN"):
        words = [word.replace(name, str(tmp_path / name)) for word in words]
    assert main(["train", *words]) == 2
    err = capsys.readouterr().err
    assert err.count("\n") == 1
    assert told in err


@pytest.mark.parametrize("command", ["evaluate", "export"])
def test_a_command_over_one_run_says_how_to_choose_one_of_a_sweep(tmp_path, capsys, command):
    folder = new_sweep(tmp_path / "sweep", seed=3, seeds=1)
    folder.prepare(3)
    assert main([command, str(folder.path)]) == 2
    assert f"got the sweep {str(folder.path)!r}; choose {folder.of(3)}" in capsys.readouterr().err


def test_a_sweep_overwrites_nothing(tmp_path):
    (tmp_path / "mine").write_text("mine")
    with pytest.raises(UsageError, match="`folder` must be new or empty for a sweep"):
        sweep(SAC, seeds=2, folder=str(tmp_path))
    assert (tmp_path / "mine").read_text() == "mine"


def test_a_new_sweep_is_named_for_what_it_trains():
    name = sweep_path(RunConfig(env="X-s3-v1", seed=3), "sac").name
    assert name.startswith("X-s3-v1-sac-2")


def test_the_package_offers_both():
    assert torchrl_elegant.sweep is sweep
    assert torchrl_elegant.resume_sweep is resume_sweep


def test_a_plan_of_references_is_refused(tmp_path):
    folder = SweepFolder.create(tmp_path / "sweep", run=RunConfig(), config=SAC, seeds=2)
    with (folder.path / "sweep.yaml").open("a") as page:
        page.write("more: &one [1]\nstill: *one\n")
    with pytest.raises(UsageError, match=r"whose sweep\.yaml cannot be read"):
        SweepFolder.open(folder.path)


def test_a_full_disk_is_no_mistake_in_the_words_of_a_sweep(tmp_path, monkeypatch):
    def full(*args):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr("torchrl_elegant.runs.sweeps.folder.write_file", full)
    with pytest.raises(OSError, match="No space left"):
        SweepFolder.create(tmp_path / "sweep", run=RunConfig(), config=SAC, seeds=2)
