"""What follows from configurations alone: seeds, threads, shares, and when updates are owed."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace

import numpy as np
import torch

from torchrl_elegant.algorithms import ALGORITHMS, AlgorithmConfig, OffPolicyConfig, OnPolicyConfig
from torchrl_elegant.algorithms.base import check_unused
from torchrl_elegant.config.text import UsageError
from torchrl_elegant.trainers.ranks import Ranks
from torchrl_elegant.trainers.run_config import RunConfig

# Streams of one seed that must not meet: SeedSequence keys.
TRAIN, EVALUATE, LEARN = range(3)
# Threads beyond which a narrow network loses more to waking them than it gains.
_WIDE = 128


@dataclass(kw_only=True)
class Counters:
    """Where a run stands when its collection starts."""

    frames: int = 0
    updates: int = 0
    # Updates that were owed when the run was saved.
    debt: float = 0.0
    # Frames collected with the learnt policy, and not learnt from, where the buffer was not kept.
    refill: int = 0


def seed_of(run: RunConfig, stream: int, *more: int) -> int:
    """A 31-bit seed for one use of the run's seed.

    >>> seed_of(RunConfig(seed=1), 0) != seed_of(RunConfig(seed=1), 1)
    True
    """
    return int(np.random.SeedSequence((run.seed, stream, *more)).generate_state(1)[0] >> 1)


def seed_learner(run: RunConfig, rank: int, frames: int = 0) -> None:
    """Seed torch and NumPy for networks, sampling and noise of this rank from ``frames`` on."""
    torch.manual_seed(seed_of(run, LEARN, rank, 0, frames))
    # The old global state, because samplers of other packages draw from it.
    np.random.seed(seed_of(run, LEARN, rank, 1, frames))  # noqa: NPY002


def set_threads(run: RunConfig, config: AlgorithmConfig) -> None:
    """Give PyTorch the configured threads, or one for narrow networks."""
    threads = run.threads
    if threads == 0:
        narrow = max(config.num_cells) < _WIDE and config.batch_size <= 512
        threads = 1 if narrow else min(torch.get_num_threads(), 4)
    torch.set_num_threads(threads)


def free_frames(config: OffPolicyConfig, counters: Counters) -> float:
    """Frames that ask for no update, such that a run that goes on owes what it owed before.

    >>> from torchrl_elegant.algorithms import SACConfig
    >>> config = SACConfig(warmup=100, updates_per_frame=0.5)
    >>> free_frames(config, Counters()), free_frames(config, Counters(frames=300, updates=100))
    (100, 100.0)
    """
    if counters.refill:
        start: float = counters.frames + counters.refill
    elif counters.updates:
        start = counters.frames - counters.debt / config.updates_per_frame
    else:
        return config.warmup
    return max(start, config.warmup) - counters.updates / config.updates_per_frame


def planned(run: RunConfig, config: AlgorithmConfig) -> RunConfig:
    """``run`` with the batches that the algorithm needs; refuses, before anything is made, what the
    two configurations cannot do together.

    >>> from torchrl_elegant.algorithms import PPOConfig
    >>> planned(RunConfig(num_envs=4), PPOConfig()).frames_per_batch
    2048
    """
    run.logger_name()
    kind = type(config)
    if isinstance(config, (type, str)):
        raise UsageError(
            f"`config` must be a configuration such as SACConfig(), got {config}; call the class, "
            "or take one by name from tuned(algorithm, env)"
        )
    if ALGORITHMS.get(getattr(config, "name", "")) is not kind:
        raise UsageError(
            f"`config` must be of a registered class, got {kind.__name__}; decorate it with "
            f"@register({kind.__name__.removesuffix('Config').lower()!r}), so that its runs can "
            "be stored and go on"
        )
    _check_memory(run, config)
    on_policy = isinstance(config, OnPolicyConfig)
    if run.collector == "parallel" and not on_policy:
        raise UsageError(
            f"`collector` must be sync or async with {config.name}, got {run.collector!r}; workers "
            "that wait for every few updates are slower than none"
        )
    # The workers of an on-policy run make one rollout together, those of others one each.
    envs = run.num_envs * (run.num_workers if on_policy and run.collector != "sync" else 1)
    usual = config.frames_per_batch(total_frames=run.total_frames, num_envs=envs)
    frames = run.frames_per_batch or usual
    if frames > max(usual, -(-run.total_frames // envs) * envs):
        raise UsageError(
            f"`frames_per_batch` must be at most total_frames ({run.total_frames}), got {frames}; "
            "what is collected beyond that would be thrown away"
        )
    every = run.num_envs * (run.num_workers if run.collector != "sync" else 1)
    config.check_budget(total_frames=run.total_frames, frames_per_batch=frames, num_envs=every)
    if frames % envs:
        raise UsageError(
            f"`frames_per_batch` must be a multiple of num_workers * num_envs ({envs}), got "
            f"{frames}; set frames_per_batch={-(-frames // envs) * envs}, or none"
        )
    if isinstance(config, OnPolicyConfig):
        _check_on_policy(run, config, frames)
    return replace(run, frames_per_batch=frames)


def _check_on_policy(run: RunConfig, config: OnPolicyConfig, frames: int) -> None:
    """Refuse what only algorithms with a replay buffer use, and a run that could learn nothing."""
    other = "an off-policy algorithm"
    mode = f"{config.name}, whose policy is pushed once a rollout"
    check_unused(run, "push_interval", mode=mode, other=other)
    check_unused(run, "save_buffer", mode=f"{config.name}, which keeps none", other=other)
    if config.lr_end == 0.0 and frames >= run.total_frames:
        raise UsageError(
            "`lr_end` must be above 0 in a run of one rollout, got 0.0: nothing would be learnt "
            f"from it; set frames_per_batch below total_frames ({run.total_frames}), or lr_end"
        )


def _check_memory(run: RunConfig, config: AlgorithmConfig) -> None:
    """Refuse stores of pictures that no memory here could hold."""
    if not run.resize:
        return
    # A byte per number.
    picture = run.frame_stack * run.resize**2 * (1 if run.grey else 3)
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    # The buffer is taken whole at once; a row of it has both observations.
    stores = [("buffer_size", getattr(config, "buffer_size", 0), 2 * picture)]
    if config.hterm is not None:
        age, most = config.hterm.max_age, config.hterm.capacity
        limited = ("hterm.capacity", most, config.hterm.horizon * picture)
        stores.append(("hterm.max_age", age, picture) if most is None else limited)
    for name, rows, each in stores:
        if rows * each > memory:
            raise UsageError(
                f"`{name}` must fit into memory, got {rows} rows of {each:,} bytes, which are "
                f"{rows * each / 2**30:.0f} GiB of {memory / 2**30:.0f}; set "
                f"{name}={max(1, memory // (2 * each))} or less"
            )


def per_rank(run: RunConfig, config: AlgorithmConfig, ranks: Ranks) -> AlgorithmConfig:
    """The share of one rank, so that all ranks together do what one would."""
    if ranks.count == 1:
        return config
    if run.collector != "sync":
        raise UsageError(
            f"`collector` must be sync under torchrun, got {run.collector!r}; each rank "
            "already collects in a process of its own"
        )
    if config.batch_size % ranks.count:
        raise UsageError(
            f"`batch_size` must be a multiple of the {ranks.count} ranks, got {config.batch_size}"
        )
    return config.share(ranks.count)
