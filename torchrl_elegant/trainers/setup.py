"""From configurations to the objects of a run."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from torchrl.data import Categorical, MultiCategorical, MultiOneHot, OneHot, ReplayBuffer
from torchrl.envs import EnvBase

from torchrl_elegant.algorithms import AlgorithmConfig, OffPolicyConfig, OnPolicyConfig
from torchrl_elegant.collectors import AsyncCollector, ParallelCollector, SyncCollector
from torchrl_elegant.envs import GymnasiumEnv, make_env
from torchrl_elegant.trainers.behaviour import behaviour_copy
from torchrl_elegant.trainers.config import RunConfig
from torchrl_elegant.trainers.distributed import Ranks
from torchrl_elegant.trainers.evaluation import PolicyEvaluator, evaluation_env
from torchrl_elegant.trainers.learner import Learner
from torchrl_elegant.trainers.plan import EVALUATE, TRAIN, Counters, free_frames, seed_of
from torchrl_elegant.trainers.policy_file import BUILDERS
from torchrl_elegant.trainers.rollout_learner import RolloutLearner
from torchrl_elegant.trainers.sources import AsyncSource, Source, SyncSource
from torchrl_elegant.trainers.values import UsageError

EnvFactory = Callable[..., EnvBase]


def env_factory(run: RunConfig, env: Any) -> EnvFactory:
    """``make_env`` for this run; ``env`` is the name or the callable that was given."""
    return partial(make_env, env, env_kwargs=run.env_kwargs)


@contextmanager
def their_mistake(run: RunConfig) -> Iterator[None]:
    """Whatever a user's environment raises while it is made is told in one line."""
    try:
        yield
    except (ValueError, ImportError):
        raise
    except Exception as error:
        last = traceback.extract_tb(error.__traceback__)[-1]
        raise UsageError(
            f"`env` must make an environment, got {type(error).__name__} from {run.env!r}: {error} "
            f"({last.filename}, line {last.lineno})"
        ) from error


def build_learner(
    run: RunConfig, config: AlgorithmConfig, make: EnvFactory, ranks: Ranks
) -> tuple[Learner, dict[str, Any]]:
    """The learner on its device, and what a policy file has to say of the environment."""
    with their_mistake(run):
        env = make(1, seed=0, device=ranks.device)
    try:
        parts = config.build(env)
        _check_storable(parts.policy)
        kind = RolloutLearner if isinstance(config, OnPolicyConfig) else Learner
        learner = kind(
            parts, max_grad_norm=config.max_grad_norm, ranks=ranks if ranks.count > 1 else None
        )
        about = {name: getattr(env, name, None) for name in ("action_low", "action_high")}
        about["discrete_actions"] = _discrete_form(env)
        if isinstance(env, GymnasiumEnv):
            codec = env.simulators.codec
            about |= {"action_start": codec.start, "action_sizes": codec.sizes}
    finally:
        env.close()
    ranks.share(learner.loss)
    return learner, {"env": run.env, "algorithm": config.name, **about}


def _check_storable(policy: Any) -> None:
    name = type(policy).__name__
    if name not in BUILDERS or not callable(getattr(policy, "spec_dict", None)):
        raise UsageError(
            f"`policy` must be of a class in torchrl_elegant.trainers.policy_file.BUILDERS, with a "
            f"method spec_dict() that gives the builder's arguments, got {name}; without them no "
            "policy file could be written"
        )


def build_evaluator(
    run: RunConfig, make: EnvFactory, learner: Learner, counters: Counters
) -> PolicyEvaluator:
    """An evaluator on environments of its own, with a seed of their own."""
    device = next(learner.policy.parameters()).device
    env = evaluation_env(
        partial(make, seed=seed_of(run, EVALUATE, counters.frames), device=device),
        run.eval_episodes,
    )
    return PolicyEvaluator(env, learner.policy, episodes=run.eval_episodes)


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
        keys=list(learner.loss.in_keys),
        total_frames=run.total_frames,
        updates_per_frame=config.updates_per_frame,
        free_frames=free_frames(config, counters),
        frames=counters.frames,
        ranks=ranks.count,
    )


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
        keys=list(learner.loss.in_keys),
        seed=seed_of(run, TRAIN),
        frames_done=counters.frames,
    )


def _discrete_form(env: EnvBase) -> str | None:
    forms = {OneHot: "one_hot", MultiOneHot: "one_hot"}
    forms |= {Categorical: "categorical", MultiCategorical: "categorical"}
    specs = env.full_action_spec_unbatched.values(True, True)
    return next((forms[type(spec)] for spec in specs if type(spec) in forms), None)
