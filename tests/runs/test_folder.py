"""The folder of a run."""

from __future__ import annotations

import re

import pytest

from torchrl_elegant.config.text import UsageError
from torchrl_elegant.runs.folder import RunFolder, run_path
from torchrl_elegant.trainers.run_config import RunConfig

COLUMNS = ["frames", "return_mean"]


def new(path, config="seed: 0"):
    return RunFolder.create(path, config=config, columns=COLUMNS)


def test_create_then_open(tmp_path):
    run = new(tmp_path / "runs" / "x")
    run.metrics.append({"frames": 1, "return_mean": 2.0})
    again = RunFolder.open(run.path)
    assert again.read_config() == "seed: 0"
    assert again.metrics.columns == COLUMNS
    assert again.metrics.rows() == [{"frames": 1, "return_mean": 2.0}]
    again.write_config("seed: 1")
    assert run.read_config() == "seed: 1"


def test_an_empty_folder_is_taken(tmp_path):
    assert new(tmp_path).config_path.is_file()


def test_a_used_folder_is_refused_and_untouched(tmp_path):
    (tmp_path / "mine.txt").write_text("mine")
    with pytest.raises(UsageError, match=r"resume=.*folder=") as caught:
        new(tmp_path)
    assert str(tmp_path) in str(caught.value)
    assert [path.name for path in tmp_path.iterdir()] == ["mine.txt"]


def test_a_file_is_no_folder(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match="got the file"):
        new(tmp_path / "file")


@pytest.mark.parametrize("missing", ["config.yaml", "metrics.csv"])
def test_open_needs_a_run(tmp_path, missing):
    run = new(tmp_path / "x")
    (run.path / missing).unlink()
    with pytest.raises(UsageError, match=f"without {missing}"):
        RunFolder.open(run.path)


def test_resume_trims_and_forgets_the_stop_file(tmp_path):
    run = new(tmp_path / "x")
    for frames in (10, 20, 30):
        run.metrics.append({"frames": frames})
    assert not run.stop_requested()
    run.stop_path.touch()
    assert run.stop_requested()
    run.resume(20)
    assert not run.stop_requested()
    assert [row["frames"] for row in run.metrics.rows()] == [10, 20]


def test_run_path_names_the_run():
    path = run_path(RunConfig(env="my.pkg:make/env", seed=4), "sac")
    assert path.parent.name == "runs"
    assert re.fullmatch(r"my\.pkg_make_env-sac-s4-\d{8}-\d{6}", path.name)
    assert run_path(RunConfig(folder="a/b"), "sac").as_posix() == "a/b"
