"""Killed, interrupted and asked to end: what is learnt is there, and the run goes on."""

from __future__ import annotations

import os
import random
import signal
from pathlib import Path

import pytest
from faults.kills import ASYNC, INTERVAL, KilledRun
from faults.runs import (
    PATIENCE,
    SMALL,
    check_folder,
    checkpoints,
    command_line,
    end_session,
    saved_frames,
    saved_learner,
    seen_frames,
    session_members,
    start,
    wait_for_empty_session,
    wait_until,
)

from torchrl_elegant.runs.metrics import read_metrics

ENDLESS = (*SMALL, "total_frames=10_000_000", f"checkpoint_interval={INTERVAL}")


@pytest.fixture
def begin(tmp_path: Path):
    """Starts training processes; none is left when the test ends."""
    started = []

    def new(*words: str):
        started.append(start(words, log=tmp_path / "log"))
        return started[-1]

    yield new
    for process in started:
        end_session(process.pid)
        process.wait(PATIENCE)


def kill(process) -> None:
    process.kill()
    assert process.wait(PATIENCE) == -signal.SIGKILL
    # No worker process may be left behind.
    wait_for_empty_session(process.pid)


@pytest.mark.parametrize(("mode", "times"), [("sync", 2), ("async", 1), ("parallel", 1)])
def test_a_killed_run_goes_on_and_loses_little(tmp_path, mode, times):
    moments = random.Random(mode)
    run = KilledRun(mode, folder=tmp_path / "run", log=tmp_path / "log")
    try:
        for _ in range(times):
            _, lost = run.kill(moments)
            assert lost <= INTERVAL + 40
        run.stop()
    finally:
        run.end()


def test_a_run_killed_before_its_first_checkpoint_starts_over(begin, tmp_path):
    folder = tmp_path / "run"
    words = (*SMALL, "total_frames=1_000_000", "checkpoint_interval=1_000_000", "eval_interval=999")
    process = begin(*words, f"folder={folder}")
    wait_until(lambda: (folder / "config.yaml").exists(), process)
    kill(process)
    process = begin(f"resume={folder}", "trust=true", "total_frames=64", "eval_interval=32")
    assert process.wait(PATIENCE) == 0
    assert [row["frames"] for row in read_metrics(folder / "metrics.csv")] == [32, 64]


@pytest.mark.parametrize(
    ("number", "mode"), [(signal.SIGTERM, ()), (signal.SIGINT, ASYNC)], ids=["sync", "async"]
)
def test_a_signal_saves_and_ends_in_good_order(begin, tmp_path, number, mode):
    folder = tmp_path / "run"
    process = begin(
        *SMALL,
        "total_frames=10_000_000",
        "checkpoint_interval=10_000_000",
        "eval_interval=100",
        f"folder={folder}",
        *mode,
    )
    wait_until(lambda: seen_frames(folder) >= 200, process)
    # As a terminal does it: to every process of the group.
    os.killpg(process.pid, number)
    assert process.wait(PATIENCE) == 128 + number
    wait_for_empty_session(process.pid)
    frames = saved_frames(folder)
    assert frames >= seen_frames(folder)
    assert f"stopped early: {number.name}\n" in (tmp_path / "log").read_text()
    process = begin(f"resume={folder}", "trust=true", f"total_frames={frames + 160}")
    assert process.wait(PATIENCE) == 0
    assert f"going on from frame {frames} " in (tmp_path / "log").read_text()
    # The synchronous mode collects whole batches of 16.
    assert saved_frames(folder) == frames + 160
    learner = saved_learner(checkpoints(folder)[-1])
    assert learner["updates"] == frames + 140
    check_folder(folder)


def test_a_killed_worker_is_named_and_nothing_is_left(begin, tmp_path):
    folder = tmp_path / "run"
    process = begin(*ENDLESS, "eval_interval=100", f"folder={folder}", *ASYNC)
    wait_until(lambda: saved_frames(folder) >= INTERVAL, process)
    workers = [
        pid
        for pid in session_members(process.pid)
        if pid != process.pid and "resource_tracker" not in command_line(pid)
    ]
    assert len(workers) == 2
    os.kill(workers[0], signal.SIGKILL)
    assert process.wait(PATIENCE) == 1
    wait_for_empty_session(process.pid)
    lines = (tmp_path / "log").read_text().splitlines()
    (error,) = [line for line in lines if line.startswith("error: ")]
    assert f"(pid {workers[0]}) was killed by SIGKILL" in error
    assert "error: worker" in error
    assert not any("Traceback" in line for line in lines)
    check_folder(folder)
    found = saved_frames(folder)
    process = begin(f"resume={folder}", "trust=true", f"total_frames={found + 100}")
    assert process.wait(PATIENCE) == 0
    assert saved_frames(folder) == found + 100
