"""Workers that take turns with the learner: the same rows every time, and nobody left behind."""

from __future__ import annotations

import os
import signal
import threading
import time
from functools import partial
from pathlib import Path

import pytest
import torch
from lean_toys import Actor, Timetable, assert_identical
from torchrl.collectors import MultiSyncCollector
from torchrl.envs.utils import ExplorationType

from torchrl_elegant.collectors import ParallelCollector, SyncCollector, WorkerDiedError
from torchrl_elegant.collectors.workers.pacing import Rounds
from torchrl_elegant.envs import make_env

pytestmark = pytest.mark.filterwarnings("ignore")


def make_collector(**kwargs) -> ParallelCollector:
    arguments = {
        "create_env_fn": [partial(make_env, partial(Timetable, w), 2) for w in range(2)],
        "policy": Actor(make_env(Timetable, 2)),
        "frames_per_batch": 24,
        "total_frames": 24 * 4,
        "seed": 7,
    }
    return ParallelCollector(**{**arguments, **kwargs})


def is_running(pid: int) -> bool:
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False
    return stat.rpartition(")")[2].split()[0] not in "ZX"


def test_batches_are_those_of_one_collector_over_all_environments():
    with make_collector() as collector:
        batches = list(collector)
        assert collector.frames == 96
        episodes = collector.episodes()
    assert not any(is_running(process.pid) for process in collector.procs)
    env = make_env(Timetable, 4)
    one = next(iter(SyncCollector(env, Actor(env), frames_per_batch=24, total_frames=24)))
    for batch in batches:
        assert (batch.batch_size, batch.names) == (one.batch_size, one.names)
        assert (batch["next"].names, batch.device) == (one["next"].names, one.device)
        assert set(batch.keys(True, True)) == set(one.keys(True, True))
        for key in one.keys(True, True):
            assert (batch[key].shape, batch[key].dtype) == (one[key].shape, one[key].dtype)
    rows = torch.cat(batches, 1)
    instance, episode, _, count = rows["observation"].unbind(-1)
    assert instance.tolist() == [[0] * 24, [0] * 24, [1] * 24, [1] * 24]
    # No step is lost or doubled, and none is made while the caller has a batch.
    assert count.tolist() == [list(range(24))] * 4
    ids = rows["collector", "traj_ids"]
    for row in range(4):
        same_episode = episode[row, :, None] == episode[row]
        assert (same_episode == (ids[row, :, None] == ids[row])).all()
    assert len(ids.unique()) == sum(len(row.unique()) for row in ids)
    ended = rows["next"][rows["next", "done"].squeeze(-1)]
    returns, lengths = zip(*sorted(episodes), strict=True)
    assert sorted(lengths) == sorted(ended["step_count"].reshape(-1).tolist())
    expected = ended["episode_reward"].double().reshape(-1).sort()[0]
    assert torch.tensor(returns, dtype=torch.float64).allclose(expected)


def test_the_seed_decides_everything():
    def rows(seed):
        with make_collector(seed=seed, policy=Actor(make_env(Timetable, 2))) as collector:
            return list(collector)

    first = rows(7)
    assert_identical(first, rows(7))
    other = rows(8)
    assert not torch.equal(first[0]["action"], other[0]["action"])
    # Nor do the workers draw the same numbers.
    assert not torch.equal(first[0]["action"][:2], first[0]["action"][2:])


def test_weights_messages_and_batches_take_turns():
    policy = Actor(make_env(Timetable, 2))
    mode = ExplorationType.DETERMINISTIC
    with make_collector(
        policy=policy,
        total_frames=-1,
        init_random_frames=48,
        exploration_type=mode,
        postproc=lambda batch: batch.set("seen", batch["action"] + 1),
    ) as collector:
        assert isinstance(collector, MultiSyncCollector)
        batches = iter(collector)

        def of_policy(batch):
            expected = policy.act(batch["observation"])
            assert torch.equal(batch["seen"], batch["action"] + 1)
            return torch.allclose(batch["action"], expected)

        drawn = [next(batches), next(batches)]
        assert not any(map(of_policy, drawn))
        kept = [batch.clone() for batch in drawn]
        for shift in (0.5, -0.5):
            with torch.no_grad():
                policy.net.bias.add_(shift)
            collector.update_policy_weights_()
            assert of_policy(next(batches))
        # A batch belongs to who has got it.
        assert_identical(drawn, kept)
        state = collector.state_dict()
        assert (state["frames"], state["iter"]) == (96, 3)
        before = next(batches)
        collector.reset()
        after = next(batches)
        assert (after["step_count"][:, 0] == 0).all()
        # A message costs no step.
        last, first = before["next", "observation"][:, -1, 3], after["observation"][:, 0, 3]
        assert torch.equal(last, first)
        assert collector.set_seed(3) is not None
        collector.load_state_dict(state)
        assert collector.frames == 96


