"""A run without a whole checkpoint: nothing that is there is lost."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from faults.fault_envs import point
from quiet_runs import QUIET

from torchrl_elegant.algorithms import SACConfig
from torchrl_elegant.config.text import UsageError
from torchrl_elegant.runs import KeepBest, resume, train
from torchrl_elegant.runs import checkpoints as checkpoints_module
from torchrl_elegant.runs.metrics import read_metrics
from torchrl_elegant.runs.policy import Policy
from torchrl_elegant.trainers import Evaluation, PolicyEvaluator

SMALL = SACConfig(num_cells=(8,), batch_size=8, warmup=20)
WORDS = {"total_frames": 64, "eval_interval": 16, "eval_episodes": 1, "frames_per_batch": 16}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "run"
    return train(SMALL, point, folder=str(folder), checkpoint_interval=16, **WORDS, **QUIET).folder


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}


def damage_all(folder: Path) -> int:
    found = list((folder / "checkpoints").glob("checkpoint-*"))
    for path in found:
        (path / "manifest.json").write_text("{")
    return len(found)


def test_a_finished_run_without_checkpoints_is_refused_and_untouched(folder):
    shutil.rmtree(folder / "checkpoints")
    before = contents(folder)
    with pytest.raises(
        UsageError,
        match=r"`resume` must find a whole checkpoint, got '.*run' without a checkpoint; to start "
        r"over would lose a policy trained for 64 frames and 4 rows of metrics up to frame 64: "
        r"begin a new run in another folder=\.\.\., from nothing or with start_from=.*run$",
    ):
        resume(folder, total_frames=96)
    assert contents(folder) == before


def test_damaged_checkpoints_are_refused_and_untouched(folder):
    count = damage_all(folder)
    assert count >= 2
    before = contents(folder)
    with pytest.raises(UsageError, match=rf"whose {count} checkpoints are all damaged; to start "):
        resume(folder, total_frames=96)
    assert contents(folder) == before


@pytest.mark.parametrize(
    ("gone", "told"),
    [
        (("policy.pt", "policy_best.pt"), "lose 4 rows of metrics up to frame 64: begin a new"),
        (("policy.pt",), r"lose a policy trained for .* start_from=.*/policy_best\.pt$"),
        (("policy_best.pt",), "lose a policy trained for 64 frames and 4 rows"),
    ],
)
def test_rows_or_one_policy_are_enough_to_refuse(folder, gone, told):
    shutil.rmtree(folder / "checkpoints")
    for name in gone:
        (folder / name).unlink()
    with pytest.raises(UsageError, match=told):
        resume(folder, total_frames=96)


def test_damaged_checkpoints_alone_are_enough_to_refuse(folder):
    damage_all(folder)
    for name in ("policy.pt", "policy_best.pt"):
        (folder / name).unlink()
    header = (folder / "metrics.csv").read_bytes().splitlines(keepends=True)[0]
    (folder / "metrics.csv").write_bytes(header)
    with pytest.raises(UsageError, match="would lose what they hold: begin a new run"):
        resume(folder, total_frames=96)


def test_a_policy_that_is_damaged_too_is_no_reason_to_overwrite_it(folder):
    shutil.rmtree(folder / "checkpoints")
    (folder / "policy.pt").write_bytes(b"x")
    with pytest.raises(UsageError, match=r"lose a policy .* start_from=.*/policy_best\.pt$"):
        resume(folder, total_frames=96)
    (folder / "policy_best.pt").write_bytes(b"x")
    with pytest.raises(UsageError, match=r"lose a damaged policy and 4 rows .* folder=\.\.\.$"):
        resume(folder, total_frames=96)


def test_a_run_killed_while_it_saves_its_first_checkpoint_keeps_its_row(tmp_path, monkeypatch):
    def killed(self, *args, **kwargs):
        raise KeyboardInterrupt

    folder = tmp_path / "run"
    monkeypatch.setattr(checkpoints_module.Checkpoints, "save", killed)
    with pytest.raises(KeyboardInterrupt):
        train(SMALL, point, folder=str(folder), **WORDS, **QUIET)
    monkeypatch.undo()
    rows, best = (folder / "metrics.csv").read_bytes(), (folder / "policy_best.pt").read_bytes()
    assert [row["frames"] for row in read_metrics(folder / "metrics.csv")] == [16]
    found = resume(folder)
    assert [row["frames"] for row in found.history] == [16, 32, 48, 64]
    assert (folder / "metrics-1.csv").read_bytes() == rows
    assert (folder / "policy_best-1.pt").read_bytes() == best


def test_what_is_later_than_the_checkpoint_is_copied_before_it_is_replaced(folder, caplog):
    # Only an early checkpoint is whole: two thirds of the run would be done again.
    found = sorted((folder / "checkpoints").glob("checkpoint-*"), key=lambda path: path.name)
    for path in found[1:]:
        (path / "manifest.json").write_text("{")
    frames = int(found[0].name.split("-")[1])
    before = contents(folder)
    assert Policy.load(folder / "policy.pt").metadata["frames"] == 64 > frames
    late = Policy.load(folder / "policy_best.pt").metadata["frames"] > frames
    resume(folder, total_frames=80)
    after = contents(folder)
    assert after["policy-1.pt"] == before["policy.pt"]
    assert after["metrics-1.csv"] == before["metrics.csv"]
    assert "kept as policy-1.pt" in caplog.text
    assert ("policy_best-1.pt" in after) == late
    assert [row["frames"] for row in read_metrics(folder / "metrics.csv")][-1] == 80


def test_a_better_policy_than_the_checkpoint_knows_is_kept(tmp_path, monkeypatch):
    """Killed after `policy_best.pt` and before the checkpoint that goes with it."""
    folder, real = tmp_path / "run", KeepBest.on_evaluation

    def killed(self, run, evaluation):
        real(self, run, evaluation)
        if run.frames > 16:
            raise KeyboardInterrupt

    monkeypatch.setattr(KeepBest, "on_evaluation", killed)
    returns_that_rise(monkeypatch)
    with pytest.raises(KeyboardInterrupt):
        train(SMALL, point, folder=str(folder), **WORDS, **QUIET)
    monkeypatch.undo()
    best = (folder / "policy_best.pt").read_bytes()
    resume(folder)
    assert (folder / "policy_best-1.pt").read_bytes() == best


def returns_that_rise(monkeypatch: pytest.MonkeyPatch) -> None:
    returns = iter(range(100))
    monkeypatch.setattr(
        PolicyEvaluator,
        "evaluate",
        lambda self, stop: Evaluation(returns=(float(next(returns)),), lengths=(1,)),
    )


def test_a_run_that_goes_on_where_it_was_makes_no_copies(folder):
    resume(folder, total_frames=96)
    assert not [name for name in contents(folder) if "-1." in name]
