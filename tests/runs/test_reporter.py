"""Rows, policies and pictures of a run."""

from __future__ import annotations

import importlib
import math
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from torchrl_elegant.algorithms import SACConfig
from torchrl_elegant.cli.command_line import console
from torchrl_elegant.envs import make_env
from torchrl_elegant.runs.callbacks import RunningRun
from torchrl_elegant.runs.folder import RunFolder
from torchrl_elegant.runs.metrics import COLUMNS
from torchrl_elegant.runs.policy import Policy
from torchrl_elegant.runs.reporter import Reporter, make_logger
from torchrl_elegant.trainers.ledger import Ledger
from torchrl_elegant.trainers.run_config import RunConfig

module = importlib.import_module("torchrl_elegant.runs.reporter")

ROW = {
    "frames": 10,
    "updates": 5,
    "seconds": 1.0,
    "return_mean": -2.0,
    "return_std": 0.5,
    "return_ci95": math.inf,
    "length_mean": 20.0,
}


PACE = "time: learn 100 % | 20 frames/s, 10 updates/s"


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    return RunFolder.create(tmp_path / "run", config="a: 1", columns=list(COLUMNS))


def reporter(folder: RunFolder, *, logger: str = "none", progress: bool = False) -> Reporter:
    trial = SimpleNamespace(
        run=RunConfig(total_frames=100, logger=logger, progress=progress),
        ledger=Ledger(total_frames=100),
        about=lambda: {"env": "Pendulum-v1", "action_low": None},
    )
    return Reporter(RunningRun(trial, folder.path), folder)


def test_a_row_goes_to_file_picture_and_log(folder, caplog, monkeypatch):
    monkeypatch.setattr(module, "_FIRST_PICTURE", 0.0)
    reporter(folder).row(ROW)
    (row,) = folder.metrics.rows()
    assert {name: row[name] for name in ROW} == ROW
    assert math.isnan(row["train_return"])
    assert math.isnan(row["frames_per_second"])
    assert folder.curve_path.read_bytes().startswith(b"\x89PNG")
    assert "return     -2.00 ± 0.50" in caplog.text


def test_a_run_of_seconds_draws_at_its_end_alone(folder):
    report = reporter(folder)
    report.row(ROW)
    assert not folder.curve_path.exists()
    report.finish(PACE, None)
    assert folder.curve_path.read_bytes().startswith(b"\x89PNG")


def test_tensorboard_gets_every_finite_number(folder):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    report = reporter(folder, logger="tensorboard")
    report.row(ROW)
    report.close()
    (file,) = folder.path.rglob("events.out.tfevents*")
    events = EventAccumulator(str(file)).Reload()
    assert set(events.Tags()["scalars"]) == set(ROW) - {"frames", "return_ci95"}
    (event,) = events.Scalars("return_mean")
    assert (event.step, event.value) == (10, -2.0)


def test_policies_carry_what_is_known_of_them(folder):
    policy = SACConfig(num_cells=(8,)).build(make_env("Pendulum-v1")).policy
    report = reporter(folder)
    report.policy(policy, 5)
    assert "return_mean" not in Policy.load(folder.policy_path).metadata
    report.row(ROW)
    report.policy(policy, 10)
    assert Policy.load(folder.policy_path).metadata["return_mean"] == -2.0


def test_a_bar_is_drawn_in_a_terminal_and_tells_the_return(folder, capsys, monkeypatch):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    report = reporter(folder, progress=True)
    report.advance(40)
    report.row(ROW)
    report.advance(100)
    report.finish(PACE, None)
    streams = capsys.readouterr()
    assert streams.out == ""
    assert "100%" in streams.err
    assert "return -2.00 ± 0.50" in streams.err


def test_a_log_file_has_one_line_a_row_and_no_bar(folder, capsys):
    with console():
        report = reporter(folder, progress=True)
        report.advance(40)
        report.row(ROW)
        report.row({**ROW, "frames": 20})
        report.finish(PACE, None)
        report.close()
    streams = capsys.readouterr()
    assert streams.out == ""
    lines = streams.err.splitlines()
    assert [line[:16] for line in lines[:2]] == ["frames        10", "frames        20"]
    assert lines[2:] == ["last evaluation: return -2.00", PACE, f"run folder: {folder.path}"]
    assert not set("\x1b\r") & set(streams.err)


