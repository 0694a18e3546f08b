"""The training loop of algorithms that learn from each rollout once, in the order things happen."""

from __future__ import annotations

from torchrl_elegant.data import minibatches
from torchrl_elegant.runs.monitor import Follower, Monitor
from torchrl_elegant.trainers.rollout_learner import RolloutLearner
from torchrl_elegant.trainers.sources import RolloutSource


def train_on_policy(
    source: RolloutSource,
    learner: RolloutLearner,
    monitor: Monitor | Follower,
    *,
    epochs: int,
    batch_size: int,
) -> None:
    """Run until all frames are collected and learnt from, or the monitor says stop."""
    clock = monitor.clock
    for rollout in clock.over(source, source.activity):  # env -> collector -> rollout
        with clock.during("learn"):
            rows = learner.rows(rollout)  # values -> advantages -> rows
        for _ in range(epochs):
            for batch in clock.over(minibatches(rows, batch_size), "sample"):  # rows -> batches
                with clock.during("learn"):
                    metrics = learner.update(batch)  # loss -> optimiser
                monitor.note(metrics)
            with clock.during("learn"):
                if learner.is_far(rows):
                    break
        with clock.during("learn"):
            monitor.note(learner.report(rows))
        source.push(epochs)  # policy weights
        if not monitor.after(source):  # evaluator, metrics, checkpoints
            break
    monitor.finish(source)
