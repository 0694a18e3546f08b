"""Asynchronous collection: every row once, the ratio held, weights whole, workers told apart."""

from __future__ import annotations

import time
from collections import Counter
from functools import partial
from types import SimpleNamespace

import pytest
import torch
from async_toys import RANDOM_BELOW, NumberedEnv, versioned_policy
from tensordict import TensorDict
from torchrl.collectors import MultiAsyncCollector
from torchrl.data import (
    LazyTensorStorage,
    TensorDictReplayBuffer,
)

from torchrl_elegant.collectors import AsyncCollector, MultiaSyncDataCollector, Pacer
from torchrl_elegant.collectors.workers.arguments import WorkerArguments

ENVS, BATCH, WORKERS = 2, 12, 2
RANDOM, WARMUP, TOTAL, RATIO = 96, 120, 4_006, 0.25


def make_buffer(size: int = 4096) -> TensorDictReplayBuffer:
    return TensorDictReplayBuffer(storage=LazyTensorStorage(size), batch_size=8)


def make_collector(buffer, **kwargs) -> AsyncCollector:
    arguments = {
        "create_env_fn": [partial(NumberedEnv, tag, ENVS) for tag in range(WORKERS)],
        "policy": versioned_policy(),
        "replay_buffer": buffer,
        "frames_per_batch": BATCH,
        "seed": 3,
        "auto_register_policy_transforms": False,
    }
    return AsyncCollector(**{**arguments, **kwargs})


def rows_of(buffer) -> TensorDict:
    return buffer[: len(buffer)]


@pytest.fixture(scope="module")
def run() -> SimpleNamespace:
    """One whole run: learner, weight pushes, messages to the workers in the middle, a pause."""
    torch.set_num_threads(1)
    buffer, policy = make_buffer(), versioned_policy()
    out = SimpleNamespace(leads=[], paused=[], buffer=buffer, answers=[])
    with make_collector(
        buffer,
        policy=policy,
        total_frames=TOTAL,
        updates_per_frame=RATIO,
        warmup_frames=WARMUP,
        init_random_frames=RANDOM,
    ) as collector:
        out.before = collector.frames
        collector.start()
        version = 2.0
        while collector.frames < TOTAL or collector.updates_due():
            for _ in range(collector.updates_due()):
                time.sleep(0.002)
                collector.note_updates()
                version += 1
                policy.module.set_version(version)
                collector.update_policy_weights_()
            frames = collector.frames
            out.leads.append(RATIO * (frames - WARMUP) - collector.updates_done)
            if frames > 200 * (1 + len(out.answers)):
                out.answers.append(collector.getattr_env("tag"))
            if frames > TOTAL // 2 and not out.paused:
                with collector.pause():
                    out.paused.append(collector.frames)
                    time.sleep(0.2)
                    out.paused.append(collector.frames)
            collector.wait_for(collector.frames + 1, timeout=0.01)
        out.frames, out.updates = collector.frames, collector.updates_done
        out.episodes, out.again = collector.episodes(), collector.episodes()
        out.version = version
        began = time.monotonic()
    out.shutdown_seconds = time.monotonic() - began
    out.alive = [process.is_alive() for process in collector.procs]
    out.threads = torch.get_num_threads()
    collector.shutdown()  # a second time: nothing happens
    collector.check()
    return out


def test_frames_are_counted_to_the_row(run):
    assert (run.before, run.frames) == (0, TOTAL)
    assert len(run.buffer) == run.buffer.write_count == TOTAL


