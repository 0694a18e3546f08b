"""Families of algorithms: store, source and loop."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

from torchrl.data import ReplayBuffer

from torchrl_elegant.algorithms import AlgorithmConfig, OffPolicyConfig, OnPolicyConfig, Ramp
from torchrl_elegant.data import make_buffer
from torchrl_elegant.runs.collection import (
    EnvFactory,
    build_collector,
    build_rollout_workers,
    build_source,
)
from torchrl_elegant.runs.monitor import Follower, Monitor
from torchrl_elegant.runs.off_policy_loop import train_off_policy
from torchrl_elegant.runs.on_policy_loop import train_on_policy
from torchrl_elegant.runs.plan import Counters
from torchrl_elegant.runs.state import RunState
from torchrl_elegant.trainers.learner import Learner
from torchrl_elegant.trainers.ranks import Ranks
from torchrl_elegant.trainers.rollout_learner import RolloutLearner
from torchrl_elegant.trainers.run_config import RunConfig
from torchrl_elegant.trainers.sources import RolloutSource, Source, WorkerRollouts


def make_store(config: AlgorithmConfig, ranks: Ranks) -> ReplayBuffer | None:
    """The replay buffer, for algorithms that have one."""
    if not isinstance(config, OffPolicyConfig):
        return None
    return make_buffer(size=config.buffer_size, device=ranks.device, priority=config.priority())


def make_loop(
    run: RunConfig,
    config: AlgorithmConfig,
    make: EnvFactory,
    learner: Learner,
    buffer: ReplayBuffer | None,
    state: RunState,
    ranks: Ranks,
) -> tuple[Source | RolloutSource, Callable[[Monitor | Follower], None]]:
    """Where frames come from, and what is done with them but for the monitor."""
    counters, batch_size = state.counters, config.batch_size
    if isinstance(config, OnPolicyConfig):
        assert isinstance(learner, RolloutLearner)
        rollouts = _rollouts(run, make, learner, counters, ranks)
        epochs = config.epochs
        loop = partial(train_on_policy, rollouts, learner, epochs=epochs, batch_size=batch_size)
        return rollouts, loop
    assert isinstance(config, OffPolicyConfig)
    assert buffer is not None
    if config.priority() is not None:
        learner.ramps += (_full_correction(config, buffer),)
    source = build_source(run, config, make, learner, buffer, counters, ranks)
    return source, partial(train_off_policy, source, buffer, learner, batch_size=batch_size)


def _full_correction(config: OffPolicyConfig, buffer: ReplayBuffer) -> Ramp:
    """The importance weights undo all of the priorities' bias by the end of a run."""
    apply = partial(setattr, buffer.sampler, "beta")
    return Ramp(start=config.priority_beta, end=1.0, apply=apply)


def _rollouts(
    run: RunConfig, make: EnvFactory, learner: Learner, counters: Counters, ranks: Ranks
) -> RolloutSource:
    """Whole rollouts of the present policy, each rank its share; or of workers."""
    if run.collector != "sync":
        workers = build_rollout_workers(run, make, learner, counters)
        total = run.total_frames
        return WorkerRollouts(workers, learner, total_frames=total, frames=counters.frames, ranks=1)
    step = ranks.count * run.num_envs
    frames = -(-(run.frames_per_batch or step) // step) * run.num_envs
    own = replace(run, frames_per_batch=frames)
    collector = build_collector(own, make, learner, counters, ranks)
    return RolloutSource(
        collector,
        learner,
        total_frames=run.total_frames,
        frames=counters.frames,
        ranks=ranks.count,
    )
