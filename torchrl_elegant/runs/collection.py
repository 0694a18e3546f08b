"""From configurations to whatever collects frames."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch
from tensordict import NestedKey, unravel_key
from torchrl.data import ReplayBuffer
from torchrl.envs import EnvBase

from torchrl_elegant.algorithms import OffPolicyConfig
from torchrl_elegant.collectors import AsyncCollector, ParallelCollector, SyncCollector
from torchrl_elegant.runs.plan import TRAIN, Counters, free_frames, seed_of
from torchrl_elegant.trainers.learner import Learner
from torchrl_elegant.trainers.ranks import Ranks
from torchrl_elegant.trainers.run_config import RunConfig
from torchrl_elegant.trainers.sources import AsyncSource, Source, SyncSource, behaviour_copy

EnvFactory = Callable[..., EnvBase]


def build_source(
    run: RunConfig,
    config: OffPolicyConfig,
    make: EnvFactory,
    learner: Learner,
    buffer: ReplayBuffer,
    counters: Counters,
    ranks: Ranks,
) -> Source:
    """Collector and buffer, in the mode that is configured."""
    # Before the policy is copied: a run that goes on explores as far as it has come.
    learner.at(counters.frames / run.total_frames)
    if run.collector == "async":
        workers = _workers(run, config, make, learner, buffer, counters)
        return AsyncSource(workers, learner, push_interval=run.push_interval)
    collector = build_collector(run, make, learner, counters, ranks)
    # Not at construction: TorchRL warns there that whole batches are random, as they are meant.
    collector.init_random_frames = -(-config.warmup // ranks.count)
    return SyncSource(
        collector,
        buffer,
        learner,
        keys=row_keys(learner),
        total_frames=run.total_frames,
        updates_per_frame=config.updates_per_frame,
        free_frames=free_frames(config, counters),
        frames=counters.frames,
        ranks=ranks.count,
        fold=config.fold and config.fold(),
    )


def row_keys(learner: Learner) -> list[NestedKey]:
    """What is kept of collected rows: all that the loss reads and somebody writes.

    Losses of TorchRL list the weights that a sampler adds, the next action, and log-probabilities
    that not every policy writes.
    """
    written, names = set(learner.policy.out_keys), learner.loss.tensor_keys
    acted = {getattr(names, name, name) for name in ("action", "sample_log_prob")} | written
    absent = (acted - written) | {unravel_key(("next", key)) for key in acted}
    absent.add(getattr(names, "priority_weight", "priority_weight"))
    return [key for key in learner.loss.in_keys if unravel_key(key) not in absent]


def build_collector(
    run: RunConfig, make: EnvFactory, learner: Learner, counters: Counters, ranks: Ranks
) -> SyncCollector:
    """A collector of a rank, in this process."""
    seed = seed_of(run, TRAIN, ranks.rank, counters.frames)
    return SyncCollector(
        make(run.num_envs, seed=seed, backend=run.env_backend),
        behaviour_copy(learner.policy, torch.device("cpu")),
        total_frames=-1,
        frames_per_batch=run.frames_per_batch,
        auto_register_policy_transforms=False,
        track_traj_ids=False,
        frames_done=counters.frames // ranks.count,
    )


def build_rollout_workers(
    run: RunConfig, make: EnvFactory, learner: Learner, counters: Counters
) -> ParallelCollector:
    """Workers that make a rollout together, one ahead of the learner if asynchronous."""
    assert run.frames_per_batch is not None
    return ParallelCollector(
        partial(make, run.num_envs, backend=run.env_backend),
        learner.policy,
        num_workers=run.num_workers,
        frames_per_batch=run.frames_per_batch,
        total_frames=run.total_frames,
        seed=seed_of(run, TRAIN),
        frames_done=counters.frames,
        ahead=run.collector == "async",
        auto_register_policy_transforms=False,
    )


def _workers(
    run: RunConfig,
    config: OffPolicyConfig,
    make: EnvFactory,
    learner: Learner,
    buffer: ReplayBuffer,
    counters: Counters,
) -> AsyncCollector:
    # Updates are counted from here: with a new ratio the old ones would count otherwise.
    free = free_frames(config, counters) + counters.updates / config.updates_per_frame
    return AsyncCollector(
        partial(make, run.num_envs, backend=run.env_backend),
        learner.policy,
        num_workers=run.num_workers,
        replay_buffer=buffer,
        total_frames=run.total_frames,
        frames_per_batch=run.frames_per_batch or run.num_envs,
        auto_register_policy_transforms=False,
        updates_per_frame=config.updates_per_frame,
        warmup_frames=round(free),
        init_random_frames=config.warmup,
        keys=row_keys(learner),
        seed=seed_of(run, TRAIN),
        frames_done=counters.frames,
        # Workers get on to where the first row is known.
        slack_batches=1 + -(-config.span * run.num_envs // (run.frames_per_batch or run.num_envs)),
        fold=config.fold,
        # Statistics and slices take in every row, once.
        rows_kept=None if learner.sees_every_row else 1024,
    )
