"""A full disk: the run goes on beside its last good checkpoint."""

from __future__ import annotations

import errno
import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from faults.runs import SMALL, check_folder, checkpoints, saved_frames

from torchrl_elegant.algorithms import SACConfig
from torchrl_elegant.cli.training import train_command
from torchrl_elegant.runs import checkpoints as checkpoint
from torchrl_elegant.runs import files, resume, train
from torchrl_elegant.runs.metrics import read_metrics


def small(folder: Path, **more):
    settings = {
        "total_frames": 120,
        "frames_per_batch": 1,
        "checkpoint_interval": 30,
        "eval_interval": 30,
        "eval_episodes": 1,
        "logger": "none",
        "progress": False,
        "folder": str(folder),
    }
    config = SACConfig(num_cells=(8,), batch_size=8, warmup=20)
    return train(config, "faults.fault_envs:point", **{**settings, **more})


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT, errno.EIO])
def test_a_checkpoint_that_cannot_be_written_costs_nothing(tmp_path, monkeypatch, caplog, code):
    def refuse(root):
        if "00000000006" in str(list(root.parents)) or calls:
            calls.append(root)
            raise OSError(code, os.strerror(code))
        calls.append(root)
        return real(root)

    calls: list[Path] = []
    real = checkpoint.write_digests
    monkeypatch.setattr(checkpoint, "write_digests", refuse)
    result = small(tmp_path / "run")
    assert [row["frames"] for row in result.history] == [30, 60, 90, 120]
    assert result.history[-1]["updates"] == 100
    assert len(calls) >= 4
    assert result.unsaved == {"checkpoints": 60}
    assert result.stopped_by is None
    (kept,) = checkpoints(result.folder)
    assert saved_frames(result.folder) == 30
    assert not list((result.folder / "checkpoints").glob(".saving-*"))
    assert f"{os.strerror(code)}; the checkpoints before it are untouched; training goes on" in (
        caplog.text
    )
    check_folder(result.folder)
    monkeypatch.undo()
    again = resume(result.folder)
    assert [row["frames"] for row in again.history] == [30, 60, 90, 120]
    assert saved_frames(result.folder) == 120
    assert kept in checkpoints(result.folder) or len(checkpoints(result.folder)) >= 2


@pytest.mark.parametrize("name", ["metrics.csv", "policy_best.pt", "policy.pt", "curve"])
def test_no_other_file_that_cannot_be_written_ends_the_run(tmp_path, monkeypatch, name):
    from torchrl_elegant.runs import curve
    from torchrl_elegant.runs import metrics as metrics_file
    from torchrl_elegant.runs.exported import policy_file

    failed = []

    def refuse(*args, **kwargs):
        failed.append(args)
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    if name == "curve":
        monkeypatch.setattr(curve, "draw_curve", refuse)
    elif name == "metrics.csv":
        monkeypatch.setattr(metrics_file, "_write_all", refuse)
    else:
        real = policy_file.write_file
        monkeypatch.setattr(
            policy_file,
            "write_file",
            lambda path, data: refuse(path) if path.name == name else real(path, data),
        )
    result = small(tmp_path / "run")
    assert failed
    assert result.unsaved == ({"learning_curve.png": 120} if name == "curve" else {name: 30})
    assert saved_frames(result.folder) == 120
    check_folder(result.folder)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Callable[[str], Path | None]]:
    """Makes a file system of a given size; gives None where none may be mounted."""
    where, mounted = tmp_path / "disk", []

    def mount(size: str) -> Path | None:
        where.mkdir()
        words = ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(where)]
        try:
            done = subprocess.run(words, capture_output=True, check=False).returncode == 0
        except OSError:
            done = False
        if done:
            mounted.append(where)
        return where if done else None

    yield mount
    for path in mounted:
        subprocess.run(["umount", str(path)], check=True)


def command(folder: Path, capsys) -> tuple[int, list[str]]:
    """Exit code and lines of a run of ten checkpoints, of about 100 kB each."""
    words = [word for word in SMALL if not word.startswith(("logger", "num_cells"))]
    words += [f"folder={folder}", "num_cells=64", "updates_per_frame=0.2", "episode_log=true"]
    words += ["total_frames=800", "checkpoint_interval=80", "eval_interval=80"]
    code = train_command([*words, "logger=tensorboard"], program="train", default="sac")
    streams = capsys.readouterr()
    assert streams.out == ""
    assert "Traceback" not in streams.err
    return code, streams.err.splitlines()


# Nothing but configuration and metrics, all but a checkpoint, and some of the checkpoints fit.
@pytest.mark.parametrize(("size", "fits"), [("12k", ""), ("40k", "policy.pt"), ("300k", "all")])
def test_a_full_disk_is_outlived_and_told(small_disk, tmp_path, capsys, size, fits):
    disk = small_disk(size)
    folder = (disk or tmp_path) / "run"
    code, lines = command(folder, capsys)
    check_folder(folder)
    if disk is None:
        # Without the right to mount, the disk was not full; the tests above inject the error.
        assert (code, saved_frames(folder)) == (0, 800)
        return
    assert code == 1
    frames = saved_frames(folder)
    assert (frames > 0) == (fits == "all")
    assert frames < 800
    assert (folder / "policy.pt").exists() == bool(fits)
    assert sum("No space left on device; the checkpoints" in line for line in lines) == 1
    assert any("training goes on" in line for line in lines)
    # The last words: which file, since when, and how much is there.
    told = lines[lines.index(f"run folder: {folder}") + 1 :]
    (line,) = [line for line in told if line.startswith("warning: checkpoints could not be")]
    since = int(line.removeprefix("warning: checkpoints could not be written since frame "))
    assert frames < since <= frames + 80
    newest = checkpoints(folder)[-1] if frames else "none, so that this run cannot be resumed"
    assert told[-1] == f"warning: newest whole checkpoint: {newest}"
    assert read_metrics(folder / "metrics.csv")[-1]["frames"] == 800


def test_a_disk_without_room_for_a_folder_is_named_in_one_line(
    small_disk, tmp_path, capsys, monkeypatch
):
    disk = small_disk("4k")
    if disk is None:
        monkeypatch.setattr(files.os, "fsync", lambda descriptor: no_space())
    folder = (disk or tmp_path) / "run"
    code, lines = command(folder, capsys)
    (line,) = lines
    assert code == 1
    assert line.startswith(f"error: No space left on device: {folder}/")


def no_space() -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_a_disk_that_has_room_again_leaves_a_whole_run(tmp_path, monkeypatch, capsys):
    """Files that could not be written in between are there in the end, and the exit code is 0."""
    calls = []

    def sometimes(root):
        calls.append(root)
        if 1 < len(calls) < 5:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return real(root)

    real = checkpoint.write_digests
    monkeypatch.setattr(checkpoint, "write_digests", sometimes)
    code, lines = command(tmp_path / "run", capsys)
    assert code == 0
    assert saved_frames(tmp_path / "run") == 800
    assert sum("training goes on" in line for line in lines) == 1
    assert lines[-1] == f"run folder: {tmp_path / 'run'}"
