"""The training loop, from replay buffer to policy weights, in the order things happen."""

from __future__ import annotations

from collections.abc import Iterator

from tensordict import TensorDictBase
from torchrl.data import PrioritizedSampler, ReplayBuffer

from torchrl_elegant.runs.monitor import Follower, Monitor
from torchrl_elegant.trainers.learner import Learner
from torchrl_elegant.trainers.sources import Source

# What the rows of one draw may take: above it the batches of a round are drawn in several goes.
_BYTES = 1 << 26


def train_off_policy(
    source: Source,
    buffer: ReplayBuffer,
    learner: Learner,
    monitor: Monitor | Follower,
    *,
    batch_size: int,
) -> None:
    """Run until all frames are collected and learnt from, or the monitor says stop."""
    clock = monitor.clock
    for due in clock.over(source, source.activity):  # env -> collector -> replay buffer
        for batch in clock.over(draw(buffer, batch_size, due), "sample"):  # buffer -> batches
            with clock.during("learn"):
                metrics = learner.update(batch)  # loss -> optimiser -> target nets
            monitor.note(metrics)
        source.push(due)  # policy weights
        if not monitor.after(source):  # evaluator, metrics, checkpoints
            break
    monitor.finish(source)


def draw(buffer: ReplayBuffer, batch_size: int, count: int) -> Iterator[TensorDictBase]:
    """``count`` batches, whose rows are drawn in one go, or in several where rows are large.

    By priority each batch is drawn by itself, after the priorities that the last one was left with
    are filed.

    >>> import torch
    >>> from tensordict import TensorDict
    >>> from torchrl_elegant.data import make_buffer
    >>> buffer = make_buffer(size=8)
    >>> _ = buffer.extend(TensorDict({"x": torch.arange(8.0)}, [8]))
    >>> [batch.shape[0] for batch in draw(buffer, 4, 3)]
    [4, 4, 4]
    """
    if isinstance(buffer.sampler, PrioritizedSampler):
        for _ in range(count):
            batch = buffer.sample(batch_size)
            yield batch
            buffer.update_tensordict_priority(batch)
    elif count == 1:
        yield buffer.sample(batch_size)
    elif count:
        most = max(1, _BYTES // (batch_size * buffer[:1].bytes()))
        for start in range(0, count, most):
            batches = min(most, count - start)
            yield from buffer.sample(batches * batch_size).split(batch_size)
