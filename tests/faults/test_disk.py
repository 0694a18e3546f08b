"""A full disk: the run goes on beside its last good checkpoint."""

from __future__ import annotations

import errno
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from faults.runs import SMALL, check_folder, checkpoints, run, saved_frames

from torchrl_elegant.algorithms import SACConfig
from torchrl_elegant.runs import checkpoints as checkpoint
from torchrl_elegant.runs import resume, train
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
    from torchrl_elegant.runs import policy as policy_file

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
    assert saved_frames(result.folder) == 120
    check_folder(result.folder)


@pytest.fixture
def tiny_disk(tmp_path: Path) -> Iterator[Path | None]:
    """A file system of 600 kB, or None where none may be mounted."""
    where = tmp_path / "disk"
    where.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=600k", "tmpfs", str(where)]
    try:
        mounted = subprocess.run(command, capture_output=True, check=False).returncode == 0
    except OSError:
        mounted = False
    yield where if mounted else None
    if mounted:
        subprocess.run(["umount", str(where)], check=True)


def test_a_full_disk_is_outlived(tiny_disk, tmp_path):
    folder = (tiny_disk or tmp_path) / "run"
    words = (
        *(word for word in SMALL if not word.startswith("logger")),
        "logger=tensorboard",
        f"folder={folder}",
        "total_frames=6_400",
        "checkpoint_interval=320",
        "eval_interval=320",
        "num_cells=64",
        "updates_per_frame=0.2",
    )
    words = tuple(word for word in words if word != "num_cells=8")
    done = run(words)
    assert done.returncode == 0, done.stderr[-2_000:]
    assert done.stderr.count("Traceback") == 0
    check_folder(folder)
    frames = saved_frames(folder)
    assert frames > 0
    output = done.stdout + done.stderr
    if tiny_disk is None:
        # Without the right to mount, the disk was not full; the test above injects the error.
        assert frames == 6_400
    else:
        assert "No space left on device" in output
        assert "training goes on" in output
        assert frames < 6_400
        assert read_metrics(folder / "metrics.csv")
