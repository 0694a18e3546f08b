"""Whole rollouts, until all frames are collected."""

from __future__ import annotations

import pytest
import torch
from tensordict import TensorDict
from torch import nn

from torchrl_elegant.trainers.ledger import Ledger
from torchrl_elegant.trainers.sources import RolloutSource


class Collector:
    """Yields rollouts whose rows are numbered in the order of their steps."""

    def __init__(self, policy, *shape: int) -> None:
        self.policy, self.shape = policy, shape
        self.learner = None
        self.steps = self.closed = 0

    def __iter__(self):
        while True:
            steps = self.shape[-1]
            number = torch.arange(self.steps, self.steps + steps).expand(self.shape)
            self.steps += steps
            done = (number % 4 == 3).unsqueeze(-1)
            after = {
                "done": done,
                "episode_reward": 10.0 * number.unsqueeze(-1),
                "step_count": number.unsqueeze(-1) + 1,
            }
            yield TensorDict({"number": number, "next": after}, self.shape)

    def shutdown(self) -> None:
        self.closed += 1


class Learner:
    device = torch.device("cpu")

    def __init__(self, ledger: Ledger) -> None:
        self.policy, self.ledger = nn.Linear(1, 1), ledger
        self.progress: list[float] = []

    def at(self, progress: float) -> None:
        self.progress.append(progress)


def source_of(*shape: int, total: int, frames: int = 0, **options):
    learner = Learner(Ledger(total_frames=total, frames=frames))
    collector = Collector(learner.policy, *shape)
    collector.learner = learner
    return RolloutSource(collector, learner, **options), collector


@pytest.mark.parametrize(
    ("shape", "total", "ranks", "steps", "frames"),
    [
        ((1, 10), 30, 1, [10, 10, 10], 30),
        ((1, 10), 25, 1, [10, 10, 5], 25),
        ((10,), 25, 1, [10, 10, 5], 25),
        ((3, 4), 24, 1, [4, 4], 24),
        ((3, 4), 18, 1, [4, 2], 18),
        ((3, 4), 16, 1, [4, 2], 18),  # the step of all three that reaches the total
        ((3, 4), 2, 1, [1], 3),
        ((3, 4), 24, 2, [4], 24),
        ((3, 4), 36, 2, [4, 2], 36),
        ((3, 4), 25, 2, [4, 1], 30),
    ],
)
def test_the_last_rollout_is_cut_where_the_total_is_reached(shape, total, ranks, steps, frames):
    source, collector = source_of(*shape, total=total, ranks=ranks)
    rollouts = list(source)
    assert [rollout.shape[-1] for rollout in rollouts] == steps
    assert collector.learner.ledger.frames == frames
    assert all(rollout.shape[:-1] == shape[:-1] for rollout in rollouts)
    whole = torch.cat([rollout["number"].reshape(-1, rollout.shape[-1])[0] for rollout in rollouts])
    assert whole.tolist() == list(range(sum(steps)))


def test_frames_are_counted_before_they_are_handed_out():
    source, collector = source_of(2, 5, total=30)
    assert [collector.learner.ledger.frames for _ in source] == [10, 20, 30]


def test_a_run_that_goes_on_counts_on():
    source, collector = source_of(2, 5, total=30, frames=14)
    assert [rollout.shape[-1] for rollout in source] == [5, 3]
    assert collector.learner.ledger.frames == 30


def test_returns_of_episodes_are_told_once_and_none_of_what_was_cut():
    source, _ = source_of(2, 6, total=14)
    rollouts = iter(source)
    next(rollouts)
    assert source.train_return() == 30.0
    assert source.train_return() is None
    next(rollouts)  # of steps 6 to 11 only the first
    assert source.train_return() is None
    assert list(rollouts) == []


def test_weights_go_to_a_policy_that_acts_elsewhere():
    source, collector = source_of(1, 4, total=8)
    source.push(1)
    collector.policy = nn.Linear(1, 1)
    source.push(1)
    torch.testing.assert_close(
        collector.policy.state_dict(), collector.learner.policy.state_dict(), atol=0.0, rtol=0.0
    )


def test_nothing_is_owed_and_the_collector_is_closed():
    source, collector = source_of(1, 4, total=8)
    list(source)
    assert collector.learner.ledger.owed == 0.0
    with source.pause():
        pass
    source.shutdown()
    assert collector.closed == 1


def test_the_learner_is_told_the_progress_before_the_first_frame_and_after_each_rollout():
    source, collector = source_of(2, 4, total=40, frames=16)
    assert collector.learner.progress == [0.4]
    next(iter(source))
    assert collector.learner.progress == [0.4, 0.6]
