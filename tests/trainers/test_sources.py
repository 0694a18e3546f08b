"""The two modes of collection: frames, updates owed, weights, pauses."""

from __future__ import annotations

import multiprocessing
from functools import partial
from pathlib import Path
from unittest.mock import Mock

import pytest
import torch
from faults.runs import check_folder, saved_frames
from torch import nn

from torchrl_elegant.algorithms import DDPGConfig, ModSACConfig, SACConfig
from torchrl_elegant.collectors import SyncCollector
from torchrl_elegant.data import make_buffer
from torchrl_elegant.envs import make_env
from torchrl_elegant.runs import collection
from torchrl_elegant.runs.collection import build_source
from torchrl_elegant.runs.plan import Counters, planned
from torchrl_elegant.runs.train import resume, train
from torchrl_elegant.trainers.learner import Learner
from torchrl_elegant.trainers.ranks import Ranks
from torchrl_elegant.trainers.run_config import RunConfig
from torchrl_elegant.trainers.sources import AsyncSource, SyncSource, behaviour_copy, copy_weights

POINT = "faults.fault_envs:point"
CONFIG = SACConfig(num_cells=(8,), batch_size=8, warmup=4)


def sync_source(*, rate: float = 1.0, free: float = 4, batch: int = 4, total: int = 16, **more):
    env = make_env(POINT, 2, seed=0)
    learner = Learner(CONFIG.build(env))
    buffer = make_buffer(size=100)
    collector = SyncCollector(
        env, learner.policy, frames_per_batch=batch, total_frames=-1, track_traj_ids=False
    )
    source = SyncSource(
        collector,
        buffer,
        learner,
        keys=learner.loss.in_keys,
        total_frames=total,
        updates_per_frame=rate,
        free_frames=free,
        **more,
    )
    return source, buffer, learner


def due(source: SyncSource, learner: Learner) -> list[int]:
    """What the source asks for when all of it is done at once."""
    asked = []
    for updates in source:
        learner.updates += updates
        asked.append(updates)
    source.shutdown()
    return asked


@pytest.mark.parametrize(
    ("rate", "free", "expected"),
    [
        (1.0, 4, [0, 4, 4, 4]),
        (1.0, 6, [0, 2, 4, 4]),
        (0.1, 4, [0, 0, 0, 1]),
        (0.3, 0, [1, 1, 1, 1]),
        (0.3, 2.5, [0, 1, 1, 2]),
        (1.0, -3.0, [7, 4, 4, 4]),
        (20.0, 0, [64, 16] * 4),  # no more than 64 between two looks at a stop
    ],
)
def test_updates_owed_follow_the_frames(rate, free, expected):
    source, buffer, learner = sync_source(rate=rate, free=free)
    assert due(source, learner) == expected
    assert source.frames == len(buffer) == 16
    assert source.debt() == pytest.approx(rate * (16 - free) - sum(expected))
    assert source.debt() < 1


def test_ranks_collect_their_share():
    source, buffer, learner = sync_source(ranks=2, total=32)
    assert due(source, learner) == [4, 8, 8, 8]
    assert (source.frames, len(buffer)) == (32, 16)


@pytest.mark.parametrize(
    ("total", "ranks", "frames", "rows"), [(14, 1, 0, 14), (30, 2, 0, 15), (30, 2, 2, 14)]
)
def test_the_last_batch_is_cut_to_the_total(total, ranks, frames, rows):
    source, buffer, learner = sync_source(total=total, ranks=ranks, frames=frames)
    due(source, learner)
    assert (source.frames, len(buffer)) == (total, rows)


def test_a_push_is_never_late():
    class Collector:
        frames, total_frames = 100, 100
        owed = 100

        def __init__(self):
            self.pushed = []

        def start(self): ...

        def check(self): ...

        def updates_due(self):
            return self.owed

        def note_updates(self, count):
            self.owed -= count

        def update_policy_weights_(self, policy):
            self.pushed.append(self.owed)

    learner = Learner(CONFIG.build(make_env(POINT, 1)))
    collector = Collector()
    source = AsyncSource(collector, learner, push_interval=30)
    for updates in source:
        source.push(updates)
    assert collector.pushed == [70, 40, 10]


