"""Rewards and losses that are not numbers: the run ends with one line that says where."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from faults.runs import SMALL, check_folder, checkpoints, run, saved_frames, saved_learner

SYNC = ("frames_per_batch=1",)
ASYNC = ("collector=async", "num_workers=1", "frames_per_batch=4")


def stopped(folder: Path, factory: str, *words: str) -> str:
    done = run(
        [
            *SMALL[1:],
            f"env=faults.fault_envs:{factory}",
            "env_kwargs.at=70",
            "total_frames=1_000",
            "checkpoint_interval=30",
            "eval_interval=30",
            f"folder={folder}",
            *words,
        ]
    )
    assert done.returncode == 1
    # The last word; a worker may have printed where its environment failed before.
    assert done.stderr.splitlines()[-1].startswith("error: ")
    assert "Traceback" not in done.stderr or ASYNC[0] in words
    (line,) = [line for line in done.stderr.splitlines() if line.startswith("error: ")]
    check_folder(folder)
    stored = saved_learner(checkpoints(folder)[-1])["loss"]
    assert all(value.isfinite().all() for value in stored.values() if value.is_floating_point())
    return line


@pytest.mark.parametrize("mode", [SYNC, ASYNC], ids=["sync", "async"])
def test_a_nan_reward_is_traced_to_its_frame(tmp_path, mode):
    line = stopped(tmp_path / "run", "nan_reward", *mode)
    assert "`reward` must be finite, got `nan` from sub environment 0 at frame 70;" in line
    assert ("worker 0" in line) == (mode is ASYNC)


def test_a_loss_beyond_all_numbers_is_traced_to_its_term(tmp_path):
    line = stopped(tmp_path / "run", "huge_reward", *SYNC)
    assert re.search(r"`loss_qvalue` is inf at update \d+; .*; stopped at frame \d+$", line)
    # Caught at the update that met it, not at the next evaluation.
    assert saved_frames(tmp_path / "run") >= 60
