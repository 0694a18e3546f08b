"""The folder of a run."""

from __future__ import annotations

import errno
import os
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


LONG = "x" * 300


def test_a_name_that_is_too_long_is_told_in_one_line(tmp_path):
    for attempt in (new, RunFolder.open):
        with pytest.raises(UsageError, match="File name too long") as error:
            attempt(tmp_path / LONG)
        assert "\n" not in str(error.value)
        assert len(str(error.value)) < 300


def test_a_long_name_of_an_environment_is_cut_in_the_folders(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in (LONG, "語" * 300):
        new(run_path(RunConfig(env=f"module:{name}"), "sac"))
    assert len(list((tmp_path / "runs").iterdir())) == 2


# A full disk is no mistake in the words: faults/test_disk.py.
@pytest.mark.parametrize("number", [errno.EROFS, errno.EACCES])
def test_a_folder_that_cannot_be_written_is_told_in_one_line(tmp_path, monkeypatch, number):
    made = new(tmp_path / "made")

    def refuse(*args, **kwargs):
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr("torchrl_elegant.runs.folder.write_file", refuse)
    monkeypatch.setattr("torchrl_elegant.runs.metrics.write_file", refuse)
    made.metrics.append({"frames": 5, "return_mean": 2.0})
    attempts = (
        lambda: new(tmp_path / "other"),
        lambda: made.write_config("x"),
        lambda: made.resume(3),
    )
    for attempt in attempts:
        with pytest.raises(UsageError, match=os.strerror(number)) as error:
            attempt()
        assert "\n" not in str(error.value)


def test_only_what_was_made_is_taken_back(tmp_path):
    made = new(tmp_path / "made")
    (made.path / "tensorboard").mkdir()
    made.discard()
    assert not made.path.exists()
    (tmp_path / "theirs").mkdir()
    new(tmp_path / "theirs").discard()
    assert not list((tmp_path / "theirs").iterdir())
    kept = new(tmp_path / "kept")
    (kept.path / "note").touch()
    kept.discard()
    assert kept.config_path.is_file()


def test_a_configuration_that_is_no_text_is_told_in_one_line(tmp_path):
    made = new(tmp_path / "made")
    made.config_path.write_bytes(b"\xff\xfe")
    with pytest.raises(UsageError, match="must be a text that can be read"):
        made.read_config()
