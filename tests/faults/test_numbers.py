"""Rewards and losses that are not numbers: the run ends with one line that says where."""

from __future__ import annotations

import math
import re
from pathlib import Path

import pytest
from faults.runs import SMALL, check_folder, checkpoints, run, saved_frames, saved_learner

from torchrl_elegant.runs.metrics import read_metrics

SYNC = ("frames_per_batch=1",)
ASYNC = ("collector=async", "num_workers=1", "frames_per_batch=4")


def stopped(folder: Path, factory: str, *words: str, at: int = 70, every: int = 30) -> str:
    done = run(
        [
            *SMALL[1:],
            f"env=faults.fault_envs:{factory}",
            f"env_kwargs.at={at}",
            "total_frames=1_000",
            f"checkpoint_interval={every}",
            f"eval_interval={every}",
            f"folder={folder}",
            *words,
        ]
    )
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1].startswith("error: ")
    assert "Traceback" not in done.stderr
    (line,) = [line for line in done.stderr.splitlines() if line.startswith("error: ")]
    check_folder(folder)
    for row in read_metrics(folder / "metrics.csv"):
        known = [
            name for name in row if not name.startswith(("train_", "loss", "alpha", "entropy"))
        ]
        assert all(math.isfinite(row[name]) for name in known if name != "return_ci95"), row
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


@pytest.mark.parametrize("mode", [SYNC, ("frames_per_batch=8",), ASYNC], ids=["1", "8", "async"])
def test_a_nan_observation_is_traced_and_no_nan_action_follows(tmp_path, mode):
    line = stopped(tmp_path / "run", "Sick", "env_kwargs.where=observation", *mode)
    told = "`observation` must be finite, got `nan` from sub environment 0 at frame 70;"
    assert told in line
    assert ("worker 0" in line) == (mode is ASYNC)


@pytest.mark.parametrize("where", ["reward", "observation"])
def test_a_nan_in_an_evaluation_is_traced_to_its_step(tmp_path, where):
    # The environment of evaluations is at its 30th step when training is at its 20th.
    words = (f"env_kwargs.where={where}", *SYNC)
    line = stopped(tmp_path / "run", "Sick", *words, at=30, every=10)
    told = f"`{where}` must be finite, got `nan` from sub environment 0 of Sick at step 10 of an"
    assert told in line
    assert [row["frames"] for row in read_metrics(tmp_path / "run" / "metrics.csv")] == [10]
    assert saved_frames(tmp_path / "run") == 10