def test_every_row_is_there_once_and_in_order(run):
    rows = rows_of(run.buffer)
    total = 0
    for tag in range(WORKERS):
        for env in range(ENVS):
            mine = rows[(rows["observation"][:, 0] == tag) & (rows["observation"][:, 1] == env)]
            observation, after = mine["observation"], mine["next", "observation"]
            total += len(mine)
            assert len(mine) > 50
            first, length = int(observation[0, 2]), 5 + env
            expected = torch.arange(len(mine))
            assert (observation[:, 2] == first + expected // length).all()
            assert (observation[:, 3] == expected % length).all()
            # The true final observation, not the one after the reset.
            assert (
                after[:, 2:4]
                == torch.stack([first + expected // length, expected % length + 1], -1)
            ).all()
            assert (mine["next", "done"][:, 0] == (expected % length == length - 1)).all()
    assert total == TOTAL


def test_messages_in_mid_run_are_answered(run):
    assert len(run.answers) >= 3
    assert set(run.answers) == {0}


def test_a_pause_holds_the_count(run):
    assert len(run.paused) == 2
    assert run.paused[0] == run.paused[1] < TOTAL


def test_the_ratio_is_exact_at_the_end_and_bounded_on_the_way(run):
    assert run.updates == int(RATIO * (TOTAL - WARMUP))
    slack = 2 * WORKERS * BATCH
    assert max(run.leads) <= RATIO * slack + 1
    assert min(run.leads) >= -RATIO * WARMUP
    assert max(run.leads) > 1  # the learner was the slower side: the bound was put to the test


def test_random_frames_are_exact_over_all_workers(run):
    actions = rows_of(run.buffer)["action"][:, 0]
    assert int((actions < RANDOM_BELOW).sum()) == RANDOM


def test_weights_change_between_rollouts_only_and_whole(run):
    rows = rows_of(run.buffer)
    assert float(rows["torn"][rows["action"] >= RANDOM_BELOW].abs().max()) == 0.0
    for tag in range(WORKERS):
        mine = rows[rows["observation"][:, 0] == tag]["action"][:, 0]
        batches = mine[: len(mine) // BATCH * BATCH].reshape(-1, BATCH)
        versions = batches[batches[:, 0] >= RANDOM_BELOW]
        assert (versions == versions[:, :1]).all()
        assert (versions[1:, 0] >= versions[:-1, 0]).all()
        assert len(versions[:, 0].unique()) > 5
        assert float(versions.max()) <= run.version


def test_workers_differ_in_environment_and_policy_noise(run):
    rows = rows_of(run.buffer)
    seeds, noises = [], []
    for tag in range(WORKERS):
        mine = rows[rows["observation"][:, 0] == tag]
        seeds.append(set(mine["observation"][:, 4].tolist()))
        drawn = mine[mine["action"][:, 0] >= RANDOM_BELOW]["noise"][:, 0].tolist()
        noises.append(set(drawn))
        assert len(noises[-1]) == len(drawn)
    assert all(len(seen) == 1 for seen in seeds)
    assert seeds[0] != seeds[1]
    assert not noises[0] & noises[1]


def test_workers_run_on_their_own_number_of_threads_and_this_process_keeps_its(run):
    assert rows_of(run.buffer)["observation"][:, 5].unique().tolist() == [1.0]
    assert run.threads == 1


def test_every_finished_episode_is_reported_once(run):
    rows = rows_of(run.buffer)
    ends = rows[rows["next", "done"][:, 0]]["next", "observation"][:, 3].int().tolist()
    assert Counter(length for _, length in run.episodes) == Counter(ends)
    assert all(total == length for total, length in run.episodes)
    assert run.again == []


def test_shutdown_is_quick_and_complete(run):
    assert run.shutdown_seconds < 5  # by force it would take TorchRL 8
    assert run.alive == [False] * WORKERS


def test_iterating_a_resumed_run_into_a_buffer_that_nobody_shares():
    buffer = make_buffer(100)
    with make_collector(
        buffer,
        create_env_fn=partial(NumberedEnv, 7, ENVS),
        num_workers=1,
        total_frames=560,
        frames_done=500,
        updates_done=100,
        updates_per_frame=0.25,
        warmup_frames=100,
        keys=["action", ("next", "reward")],
    ) as collector:
        assert (collector.frames, collector.updates_done) == (500, 100)
        yielded = []
        for nothing in collector:
            yielded.append(nothing)
            collector.note_updates(collector.updates_due())
        assert set(yielded) == {None}
        assert (collector.frames, collector.updates_done) == (560, 115)
    assert buffer.write_count == 60
    assert not buffer.shared
    assert not buffer.storage["action"].is_shared()
    stored = set(rows_of(buffer).keys(True, True)) - {"index"}
    assert stored == {"action", ("next", "reward")}


def test_it_is_torchrls_collector_under_the_old_name_too():
    assert MultiaSyncDataCollector is MultiAsyncCollector
    assert issubclass(AsyncCollector, MultiaSyncDataCollector)


def checked(**changes) -> WorkerArguments:
    arguments = {
        "create_env_fn": [partial(NumberedEnv, 0), partial(NumberedEnv, 1)],
        "policy": versioned_policy(),
        "num_workers": None,
        "frames_per_batch": 4,
        "keys": None,
        "options": {"auto_register_policy_transforms": False},
    }
    return WorkerArguments(**{**arguments, **changes})


def test_seeds_follow_the_run_and_the_place_it_resumed_at():
    arguments = checked()
    link = arguments.link(Pacer(workers=2), init_random_frames=0)
    first, same, other, resumed = (
        arguments.factory(
            link, seed=seed, frames_done=frames, threads=1, trajectory_ids="own"
        ).seeds
        for seed, frames in ((1, 0), (1, 0), (2, 0), (1, 99))
    )
    assert first == same
    assert len({*first, *other, *resumed}) == 6


def test_the_learners_policy_is_copied():
    policy = versioned_policy()
    arguments = checked(policy=policy)
    assert arguments.policy is not policy
    assert arguments.policy.module.parameter.data_ptr() != policy.module.parameter.data_ptr()
    assert not policy.module.parameter.is_shared()


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        ({"frames_per_batch": 5}, ValueError, "`frames_per_batch` must be a multiple"),
        ({"keys": ["action", "reward"]}, KeyError, r"`keys` must be among .* got \['reward'\]"),
        ({"options": {"weight_updater": 1}}, TypeError, r"got \['weight_updater'\]"),
        ({"create_env_fn": NumberedEnv(0)}, TypeError, "`create_env_fn` must be a factory"),
        ({"create_env_fn": []}, ValueError, "`num_workers` must be at least 1"),
        ({"num_workers": 3}, ValueError, r"`num_workers` must be the number of factories \(2\)"),
    ],
)
def test_wrong_arguments_are_named_before_a_process_starts(changes, error, message):
    if isinstance(changes.get("create_env_fn"), NumberedEnv):
        changes = {**changes, "num_workers": 1}
    with pytest.raises(error, match=message):
        checked(**changes)


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        ({"replay_buffer": None}, TypeError, "`replay_buffer` must be a ReplayBuffer"),
        ({"slack_batches": 0}, ValueError, "`slack_batches` must be at least 1, got 0"),
        ({"threads_per_worker": 0}, ValueError, "`threads_per_worker` must be at least 1, got 0"),
    ],
)
def test_wrong_settings_are_named_before_a_process_starts(changes, error, message):
    with pytest.raises(error, match=message):
        make_collector(make_buffer(), **changes)
