"""The two modes of collection: frames, updates owed, weights, pauses."""

from __future__ import annotations

import multiprocessing
from itertools import islice
from pathlib import Path
from unittest.mock import Mock

import pytest
import torch
from faults.runs import check_folder, saved_frames
from torch import nn

from torchrl_elegant.algorithms import DDPGConfig, DQNConfig, ModSACConfig, SACConfig
from torchrl_elegant.collectors import Pacer, SyncCollector
from torchrl_elegant.data import make_buffer
from torchrl_elegant.envs import make_env
from torchrl_elegant.runs.train import resume, train
from torchrl_elegant.trainers import family as families
from torchrl_elegant.trainers import off_policy
from torchrl_elegant.trainers.environments import Environments
from torchrl_elegant.trainers.family import family_of
from torchrl_elegant.trainers.learner import Learner
from torchrl_elegant.trainers.ledger import Ledger
from torchrl_elegant.trainers.ranks import Ranks
from torchrl_elegant.trainers.run_config import RunConfig
from torchrl_elegant.trainers.sources import AsyncSource, SyncSource, acting_copy, copy_weights

POINT = "faults.fault_envs:point"
CONFIG = SACConfig(num_cells=(8,), batch_size=8, warmup=4)


def sync_source(
    *, rate: float = 1.0, free: float = 4, batch: int = 4, total: int = 16, frames: int = 0, ranks=1
):
    env = make_env(POINT, 2, seed=0)
    ledger = Ledger(total_frames=total, updates_per_frame=rate, free_frames=free, frames=frames)
    learner = Learner(CONFIG.build(env), ledger=ledger)
    buffer = make_buffer(size=100)
    collector = SyncCollector(
        env, learner.policy, frames_per_batch=batch, total_frames=-1, track_traj_ids=False
    )
    source = SyncSource(collector, buffer, learner, keys=learner.loss.in_keys, ranks=ranks)
    return source, buffer, learner


def due(source: SyncSource, learner: Learner) -> list[int]:
    """Updates that the source asks for when all of them are made at once."""
    asked = []
    for updates in source:
        learner.ledger.updates += updates
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
    assert learner.ledger.frames == len(buffer) == 16
    assert learner.ledger.owed == pytest.approx(rate * (16 - free) - sum(expected))
    assert learner.ledger.owed < 1


@pytest.mark.parametrize(("batch", "expected"), [(100, [29]), (20, [5, 6, 6, 6, 6])])
def test_updates_owed_lose_no_rounding(batch, expected):
    assert 0.29 * 100 < 29
    source, _, learner = sync_source(rate=0.29, free=0, batch=batch, total=100)
    assert due(source, learner) == expected


def test_ranks_collect_their_share():
    source, buffer, learner = sync_source(ranks=2, total=32)
    assert due(source, learner) == [4, 8, 8, 8]
    assert (learner.ledger.frames, len(buffer)) == (32, 16)


@pytest.mark.parametrize(
    ("total", "ranks", "frames", "rows"), [(14, 1, 0, 14), (30, 2, 0, 15), (30, 2, 2, 14)]
)
def test_the_last_batch_is_cut_to_the_total(total, ranks, frames, rows):
    source, buffer, learner = sync_source(total=total, ranks=ranks, frames=frames)
    due(source, learner)
    assert (learner.ledger.frames, len(buffer)) == (total, rows)


class Workers:
    """An asynchronous collector of which the next frames are there whenever they are waited for."""

    def __init__(self, *arriving: int, rate: float = 1.0, batches=()) -> None:
        self.frames = 0
        self.pushed: list[int] = []
        self._arriving, self._batches = list(arriving), list(batches)
        self._pacer = Pacer(workers=1, updates_per_frame=rate)

    def start(self): ...

    def check(self): ...

    def wait_for(self, frames, timeout=None):
        self.frames = self._arriving.pop(0)

    def arrivals(self):
        return self._batches.pop(0)

    def updates_due(self):
        return self._pacer.updates_due(self.frames)

    def note_updates(self, count):
        self._pacer.note_updates(count)

    def update_policy_weights_(self, policy):
        self.pushed.append(self.updates_due())


def asked_of(source: AsyncSource, most: int = 50):
    """Updates that the source asks for when all of them are made at once.

    A source that does not come to its end would ask for ever."""
    for count, updates in enumerate(islice(source, most + 1)):
        assert count < most, "the source has no end"
        yield updates
        source.push(updates)


def beside_workers(total: int, config=CONFIG, env: str = POINT) -> Learner:
    return Learner(config.assemble(make_env(env, 1)), ledger=Ledger(total_frames=total))