@pytest.mark.parametrize("collector", ["sync", "async"])
def test_a_run_that_goes_on_explores_as_far_as_it_has_come(collector, monkeypatch):
    config = DDPGConfig(num_cells=(8,), noise_std=0.4, noise_std_end=0.2, warmup=4)
    run = planned(RunConfig(env=POINT, total_frames=1000, collector=collector), config)
    make = partial(make_env, POINT)
    learner = Learner(config.assemble(make(1)))
    acting = []
    for name in ("build_collector", "_workers"):
        monkeypatch.setattr(
            collection, name, lambda *_: acting.append(learner.policy.noise.scale.item()) or Mock()
        )
    build_source(run, config, make, learner, Mock(), Counters(frames=500), Ranks())
    assert acting == [pytest.approx(0.3)]


def test_the_buffer_holds_what_the_loss_needs_and_no_more():
    source, buffer, learner = sync_source()
    due(source, learner)
    # TorchRL's buffer adds the index to what it is asked for.
    assert set(buffer[:].keys(True, True)) - {"index"} == set(learner.loss.in_keys)


def test_episodes_are_told_once():
    source, _, learner = sync_source(batch=20, total=80)
    told = []
    for updates in source:
        learner.updates += updates
        told.append(len(source.episodes()))
    source.shutdown()
    # Two environments, an episode each 20 steps of theirs.
    assert told == [0, 2, 0, 2]
    assert source.episodes() == []


def test_a_policy_acts_itself_or_through_a_copy():
    policy = nn.Linear(2, 1)
    assert behaviour_copy(policy, torch.device("cpu")) is policy
    elsewhere = behaviour_copy(policy, torch.device("meta"))
    assert elsewhere is not policy
    other = nn.Linear(2, 1)
    copy_weights(policy, other)
    assert torch.equal(other.weight, policy.weight)
    assert torch.equal(other.bias, policy.bias)


@pytest.mark.parametrize("algorithm", [SACConfig, ModSACConfig])
def test_workers_and_learner_keep_the_ratio_to_the_end_and_after_it(tmp_path: Path, algorithm):
    config = algorithm(num_cells=(8,), batch_size=8, warmup=100)
    result = train(
        config,
        "Pendulum-v1",
        total_frames=1_203,
        collector="async",
        num_workers=2,
        frames_per_batch=4,
        eval_interval=100,
        eval_episodes=1,
        checkpoint_interval=400,
        folder=str(tmp_path / "run"),
        logger="none",
        progress=False,
    )
    rows = result.history
    assert (rows[-1]["frames"], rows[-1]["updates"]) == (1_203, 1_103)
    assert len(rows) >= 8
    for row in rows:
        if row["frames"] >= 700:
            assert row["updates"] == pytest.approx(row["frames"] - 100, rel=0.05)
    assert not multiprocessing.active_children()
    assert saved_frames(result.folder) == 1_203
    check_folder(result.folder)
    more = resume(result.folder, total_frames=1_400)
    assert (more.history[-1]["frames"], more.history[-1]["updates"]) == (1_400, 1_300)
    assert not multiprocessing.active_children()
    check_folder(result.folder)


def test_a_run_goes_on_in_the_other_mode_and_at_another_rate(tmp_path: Path):
    result = train(
        SACConfig(num_cells=(8,), batch_size=8, warmup=20, updates_per_frame=4.0),
        POINT,
        total_frames=100,
        frames_per_batch=4,
        eval_interval=50,
        eval_episodes=1,
        folder=str(tmp_path / "run"),
        logger="none",
        progress=False,
    )
    assert result.history[-1]["updates"] == 320
    config = result.folder / "config.yaml"
    text = config.read_text()
    config.write_text(text.replace("updates_per_frame: 4.0", "updates_per_frame: 0.5"))
    assert config.read_text() != text
    # More updates are made than the new rate would have asked for: they are not held against it.
    more = resume(result.folder, total_frames=200, collector="async", num_workers=1)
    assert (more.history[-1]["frames"], more.history[-1]["updates"]) == (200, 370)
