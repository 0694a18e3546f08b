"""The lean collector inside TorchRL's multi-process collectors, and in front of its buffers."""

from __future__ import annotations

from functools import partial

import pytest
import torch
from lean_toys import Actor, Timetable, assert_identical
from torchrl.collectors import Collector, MultiAsyncCollector, MultiSyncCollector
from torchrl.data import LazyTensorStorage, TensorDictReplayBuffer
from torchrl.envs import GymWrapper, SerialEnv

from torchrl_elegant.collectors import SyncCollector
from torchrl_elegant.envs import make_env

pytestmark = pytest.mark.filterwarnings("ignore")


def factories(count=2):
    return [partial(make_env, partial(Timetable, seed), 2, seed=seed) for seed in range(count)]


def test_synchronous_workers_give_the_same_rows():
    def rows(cls):
        policy = Actor(make_env(Timetable, 2))
        collector = MultiSyncCollector(
            factories(),
            policy,
            collector_class=cls,
            frames_per_batch=24,
            total_frames=24 * 4,
            exploration_type="deterministic",
        )
        try:
            return [batch.clone() for batch in collector]
        finally:
            collector.shutdown()

    ours, theirs = rows(SyncCollector), rows(Collector)
    ids = torch.cat([batch["collector", "traj_ids"].reshape(4, -1) for batch in ours], -1)
    # Which of the workers draws an id first is chance; that no two episodes share one is not.
    seen = [set(row.tolist()) for row in ids]
    assert len(set.union(*seen)) == sum(map(len, seen))
    for batch in [*ours, *theirs]:
        batch.pop("collector")
    assert_identical(ours, theirs)


def test_new_weights_arrive_before_the_next_rollout():
    policy = Actor(make_env(Timetable, 2))
    collector = MultiSyncCollector(
        factories(), policy, collector_class=SyncCollector, frames_per_batch=24, total_frames=-1
    )
    try:
        batches = iter(collector)
        assert (next(batches)["action"].abs() < 1).any()
        with torch.no_grad():
            policy.net.weight.zero_()
            policy.net.bias.fill_(50.0)
        collector.update_policy_weights_()
        assert (next(batches)["action"] == 1).all()
    finally:
        collector.shutdown()


def test_asynchronous_workers_lose_no_step():
    collector = MultiAsyncCollector(
        factories(),
        Actor(make_env(Timetable, 2)),
        collector_class=SyncCollector,
        frames_per_batch=12,
        total_frames=12 * 8,
    )
    seen = {}
    try:
        for batch in collector:
            step = batch["next", "observation"][..., 3]
            assert (step.diff() == 1).all()
            seen.setdefault(int(batch["observation"][0, 0, 0]), []).append(step[:, 0])
    finally:
        collector.shutdown()
    assert len(seen) == 2
    for firsts in seen.values():
        assert (torch.stack(firsts, -1).diff() == 6).all()


@pytest.mark.parametrize("extend", [True, False])
@pytest.mark.parametrize("options", [{}, {"init_random_frames": 20}])
def test_a_buffer_gets_the_same_rows(extend, options):
    def rows(cls):
        env = SerialEnv(2, lambda: GymWrapper(Timetable()))
        env.set_seed(1)
        buffer = TensorDictReplayBuffer(storage=LazyTensorStorage(100), batch_size=4)
        collector = cls(
            env,
            Actor(env),
            replay_buffer=buffer,
            extend_buffer=extend,
            frames_per_batch=10,
            total_frames=60,
            **options,
        )
        if cls is SyncCollector:
            assert collector.is_lean == extend
        torch.manual_seed(0)
        assert set(collector) == {None}
        return [buffer[:]]

    assert_identical(rows(SyncCollector), rows(Collector))
