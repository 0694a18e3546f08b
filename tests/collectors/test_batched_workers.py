"""Batched TorchRL environments in worker processes: the rows of one collector, keys nested too."""

from __future__ import annotations

from functools import partial, reduce

import pytest
import torch
from batched_toys import Drift, Masked, Team
from tensordict import TensorDict
from torchrl.data import LazyTensorStorage, TensorDictReplayBuffer

from torchrl_elegant.collectors import AsyncCollector, ParallelCollector, SyncCollector
from torchrl_elegant.collectors.workers.arguments import WorkerArguments
from torchrl_elegant.collectors.workers.pacing import Pacer
from torchrl_elegant.collectors.workers.worker import EpisodeLog, ending_keys

pytestmark = pytest.mark.filterwarnings("ignore")

SEED, STEPS, BATCHES = 5, 9, 3
ENVS = {
    "plain": partial(Drift, 3),
    "grid": partial(Drift, 2, 2),
    "masked": partial(Masked, 3),
    "team": partial(Team, 3),
    "team_without_root": partial(Team, 3, root=False),
}


@pytest.fixture(params=ENVS)
def make(request):
    return ENVS[request.param]


def seeds(make, workers: int) -> list[int]:
    """Seeds of the workers."""
    frames = STEPS * make().batch_size.numel()
    arguments = WorkerArguments([make] * workers, None, None, frames, None, {})
    link = arguments.link(Pacer(workers=workers), init_random_frames=0)
    return arguments.factory(link, seed=SEED, frames_done=0, threads=1, trajectory_ids="own").seeds


def alone(make, seed: int) -> list[TensorDict]:
    """Batches of one collector in this process."""
    torch.manual_seed(seed)
    env = make()
    frames = STEPS * env.batch_size.numel()
    collector = SyncCollector(env, None, frames_per_batch=frames, total_frames=BATCHES * frames)
    collector.set_seed(seed)
    return [batch.clone().reshape(-1, STEPS) for batch in collector]


def assert_same(ours: TensorDict, theirs: TensorDict) -> None:
    assert set(ours.keys(True, True)) == set(theirs.keys(True, True))
    for key in set(ours.keys(True)) - {("collector", "traj_ids")}:
        a, b = ours.get(key), theirs.get(key)
        if isinstance(a, TensorDict):
            assert (a.batch_size, a.device) == (b.batch_size, b.device), key
        else:
            assert (a.dtype, a.shape) == (b.dtype, b.shape), key
            assert torch.equal(a, b), key


def episodes_of(batches: list[TensorDict], make) -> list[tuple[float, int]]:
    """Return and length of each episode, counted row by row."""
    env, after = make(), torch.cat(batches, 1).get("next")
    (reward_key,) = env.reward_keys
    rewards = after[reward_key].double().flatten(2).mean(-1)
    flags = [after[key].flatten(2).any(-1) for key in ending_keys(env)]
    ends = reduce(torch.logical_or, flags)
    found = []
    for row in range(len(ends)):
        total, length = 0.0, 0
        for reward, end in zip(rewards[row].tolist(), ends[row].tolist(), strict=True):
            total, length = total + reward, length + 1
            if end:
                found.append((total, length))
                total, length = 0.0, 0
    return found


def assert_episodes(ours, theirs) -> None:
    assert len(ours) == len(theirs) > 0
    torch.testing.assert_close(torch.tensor(sorted(ours)), torch.tensor(sorted(theirs)))


def test_rounds_are_batches_of_one_collector_for_each_worker(make):
    count = make().batch_size.numel()
    frames = 2 * STEPS * count
    with ParallelCollector(
        [make, make], frames_per_batch=frames, total_frames=BATCHES * frames, seed=SEED
    ) as collector:
        batches = list(collector)
        episodes = collector.episodes()
        assert collector.frames == BATCHES * frames
    expected = [alone(make, seed) for seed in seeds(make, 2)]
    for number, batch in enumerate(batches):
        assert batch.shape == (2 * count, STEPS)
        assert_same(batch[:count], expected[0][number])
        assert_same(batch[count:], expected[1][number])
    assert_episodes(episodes, [e for worker in expected for e in episodes_of(worker, make)])
    ids = torch.cat(batches, 1)["collector", "traj_ids"]
    assert len(ids.unique()) == sum(len(row.unique()) for row in ids)


def test_a_buffer_gets_the_rows_of_one_collector(make):
    frames = STEPS * make().batch_size.numel()
    buffer = TensorDictReplayBuffer(storage=LazyTensorStorage(1000), batch_size=4)
    with AsyncCollector(
        [make],
        replay_buffer=buffer,
        frames_per_batch=frames,
        total_frames=BATCHES * frames,
        seed=SEED,
    ) as collector:
        collector.start()
        assert collector.wait_for(BATCHES * frames, timeout=60)
        rows = buffer[:].exclude("index").clear_device_()  # the storage sets one
        episodes = collector.episodes()
        arrived = torch.cat([batch for _, batch in collector.arrivals()], 1)
    batches = alone(make, *seeds(make, 1))
    assert_same(rows, torch.cat([batch.reshape(-1) for batch in batches]))
    assert_same(arrived, torch.cat(batches, 1))
    assert_episodes(episodes, episodes_of(batches, make))


@pytest.mark.parametrize("options", [{}, {"reset_at_each_iter": True}])
def test_expanded_tensors_can_be_reset(options):
    env = Team(3)
    collector = SyncCollector(env, None, frames_per_batch=12, total_frames=36, **options)
    assert collector.is_lean
    batches = iter(collector)
    next(batches)
    age = ("agents", "info", "age")
    later = (next(batches)[age][:, 0] == 0).all()
    assert later == bool(options)
    collector.reset()
    assert (next(batches)[age][:, 0] == 0).all()


@pytest.mark.parametrize(
    ("make", "keys"),
    [
        (ENVS["plain"], ["done"]),
        (ENVS["team"], ["done"]),
        (ENVS["team_without_root"], [("agents", "done")]),
    ],
)
def test_rows_end_where_they_are_reset(make, keys):
    assert ending_keys(make()) == keys


def test_rewards_of_agents_and_keys_are_averaged():
    log = EpisodeLog(
        envs=1, reward_keys=["reward", ("team", "reward")], done_keys=[("team", "done"), "over"]
    )
    after = {
        "reward": torch.tensor([[[1.0], [2.0]]]),
        "over": torch.tensor([[[False], [True]]]),
        "team": {
            "reward": torch.tensor([[[[3.0], [5.0]], [[0.0], [4.0]]]]),
            "done": torch.zeros(1, 2, 2, 1, dtype=torch.bool),
        },
    }
    batch = TensorDict({"next": after}, [1, 2])
    assert log.add(batch, rows=2) == [(2, (1 + 4) / 2 + (2 + 2) / 2, 2)]
    after["team"]["done"][0, 0, 1] = True
    found = log.add(TensorDict({"next": after}, [1, 2]), rows=2)
    assert [length for *_, length in found] == [1, 1]
    # A `postproc` may have left an entry out.
    assert log.add(TensorDict({"next": {"reward": after["reward"]}}, [1, 2]), rows=2) == []
