"""From configurations to the objects of a run."""

from __future__ import annotations

import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from functools import partial
from typing import Any

from torchrl.data import Categorical, MultiCategorical, MultiOneHot, OneHot
from torchrl.envs import EnvBase

from torchrl_elegant.algorithms import AlgorithmConfig, OnPolicyConfig, that_take
from torchrl_elegant.config.text import UsageError
from torchrl_elegant.envs import GymnasiumEnv, make_env
from torchrl_elegant.modules import ActionSpaceError
from torchrl_elegant.runs.collection import EnvFactory
from torchrl_elegant.runs.plan import EVALUATE, Counters, seed_of
from torchrl_elegant.runs.policy import BUILDERS
from torchrl_elegant.trainers.evaluation import PolicyEvaluator, evaluation_env
from torchrl_elegant.trainers.learner import Learner
from torchrl_elegant.trainers.ranks import Ranks
from torchrl_elegant.trainers.rollout_learner import RolloutLearner
from torchrl_elegant.trainers.run_config import RunConfig


def env_factory(run: RunConfig, env: Any) -> EnvFactory:
    """``make_env`` for this run; ``env`` is the name or the callable that was given."""
    return partial(make_env, env, env_kwargs=run.env_kwargs, pixels=run.picture_options())


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
        with _told_what_fits():
            parts = config.assemble(env)
        _check_storable(parts.policy)
        kind = RolloutLearner if isinstance(config, OnPolicyConfig) else Learner
        learner = kind(parts, ranks=ranks if ranks.count > 1 else None)
        about = {name: getattr(env, name, None) for name in ("action_low", "action_high")}
        about["discrete_actions"] = _discrete_form(env)
        if isinstance(env, GymnasiumEnv):
            codec = env.simulators.codec
            about |= {"action_start": codec.start, "action_sizes": codec.sizes}
    finally:
        env.close()
    ranks.share(learner.loss)
    pixels = run.picture_options()
    about["pixels"] = None if pixels is None else asdict(pixels)
    return learner, {"env": run.env, "algorithm": config.name, **about}


@contextmanager
def _told_what_fits() -> Iterator[None]:
    """An algorithm that cannot take an environment's actions names those that can."""
    try:
        yield
    except ActionSpaceError as error:
        fitting = ", ".join(that_take(error.kind)) or "none that is registered"
        raise UsageError(f"{error} (algorithms for {error.kind} actions: {fitting})") from error


def _check_storable(policy: Any) -> None:
    name = type(policy).__name__
    if name not in BUILDERS or not callable(getattr(policy, "spec_dict", None)):
        raise UsageError(
            f"`policy` must be of a class in torchrl_elegant.runs.policy.BUILDERS, with a "
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


def _discrete_form(env: EnvBase) -> str | None:
    forms = {OneHot: "one_hot", MultiOneHot: "one_hot"}
    forms |= {Categorical: "categorical", MultiCategorical: "categorical"}
    specs = env.full_action_spec_unbatched.values(True, True)
    return next((forms[type(spec)] for spec in specs if type(spec) in forms), None)