def test_a_killed_worker_is_named_and_nobody_is_left():
    with make_collector(total_frames=-1) as collector:
        batches = iter(collector)
        next(batches)
        victim = collector.procs[1].pid
        os.kill(victim, signal.SIGKILL)
        with pytest.raises(WorkerDiedError, match=rf"worker 1 \(pid {victim}\) was killed by SIGK"):
            list(batches)
        # Publishing does not hang either.
        collector.update_policy_weights_()
    assert not any(is_running(process.pid) for process in collector.procs)
    with pytest.raises(RuntimeError, match="must be open"):
        next(iter(collector))


def test_workers_that_are_ahead_are_one_update_old_and_no_more():
    policy = Actor(make_env(Timetable, 2))

    with torch.no_grad():  # the action is tanh(bias), whatever is seen
        policy.net.weight.zero_()
        policy.net.bias.zero_()
    mode = ExplorationType.DETERMINISTIC
    with make_collector(policy=policy, exploration_type=mode, ahead=True) as collector:
        assert collector.is_ahead
        seen, counts = [], []
        for update, batch in enumerate(collector, start=1):
            seen.append(batch["action"].unique())
            counts.append(batch["observation"][..., 3])
            assert collector.frames == 24 * update
            with torch.no_grad():
                policy.net.bias.fill_(0.1 * update)
            collector.update_policy_weights_()
    # The second batch was begun before the first update, the third before the second.
    expected = torch.tensor([0.0, 0.0, 0.1, 0.2]).tanh()
    torch.testing.assert_close(torch.cat(seen), expected)
    # No step is lost or doubled.
    assert torch.cat(counts, 1).tolist() == [list(range(24))] * 4


def test_new_weights_wait_for_workers_that_have_not_begun():
    rounds = Rounds(workers=2)
    gates = [rounds.gate(worker) for worker in range(2)]
    assert rounds.begun
    rounds.grant(start=0)
    for gate in gates:
        assert not rounds.begun
        gate.acquire(4)
        assert not rounds.begun
        gate.begin()
    assert rounds.begun


def test_a_worker_that_is_killed_while_ahead_is_named_to_who_publishes():
    with make_collector(total_frames=-1, ahead=True) as collector:
        batches = iter(collector)
        next(batches)
        victim = collector.procs[1].pid
        os.kill(victim, signal.SIGKILL)

        def go_on():
            for _ in batches:
                collector.update_policy_weights_()

        with pytest.raises(WorkerDiedError, match=rf"worker 1 \(pid {victim}\) was killed by SIGK"):
            go_on()
    assert not any(is_running(process.pid) for process in collector.procs)


class Failing(Timetable):
    def step(self, action):
        if self.now[3] == 8:
            raise ArithmeticError("the simulator fell over")
        return super().step(action)


def test_a_worker_that_raises_is_named_with_its_traceback():
    env_fns = [partial(make_env, toy, 2) for toy in (Timetable, Failing)]
    with (
        make_collector(create_env_fn=env_fns) as collector,
        pytest.raises(WorkerDiedError, match=r"worker 1 \(pid \d+\)") as caught,
    ):
        list(collector)
    assert "ArithmeticError: the simulator fell over" in str(caught.value)
    assert not any(is_running(process.pid) for process in collector.procs)


def test_frames_must_be_shared_out_evenly():
    with pytest.raises(
        ValueError, match=r"`frames_per_batch` must be a multiple .* \(2\), got `7`"
    ):
        make_collector(frames_per_batch=7)
    with pytest.raises(ValueError, match="`frames_per_batch` must be a multiple"):
        make_collector(frames_per_batch=6)
    with pytest.raises(TypeError, match="split_trajs"):
        make_collector(split_trajs=True)


def test_a_fast_worker_gets_one_turn_a_round():
    rounds = Rounds(workers=2)
    fast, slow = rounds.gate(0), rounds.gate(1)
    got: list = []
    rounds.grant(start=10)
    assert fast.acquire(4) == (10, 4)
    waiting = threading.Thread(target=lambda: got.append(fast.acquire(4)))
    waiting.start()
    time.sleep(0.1)
    assert got == []
    assert slow.acquire(4) == (10, 4)
    assert got == []
    rounds.grant(start=18)
    waiting.join(10)
    assert got == [(18, 4)]
    assert slow.acquire(4) == (18, 4)


def test_messages_call_workers_out_of_the_gate_and_cost_no_turn():
    rounds = Rounds(workers=1)
    gate = rounds.gate(0)
    rounds.grant(start=0)
    rounds.interrupt(1)
    assert gate.acquire(4) is None
    rounds.interrupt(0)
    assert gate.acquire(4) == (0, 4)
    rounds.stop()
    assert gate.acquire(4) is None