def test_the_end_says_why_and_where(folder, caplog):
    report = reporter(folder)
    report.row(ROW)
    report._run.stop("a reason")
    report._run.stop("a later one")
    report.finish(PACE, None)
    assert "stopped early: a reason\n" in caplog.text
    assert PACE in caplog.text
    assert str(folder.path) in caplog.text
    assert "return -2.00\n" in caplog.text  # one episode has no confidence, and no "± inf"
    assert "checkpoint" not in caplog.text


def test_the_end_says_what_could_not_be_written(folder, caplog):
    report = reporter(folder)
    report._run.trial.ledger.frames = 30
    with report._run.storing("checkpoints"):
        raise OSError(28, "No space left on device")
    report._run.trial.ledger.frames = 60
    for name in ("checkpoints", "metrics.csv"):
        with report._run.storing(name):
            raise OSError(28, "No space left on device")
    with report._run.storing("policy.pt"):
        pass
    report.finish(PACE, Path("run/checkpoints/checkpoint-000000000020-000001"))
    assert [record.message for record in caplog.records[-3:]] == [
        "checkpoints could not be written since frame 30",
        "metrics.csv could not be written since frame 60",
        "newest whole checkpoint: run/checkpoints/checkpoint-000000000020-000001",
    ]


def test_rows_that_could_not_be_written_are_written_later(folder, monkeypatch):
    from torchrl_elegant.runs import metrics

    report = reporter(folder)
    with monkeypatch.context() as full:
        full.setattr(metrics, "_write_all", _no_space)
        report.row(ROW)
        report.row({**ROW, "frames": 20, "mine": 3.0})
        assert report._run.unsaved == {"metrics.csv": 0}
    assert folder.metrics.rows() == []
    report.finish(PACE, None)
    assert report._run.unsaved == {}
    first, second = folder.metrics.rows()
    assert (first["frames"], second["frames"], second["mine"]) == (10, 20, 3.0)
    assert math.isnan(first["mine"])


def _no_space(*args):
    raise OSError(28, "No space left on device")


def test_the_end_has_the_confidence_of_several_episodes(folder, caplog):
    report = reporter(folder)
    report.row({**ROW, "return_ci95": 0.25})
    report.finish(PACE, None)
    assert "return -2.00 ± 0.25 (95 % confidence of the mean)" in caplog.text


class Recorder:
    """A logger that notes what it is told."""

    def __init__(self) -> None:
        self.told: list = []

    def log_metrics(self, metrics, step):
        self.told.append((set(metrics), step))

    def shutdown(self):
        self.told.append("closed")


def test_a_row_is_one_call_and_closing_closes_bar_and_logger(folder, monkeypatch):
    logger = Recorder()
    monkeypatch.setattr(module, "make_logger", lambda *args: logger)
    report = reporter(folder, progress=True)
    report.row(ROW)
    report.close()
    report.close()
    assert logger.told == [(set(ROW) - {"frames", "return_ci95"}, 10), "closed"]
    assert report._bar.disable  # what tqdm makes of a bar that is closed


def test_a_run_that_goes_on_is_the_same_one_for_wandb(folder, tmp_path, monkeypatch):
    ids = []
    monkeypatch.setattr(
        module, "get_logger", lambda *args, wandb_kwargs, **kwargs: ids.append(wandb_kwargs["id"])
    )
    (tmp_path / "elsewhere").mkdir()
    other = RunFolder.create(tmp_path / "elsewhere" / "run", config="a: 1", columns=list(COLUMNS))
    for where in (folder, folder, other):
        make_logger("wandb", where.path)
    assert ids[0] == ids[1] != ids[2]
    assert len(ids[0]) == 16


def test_the_run_of_mlflow_is_ended(folder, monkeypatch):
    ended = []
    monkeypatch.setitem(sys.modules, "mlflow", SimpleNamespace(end_run=lambda: ended.append(True)))

    class Fake(Recorder):
        pass

    monkeypatch.setattr(module, "MLFlowLogger", Fake)
    monkeypatch.setattr(module, "make_logger", lambda *args: Fake())
    reporter(folder).close()
    assert ended == [True]


def test_a_new_column_is_added_and_the_rows_before_have_no_value_in_it(folder):
    report = reporter(folder)
    report.row(ROW)
    report.row({**ROW, "frames": 20, "mine": 0.5})
    first, second = folder.metrics.rows()
    assert math.isnan(first["mine"])
    assert second["mine"] == 0.5


def test_no_logger_is_no_logger(folder):
    assert make_logger("none", folder.path) is None
