"""Rows, policies and pictures of a run."""

from __future__ import annotations

import importlib
import math
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from torchrl_elegant.algorithms import SACConfig
from torchrl_elegant.config.text import UsageError
from torchrl_elegant.envs import make_env
from torchrl_elegant.runs.folder import RunFolder
from torchrl_elegant.runs.policy import Policy
from torchrl_elegant.runs.reporter import COLUMNS, Reporter, make_logger
from torchrl_elegant.trainers.clock import PACE_COLUMNS
from torchrl_elegant.trainers.evaluation import Evaluation
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
    run = RunConfig(total_frames=100, logger=logger, progress=progress)
    return Reporter(run, folder, {"env": "Pendulum-v1", "action_low": None}, 0)


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
    report.finish(None, PACE)
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
    report.best_policy(policy, 10, Evaluation(returns=(3.0,), lengths=(1,)))
    best = Policy.load(folder.path / "policy_best.pt").metadata
    assert (best["env"], best["frames"], best["return_mean"]) == ("Pendulum-v1", 10, 3.0)


def test_the_bar_is_on_stderr_alone(folder, capsys):
    report = reporter(folder, progress=True)
    report.advance(40)
    report.row(ROW)
    report.advance(100)
    report.finish(None, PACE)
    streams = capsys.readouterr()
    assert streams.out == ""
    assert "100%" in streams.err
    assert "return     -2.00" in streams.err


def test_the_end_says_why_and_where(folder, caplog):
    report = reporter(folder)
    report.row(ROW)
    report.finish("a reason", PACE)
    assert "stopped early: a reason" in caplog.text
    assert PACE in caplog.text
    assert str(folder.path) in caplog.text
    assert "return -2.00\n" in caplog.text  # one episode has no confidence, and no "± inf"


def test_the_end_has_the_confidence_of_several_episodes(folder, caplog):
    report = reporter(folder)
    report.row({**ROW, "return_ci95": 0.25})
    report.finish(None, PACE)
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
        make_logger("wandb", where)
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


def test_a_folder_without_columns_for_the_pace_is_filled_on(tmp_path, monkeypatch):
    logger = Recorder()
    monkeypatch.setattr(module, "make_logger", lambda *args: logger)
    columns = [name for name in COLUMNS if name not in PACE_COLUMNS]
    old = RunFolder.create(tmp_path / "old", config="a: 1", columns=columns)
    report = reporter(old)
    report.row({**ROW, **dict.fromkeys(PACE_COLUMNS, 0.5)})
    (row,) = old.metrics.rows()
    assert list(row) == columns
    assert {name: row[name] for name in ROW} == ROW
    assert set(PACE_COLUMNS) < logger.told[0][0]  # they still reach the logger
    with pytest.raises(UsageError, match=r"`row` must hold columns of metrics\.csv.*'lost'"):
        report.row({**ROW, "lost": 1.0})


def test_no_logger_is_no_logger(folder):
    assert make_logger("none", folder) is None
