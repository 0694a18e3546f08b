"""Two ranks under torchrun train one policy."""

from __future__ import annotations

import math
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from faults.runs import (
    PATIENCE,
    SMALL,
    check_folder,
    end_session,
    environment,
    run,
    saved_frames,
    seen_frames,
    start,
    wait_for_empty_session,
    wait_until,
)
from sameness import assert_same

from torchrl_elegant.algorithms import SACConfig
from torchrl_elegant.config.text import UsageError
from torchrl_elegant.runs.metrics import read_metrics
from torchrl_elegant.trainers.family import family_of
from torchrl_elegant.trainers.ranks import Ranks
from torchrl_elegant.trainers.run_config import RunConfig

DRIVER = Path(__file__).with_name("ranks_driver.py")
TWO = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2")


def begin(task: str, folder: Path, *ranks: str, launcher: tuple[str, ...] = ()) -> subprocess.Popen:
    with (folder / "log").open("ab") as log:
        return subprocess.Popen(
            [sys.executable, *launcher, str(DRIVER), task, str(folder), *ranks],
            stdout=log,
            stderr=log,
            env=environment(),
            start_new_session=True,
        )


def complete(task: str, folder: Path, *ranks: str) -> None:
    process = begin(task, folder, *ranks)
    try:
        code = process.wait(PATIENCE)
        assert code == 0, (folder / "log").read_text()[-3_000:]
        wait_for_empty_session(process.pid)
    finally:
        end_session(process.pid)


def pages(folder: Path) -> list[dict]:
    return [torch.load(folder / f"rank-{rank}.pt", weights_only=False) for rank in range(2)]


def trained(page: dict) -> dict:
    """What must agree: all but the running statistics of the batches that a rank has seen."""
    learner = dict(page["learner"])
    learner["loss"] = {
        name: value
        for name, value in learner["loss"].items()
        if name not in ("target_variance", "mean_std")
    }
    assert any("target" in name for name in learner["loss"])
    return learner


def test_averaged_gradients_are_those_of_the_whole_batch(tmp_path):
    complete("gradients", tmp_path, "2")
    complete("gradients", tmp_path)
    first, second, alone = (
        torch.load(tmp_path / f"gradients-{name}.pt") for name in ("2-0", "2-1", "1-0")
    )
    assert len(alone) > 4
    assert any(bool(gradient.abs().max() > 1e-3) for gradient in alone)
    for one, other, whole in zip(first, second, alone, strict=True):
        assert torch.equal(one, other)
        torch.testing.assert_close(one, whole, rtol=1e-4, atol=1e-6)


def test_two_ranks_train_one_policy_and_the_first_alone_writes(tmp_path):
    complete("train", tmp_path, "2")
    first, second = pages(tmp_path)
    # Networks, targets, moments, temperature, ModSAC's schedule and the running scales of what
    # both have seen, to the last bit.
    assert_same(trained(first), trained(second))
    assert first["learner"]["add_ons"]["scaling"]["returns"]["count"] == 200
    assert first["learner"]["schedule"]["critic_updates"] == 160
    assert first["frames"] == second["frames"] == 200
    assert first["rows"] == second["rows"] == 100
    assert first["learner"]["updates"] == 160
    # Noise of their own, from the first frame on, where actions are drawn by chance alone.
    assert not torch.isin(first["actions"], second["actions"]).any()
    assert (first["watches"], second["watches"]) == (True, False)
    assert second["history"] == 0
    rows = read_metrics(tmp_path / "run" / "metrics.csv")
    assert [row["frames"] for row in rows] == [80, 160, 200]
    assert [path.name for path in tmp_path.glob("run*")] == ["run"]
    check_folder(tmp_path / "run")


def test_two_ranks_end_at_the_total(tmp_path):
    complete("uneven", tmp_path, "2")
    first, second = pages(tmp_path)
    assert first["frames"] == second["frames"] == 100
    assert first["rows"] == second["rows"] == 50
    assert_same(trained(first), trained(second))


def test_two_ranks_learn_one_policy_from_rollouts_of_their_own(tmp_path):
    complete("on_policy", tmp_path, "2")
    first, second = pages(tmp_path)
    assert_same(first["learner"], second["learner"])
    assert first["learner"]["add_ons"]["scaling"]["observations"]["observation"]["count"] == 108
    # Of each rollout of 40 frames 20 a rank, in batches of 8; of the last 28 frames 14.
    assert first["rows"] == second["rows"] == [20, 20, 14]
    assert first["frames"] == second["frames"] == 108
    assert first["learner"]["updates"] == (3 + 3 + 2) * 2
    assert not set(first["first"]) & set(second["first"])
    assert (first["watches"], second["watches"]) == (True, False)
    rows = read_metrics(tmp_path / "run" / "metrics.csv")
    assert [row["frames"] for row in rows] == [80, 108]
    check_folder(tmp_path / "run")


