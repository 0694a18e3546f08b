from __future__ import annotations

import pytest
import torch
from torchrl.collectors.utils import _TrajectoryPool

from torchrl_elegant.collectors.rollout.trajectory_ids import DeferredPool, trajectory_ids


def step_by_step(ends, running, first):
    """What TorchRL does at every step."""
    rows, running = [], running.clone()
    for ended in ends:
        rows.append(running.clone())
        count = int(ended.sum())
        running[ended] = torch.arange(first, first + count)
        first += count
    return torch.stack(rows), running


@pytest.mark.parametrize("share", [0.0, 0.1, 0.6, 1.0])
@pytest.mark.parametrize("shape", [(1, 1), (1, 6), (9, 1), (9, 6)])
def test_ids_are_those_of_counting_step_by_step(shape, share):
    ends = torch.rand(shape) < share
    running = torch.arange(shape[1]) + 3
    for first in (20, torch.tensor(20)):
        ids, after = trajectory_ids(ends, running=running, first=first)
        expected, left = step_by_step(ends, running, 20)
        assert torch.equal(ids, expected)
        assert torch.equal(after, left)
        assert ids.dtype == torch.int64


def test_ids_that_run_on_may_be_greater_than_new_ones():
    # As after loading the state of a run that had counted less far.
    ids, after = trajectory_ids(
        torch.tensor([[True, False]]), running=torch.tensor([50, 60]), first=2
    )
    assert (ids.tolist(), after.tolist()) == ([[50, 60]], [2, 60])


def test_a_deferred_pool_counts_as_the_pool_does():
    pool = _TrajectoryPool()
    pool.get_traj_and_increment(4)
    deferred = DeferredPool(pool)
    assert deferred.take(torch.tensor(3)) == 4
    assert deferred.take(torch.tensor(0)) == 7
    assert deferred.get_traj_and_increment(2).tolist() == [7, 8]
    assert deferred.take(torch.tensor(5)) == 9
    state = deferred.state_dict()
    assert state["traj_id"] == pool.state_dict()["traj_id"] == 14
    assert deferred.take(torch.tensor(1)) == 14
    deferred.load_state_dict(state)
    assert deferred.take(torch.tensor(1)) == 14
    assert deferred.state_dict()["traj_id"] == 15
