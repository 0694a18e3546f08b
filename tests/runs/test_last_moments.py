"""Runs that are ended after their last frame and before their last file: they finish later."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest
from faults.fault_envs import point
from quiet_runs import QUIET

from torchrl_elegant.algorithms import AlgorithmConfig, PPOConfig, SACConfig
from torchrl_elegant.config.text import UsageError
from torchrl_elegant.runs import Trial, resume, train
from torchrl_elegant.runs.policy import Policy
from torchrl_elegant.runs.reporter import Reporter
from torchrl_elegant.trainers.evaluation import PlayStopped

SAC = SACConfig(num_cells=(8,), batch_size=8, warmup=20)
FRAMES = 64
WORDS = {
    "total_frames": FRAMES,
    "eval_interval": 32,
    "checkpoint_interval": 32,
    "eval_episodes": 1,
    "frames_per_batch": 16,
    **QUIET,
}
MODES = {
    "sync": (SAC, {}),
    "no buffer": (SAC, {"save_buffer": False}),
    "async": (SAC, {"collector": "async", "num_workers": 1, "push_interval": 2}),
    "rollouts": (PPOConfig(num_cells=(8,), batch_size=8, epochs=1), {}),
}


def at_the_end(monkeypatch: pytest.MonkeyPatch, method: str, owner: type, do: Callable) -> None:
    """Have a method do something first once all frames are collected."""
    real = getattr(owner, method)

    def watched(self, *args, **kwargs):
        trial = self if isinstance(self, Trial) else self._run.trial
        if trial.ledger.is_full:
            do()
        return real(self, *args, **kwargs)

    monkeypatch.setattr(owner, method, watched)


def killed() -> None:
    raise KeyboardInterrupt


def asked_to_end() -> None:
    os.kill(os.getpid(), signal.SIGTERM)
    raise PlayStopped


@pytest.mark.parametrize("mode", MODES)
def test_a_run_killed_before_its_last_policy_writes_it_when_it_goes_on(tmp_path, monkeypatch, mode):
    config, more = MODES[mode]
    folder = killed_before_the_policy(tmp_path / "run", monkeypatch, config, **more)
    assert Policy.load(folder / "policy.pt").metadata["frames"] < FRAMES
    before = (folder / "metrics.csv").read_bytes()
    result = resume(folder, env_factory=point)
    found = Policy.load(folder / "policy.pt").metadata
    assert (found["frames"], found["return_mean"]) == (FRAMES, result.history[-1]["return_mean"])
    assert (folder / "metrics.csv").read_bytes() == before
    assert (folder / "learning_curve.png").is_file()
    with pytest.raises(UsageError, match="`total_frames` must exceed the 64 frames"):
        resume(folder, env_factory=point)


def killed_before_the_policy(
    folder: Path, monkeypatch: pytest.MonkeyPatch, config: AlgorithmConfig = SAC, **more
) -> Path:
    with monkeypatch.context() as inside:
        at_the_end(inside, "policy", Reporter, killed)
        with pytest.raises(KeyboardInterrupt):
            train(config, point, folder=str(folder), **{**WORDS, **more})
    return folder


def test_a_signal_during_the_last_evaluation_leaves_it_to_do(tmp_path, monkeypatch):
    folder = tmp_path / "run"
    with monkeypatch.context() as inside:
        at_the_end(inside, "evaluate", Trial, asked_to_end)
        result = train(SAC, point, folder=str(folder), **WORDS)
    assert (result.exit_code, result.history[-1]["frames"]) == (143, 32)
    again = resume(folder, env_factory=point)
    assert [row["frames"] for row in again.history] == [32, FRAMES]
    assert again.history[-1]["updates"] == FRAMES - 20


def test_a_damaged_table_is_refused_before_anything_is_said_or_changed(tmp_path, caplog):
    folder = train(SAC, point, folder=str(tmp_path / "run"), episode_log=True, **WORDS).folder
    for name in ("metrics.csv", "episodes.csv"):
        good = (folder / name).read_bytes()
        first, rest = good.split(b"\n", 1)
        (folder / name).write_bytes(first + b"\n" + b"x" + rest)
        before = {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}
        caplog.clear()
        with pytest.raises(UsageError, match=rf"{name} must hold a number or nothing"):
            resume(folder, env_factory=point, total_frames=96)
        assert "going on" not in caplog.text
        assert before == {
            path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()
        }
        (folder / name).write_bytes(good)
