"""`episodes.csv`: each finished training episode, however it was collected."""

from __future__ import annotations

import numpy as np
import pytest

from torchrl_elegant.algorithms import PPOConfig, SACConfig
from torchrl_elegant.runs import resume, train
from torchrl_elegant.runs.metrics import read_metrics

SAC = SACConfig(num_cells=(8,), batch_size=8, warmup=20, updates_per_frame=0.1)
PPO = PPOConfig(num_cells=(8,), batch_size=40, epochs=1)
WORKERS = {"num_workers": 2, "frames_per_batch": 40}
# Configuration, how it collects, and environments that step together.
WAYS = {
    "sync": (SAC, {"frames_per_batch": 8}, 1),
    "sync, several": (SAC, {"num_envs": 4, "frames_per_batch": 8}, 4),
    "rollouts": (PPO, {"num_envs": 2, "frames_per_batch": 80}, 2),
    "parallel": (PPO, {"collector": "parallel", "num_envs": 2, **WORKERS}, 4),
    "ahead": (PPO, {"collector": "async", "num_envs": 2, **WORKERS}, 4),
    "async": (SAC, {"collector": "async", **WORKERS, "frames_per_batch": 8}, 2),
}


def go(folder, way, **run):
    config, words, _ = WAYS[way]
    settings = {
        "total_frames": 480,
        "eval_interval": 160,
        "eval_episodes": 1,
        "checkpoint_interval": 160,
        "logger": "none",
        "folder": str(folder),
        "episode_log": True,
    }
    return train(config, "faults.fault_envs:point", **{**settings, **words, **run})


@pytest.mark.parametrize("way", WAYS)
def test_each_finished_episode_has_a_row(tmp_path, way):
    result = go(tmp_path / "run", way)
    envs = WAYS[way][2]
    rows = read_metrics(result.folder / "episodes.csv")
    assert list(rows[0]) == ["frame", "seconds", "return", "length"]
    # Of twenty steps each; workers may be within their last episode at the end.
    assert len(rows) == 480 // 20 or (way == "async" and abs(len(rows) - 24) <= envs)
    assert {row["length"] for row in rows} == {20}
    frames = [row["frame"] for row in rows]
    if way != "async":
        assert frames == [20 * envs * (1 + number // envs) for number in range(24)]
    assert frames == sorted(frames)
    seconds = [row["seconds"] for row in rows]
    assert seconds == sorted(seconds)
    assert 0 < seconds[0] <= seconds[-1] <= result.history[-1]["seconds"] + 5
    assert all(-40 <= row["return"] <= 0 for row in rows)
    # The mean of training in a row of metrics is that of its episodes.
    if way != "async":
        first = result.history[0]
        seen = [row["return"] for row in rows if row["frame"] <= first["frames"]]
        assert first["train_return"] == pytest.approx(np.mean(seen), rel=1e-4)


def test_without_the_option_there_is_no_file(tmp_path):
    result = go(tmp_path / "run", "sync", episode_log=False, total_frames=160)
    assert not (result.folder / "episodes.csv").exists()


def test_the_log_changes_nothing_of_the_run(tmp_path):
    runs = [go(tmp_path / str(on), "sync, several", episode_log=on) for on in (False, True)]
    timed = ("seconds", "share", "frames_per", "updates_per")
    rows = [
        [{k: v for k, v in row.items() if not k.startswith(timed)} for row in run.history]
        for run in runs
    ]
    np.testing.assert_equal(rows[0], rows[1])


def test_a_run_that_goes_on_drops_the_episodes_of_lost_work_and_keeps_all_others(tmp_path):
    first = go(tmp_path / "run", "sync", total_frames=160)
    path = first.folder / "episodes.csv"
    before = path.read_text()
    with path.open("a") as file:
        file.write("180,9.5,-1.0,20\n200,9.")  # after the checkpoint, and torn
    resume(first.folder, total_frames=320)
    after = path.read_text()
    assert after.startswith(before)
    frames = [row["frame"] for row in read_metrics(path)]
    # The environments of a run that goes on begin new episodes.
    assert frames == [*range(20, 321, 20)]


def test_a_full_disk_keeps_the_episodes_until_there_is_room(tmp_path, monkeypatch):
    from torchrl_elegant.runs import metrics

    calls = []

    def sometimes(file, data):
        calls.append(file.name)
        if sum("episodes" in name for name in calls) == 1 and "episodes" in file.name:
            raise OSError(28, "No space left on device")
        return real(file, data)

    real = metrics._write_all
    monkeypatch.setattr(metrics, "_write_all", sometimes)
    result = go(tmp_path / "run", "sync")
    assert result.unsaved == {}
    assert len(read_metrics(result.folder / "episodes.csv")) == 24