def test_a_push_is_never_late():
    learner = beside_workers(100)
    collector = Workers(100)
    assert sum(asked_of(AsyncSource(collector, learner, push_interval=30))) == 100
    assert collector.pushed == [70, 40, 10]


def test_updates_owed_beside_workers_lose_no_rounding():
    learner = beside_workers(100)
    source = AsyncSource(Workers(60, 100, rate=0.29), learner, push_interval=100)
    assert [updates for updates in asked_of(source) if updates] == [17, 12]


def exploring_part(learner: Learner) -> float:
    return learner.policy.epsilon.item()


def spread_of_noise(learner: Learner) -> float:
    return learner.policy.noise.scale.item()


def learning_rate(learner: Learner) -> float:
    return learner.optimizer.param_groups[0]["lr"]


@pytest.mark.parametrize(
    ("config", "env", "read"),
    [
        (
            DQNConfig(num_cells=(8,), epsilon=(1.0, 0.5), exploration_fraction=1.0),
            "CartPole-v1",
            exploring_part,
        ),
        (DDPGConfig(num_cells=(8,), noise_std=(1.0, 0.5)), POINT, spread_of_noise),
        (SACConfig(num_cells=(8,), actor_lr=(1.0, 0.5)), POINT, learning_rate),
    ],
    ids=["epsilon", "noise", "rate"],
)
def test_what_moves_over_a_run_moves_with_the_frames_of_workers(config, env, read):
    learner = beside_workers(100, config, env)
    collector, seen = Workers(20, 50, 100), {}
    for updates in asked_of(AsyncSource(collector, learner, push_interval=1_000)):
        if updates:
            seen[collector.frames] = read(learner)
    assert seen == pytest.approx({20: 0.9, 50: 0.75, 100: 0.5})


def test_running_returns_of_workers_do_not_mix():
    """Two environments are worth the same returns, be they in one batch or of two workers."""
    config = SACConfig(num_cells=(8,), gamma=0.9, normalize_value=True)
    rollout = make_env(POINT, 2, seed=0).rollout(12)
    together, apart = (beside_workers(24, config) for _ in range(2))
    together.observe(rollout)
    batches = [
        [(worker, rollout[worker : worker + 1, t : t + 3]) for worker in (0, 1)]
        for t in range(0, 12, 3)
    ]
    collector = Workers(6, 12, 18, 24, batches=batches)
    for _ in asked_of(AsyncSource(collector, apart, push_interval=1_000)):
        pass
    expected, found = (
        each.state_dict()["add_ons"]["scaling"]["returns"] for each in (together, apart)
    )
    assert found["count"] == expected["count"] == 24
    torch.testing.assert_close(found["mean"], expected["mean"])
    torch.testing.assert_close(found["squares"], expected["squares"])


@pytest.mark.parametrize("collector", ["sync", "async"])
def test_a_run_that_goes_on_explores_as_far_as_it_has_come(collector, monkeypatch):
    config = DDPGConfig(num_cells=(8,), noise_std=(0.4, 0.2), warmup=4)
    family = family_of(
        RunConfig(env=POINT, total_frames=1000, collector=collector), config, Ranks()
    )
    environments = Environments(family.run, workers=family.has_workers)
    learner = family.learner(config.assemble(environments.specs()))
    learner.ledger.frames = 500
    acting = []
    for module, name in ((families, "SyncCollector"), (off_policy, "AsyncCollector")):
        monkeypatch.setattr(
            module,
            name,
            lambda *_, **__: acting.append(learner.policy.noise.scale.item()) or Mock(),
        )
    family.source(environments, learner, Mock())
    environments.close()
    assert acting == [pytest.approx(0.3)]


def test_the_buffer_holds_what_the_loss_needs_and_no_more():
    source, buffer, learner = sync_source()
    due(source, learner)
    # TorchRL's buffer adds the index to what it is asked for.
    assert set(buffer[:].keys(True, True)) - {"index"} == set(learner.loss.in_keys)


def test_returns_of_episodes_are_told_once():
    source, buffer, learner = sync_source(batch=20, total=80)
    told = []
    for updates in source:
        learner.ledger.updates += updates
        told.append(source.train_return())
    source.shutdown()
    # Two environments, an episode each 20 steps of theirs.
    first, second = (rows["next", "reward"].sum().item() / 2 for rows in buffer[:].split(40))
    assert told == [None, pytest.approx(first), None, pytest.approx(second)]
    assert source.train_return() is None


def test_a_policy_acts_itself_or_through_a_copy():
    policy = nn.Linear(2, 1)
    assert acting_copy(policy, torch.device("cpu")) is policy
    elsewhere = acting_copy(policy, torch.device("meta"))
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