@pytest.mark.parametrize(("task", "frames"), [("hterm", 200), ("on_policy_hterm", 108)])
def test_two_ranks_with_stores_of_their_own_slices_train_one_policy(tmp_path, task, frames):
    complete(task, tmp_path, "2")
    first, second = pages(tmp_path)
    terms = [page["learner"]["add_ons"].pop("hterm") for page in (first, second)]
    left, right = (
        trained(page) if task == "hterm" else page["learner"] for page in (first, second)
    )
    assert_same(left, right)
    # Each has seen its half of the frames, keeps its share of slices, and knows its own rewards.
    for term in terms:
        assert term["store"]["frames"] == frames // 2
        assert 0 < len(term["store"]["kept"]["action"]) <= 16
        assert (term["store"]["kept"]["_born"] > frames // 2 - 40).all()
        assert term["calls"] > 4
    one, other = (term["store"]["kept"]["observation"][..., 0] for term in terms)
    assert not torch.isin(one, other).any()
    assert terms[0]["scale"]["mean"] != terms[1]["scale"]["mean"]
    rows = read_metrics(tmp_path / "run" / "metrics.csv")
    assert math.isfinite(rows[-1]["loss_hamiltonian"])


def test_ranks_that_go_on_draw_slices_of_their_own(tmp_path):
    complete("hterm,hterm_goes_on", tmp_path, "2")
    first, second = pages(tmp_path)
    assert first["frames"] == second["frames"] == 440
    one, other = (
        page["learner"]["add_ons"].pop("hterm")["store"]["generator"] for page in (first, second)
    )
    assert not torch.equal(one, other)
    assert_same(trained(first), trained(second))


def test_a_reached_return_ends_both_ranks(tmp_path):
    complete("goal", tmp_path, "2")
    first, second = pages(tmp_path)
    assert first["frames"] == second["frames"] == 80
    assert first["stopped_by"] == second["stopped_by"] == "target_return"
    assert_same(trained(first), trained(second))


def test_a_signal_to_one_rank_is_the_reason_of_both(tmp_path):
    complete("one", tmp_path, "2")
    first, second = pages(tmp_path)
    assert first["stopped_by"] == second["stopped_by"] == "SIGINT"
    assert first["frames"] == second["frames"] == saved_frames(tmp_path / "run")
    assert_same(trained(first), trained(second))


def test_a_signal_ends_both_ranks_and_the_run_goes_on(tmp_path):
    process = begin("endless", tmp_path, launcher=TWO)
    try:
        wait_until(lambda: seen_frames(tmp_path / "run") >= 80, process)
        os.kill(process.pid, signal.SIGTERM)
        process.wait(PATIENCE)
        wait_for_empty_session(process.pid)
    finally:
        end_session(process.pid)
    first, second = pages(tmp_path)
    assert_same(trained(first), trained(second))
    assert first["frames"] == second["frames"] == saved_frames(tmp_path / "run") >= 80
    assert first["stopped_by"] == second["stopped_by"] == "SIGTERM"
    check_folder(tmp_path / "run")


def test_the_script_runs_under_torchrun_and_resumes_there(tmp_path):
    folder, log = tmp_path / "run", tmp_path / "log"
    batch = ("frames_per_batch=4", "eval_interval=40")
    for words in (
        (*SMALL, *batch, "total_frames=80", f"folder={folder}"),
        (f"resume={folder}", "trust=true", "total_frames=200"),
    ):
        process = start(words, launcher=TWO, log=log)
        try:
            assert process.wait(PATIENCE) == 0, log.read_text()[-3_000:]
        finally:
            end_session(process.pid)
    frames = {row["frames"]: row["updates"] for row in read_metrics(folder / "metrics.csv")}
    # The ranks fill their buffers anew: 80 frames more without an update.
    assert frames == {40: 20, 80: 60, 120: 60, 160: 60, 200: 100}
    check_folder(folder)


def test_alone_there_is_nothing_to_share():
    with Ranks() as ranks:
        value = torch.tensor(3.0)
        assert ranks.average_(value) is value
        assert ranks.same("a") == "a"
        assert ranks.agree(None) is None
        assert ranks.agree("SIGTERM") == "SIGTERM"


@pytest.fixture
def three_ranks(monkeypatch: pytest.MonkeyPatch) -> Ranks:
    monkeypatch.setenv("WORLD_SIZE", "3")
    monkeypatch.setenv("RANK", "1")
    return Ranks()


def test_ranks_share_batch_and_buffer(three_ranks):
    assert not three_ranks.is_first
    config = SACConfig(batch_size=9, buffer_size=100)
    share = family_of(RunConfig(), config, three_ranks).share
    assert (share.batch_size, share.buffer_size) == (3, 34)


def test_what_ranks_cannot_share_is_refused(three_ranks):
    with pytest.raises(UsageError, match="`batch_size` must be a multiple of the 3 ranks, got 8"):
        family_of(RunConfig(), SACConfig(batch_size=8), three_ranks)
    told = r"multiple of the 3 ranks times sequence_length \(16\), got 64"
    with pytest.raises(UsageError, match=told):
        family_of(RunConfig(), SACConfig(batch_size=64, recurrent=True), three_ranks)
    with pytest.raises(UsageError, match="`collector` must be sync under torchrun"):
        family_of(RunConfig(collector="async"), SACConfig(batch_size=9), three_ranks)


def test_one_gpu_for_all_ranks_is_refused(three_ranks):
    with pytest.raises(UsageError, match="`device` must be cuda under torchrun, got 'cuda:1'"):
        Ranks(torch.device("cuda", 1))
    assert three_ranks.count == 3


def test_a_mistake_under_torchrun_leaves_no_folder(tmp_path, monkeypatch):
    for name, value in {"WORLD_SIZE": "1", "RANK": "0"}.items():
        monkeypatch.setenv(name, value)
    done = run([*SMALL, "total_frames=10", f"folder={tmp_path / 'run'}"])
    assert done.returncode == 2
    assert not (tmp_path / "run").exists()
