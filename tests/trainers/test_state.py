"""The stored side of a run."""

from __future__ import annotations

from pathlib import Path

import pytest

from torchrl_elegant.algorithms import SACConfig
from torchrl_elegant.data import make_buffer
from torchrl_elegant.envs import make_env
from torchrl_elegant.trainers.config import RunConfig
from torchrl_elegant.trainers.distributed import Ranks
from torchrl_elegant.trainers.learner import Learner
from torchrl_elegant.trainers.state import RunState, open_run

CONFIG = SACConfig(num_cells=(8,), batch_size=8, warmup=20)


def opened(path: Path, *, again: bool = False, **run) -> tuple[RunState, Learner, object]:
    env = make_env("faults.fault_envs:point", 1, seed=0)
    learner = Learner(CONFIG.build(env))
    buffer = make_buffer(size=100)
    config = RunConfig(folder=str(path), total_frames=1_000, logger="none", **run)
    if not again:
        buffer.extend(env.rollout(10).reshape(-1).select(*learner.loss.in_keys))
    folder = path if again else None
    return open_run(config, CONFIG, learner, buffer, ranks=Ranks(), folder=folder), learner, buffer


@pytest.mark.parametrize(("kept", "rows", "refill"), [(True, 10, 0), (False, 0, 60)])
def test_a_run_is_found_as_it_was_left(tmp_path, kept, rows, refill):
    state, learner, _ = opened(tmp_path / "run", save_buffer=kept)
    learner.updates, state.progress.frames, state.progress.debt = 33, 60, 7.0
    state.checkpoints.save(60, {})
    state.folder.metrics.append({"frames": 60, "updates": 33})
    state.folder.metrics.append({"frames": 70, "updates": 50})
    state.folder.stop_path.touch()
    again, found, buffer = opened(tmp_path / "run", again=True, save_buffer=kept)
    counters = again.counters
    assert (counters.frames, counters.updates, counters.debt) == (60, 33, 7.0)
    assert (found.updates, len(buffer), counters.refill) == (33, rows, refill)
    assert [row["frames"] for row in again.folder.metrics.rows()] == [60]
    assert not again.folder.stop_path.exists()


def test_a_damaged_checkpoint_is_passed_over(tmp_path, caplog):
    state, learner, _ = opened(tmp_path / "run")
    for frames in (30, 60):
        learner.updates = state.progress.frames = frames
        last = state.checkpoints.save(frames, {})
    victim = next((last / "components").rglob("state.pt"))
    victim.write_bytes(victim.read_bytes()[:-5])
    again, found, _ = opened(tmp_path / "run", again=True)
    assert again.counters.frames == found.updates == 30
    assert "is damaged and passed over" in caplog.text


def test_a_run_without_a_checkpoint_starts_over(tmp_path):
    opened(tmp_path / "run")
    again, learner, buffer = opened(tmp_path / "run", again=True)
    assert (again.counters.frames, again.counters.refill, learner.updates, len(buffer)) == (0,) * 4
