"""Evaluate and film the policy that a run left."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import torch
from torchrl.envs import EnvBase
from torchrl.envs.utils import ExplorationType, set_exploration_type

from torchrl_elegant.config.blame import mistakes_are_told
from torchrl_elegant.config.text import UsageError, brief
from torchrl_elegant.runs.config_file import run_of
from torchrl_elegant.runs.files import write_file
from torchrl_elegant.runs.film import animation
from torchrl_elegant.runs.folder import RunFolder, refused_by_the_system
from torchrl_elegant.runs.policy import Policy
from torchrl_elegant.runs.trial import Env
from torchrl_elegant.runs.trust import Trust
from torchrl_elegant.trainers.environments import Environments
from torchrl_elegant.trainers.evaluation import Evaluation, PolicyEvaluator
from torchrl_elegant.trainers.run_config import RunConfig


def evaluate(
    folder: str | Path,
    *,
    episodes: int = 20,
    policy: Literal["final", "best"] = "final",
    seed: int = 1_000,
    trust: bool | Trust = False,
    env_factory: Env = None,
    max_eval_steps: int | None = None,
) -> Evaluation:
    """Play whole episodes with a run's deterministic policy.

    Args:
        folder: a run folder.
        episodes: how many.
        policy: ``policy.pt`` or ``policy_best.pt``.
        seed: of the environment.
        trust: whether the stored name of the environment may run code (see ``resume``).
        env_factory: callable or name to make environments with, in place of the stored name.
        max_eval_steps: steps after which an episode counts as it is; None for those of the run.
    """
    _require_counts(episodes=episodes, max_eval_steps=max_eval_steps)
    about: dict[str, Any] = {"policy": policy, "trust": trust, "env_factory": env_factory}
    with at_play(folder, episodes=episodes, seed=seed, **about) as (loaded, env, run):
        most = max_eval_steps or run.max_eval_steps
        return PolicyEvaluator(env, loaded.actor, episodes=episodes, max_steps=most).evaluate()


@contextmanager
def at_play(
    folder: str | Path,
    *,
    episodes: int,
    seed: int,
    policy: Literal["final", "best"] = "final",
    trust: bool | Trust = False,
    env_factory: Env = None,
) -> Iterator[tuple[Policy, EnvBase, RunConfig]]:
    """A run's policy, an environment to play in and the run's options; see ``evaluate``."""
    run, source = _run_of(folder, trust, env_factory)
    path = policy_path(folder, policy)
    loaded = Policy.load(path)
    with _environment(run, source, episodes, seed) as env:
        _refuse_another_policy(loaded, env, path, run.env)
        yield loaded, env, run


def film(
    folder: str | Path,
    path: str | Path | None = None,
    *,
    policy: Literal["final", "best"] = "final",
    seed: int = 1_000,
    trust: bool | Trust = False,
    env_factory: Env = None,
    max_eval_steps: int | None = None,
) -> Path:
    """Film one episode of a run's deterministic policy as a GIF.

    Of one agent it is the first episode that ``evaluate`` plays. Teams of VMAS are drawn without a
    display; each picture tells its step and the returns so far.

    Args:
        folder: a run folder.
        path: the file, which is replaced; None for ``video.gif`` in the run folder.
        policy, seed, trust, env_factory, max_eval_steps: as in ``evaluate``.
    """
    _require_counts(max_eval_steps=max_eval_steps)
    run, source = _run_of(folder, trust, env_factory)
    stored = policy_path(folder, policy)
    loaded = Policy.load(stored)
    with _environment(run, source, 1, seed) as env:
        _refuse_another_policy(loaded, env, stored, run.env)
    run = replace(run, max_eval_steps=max_eval_steps or run.max_eval_steps)
    pictures = animation(run, loaded, seed=seed, env=source)
    if path is None:
        return write_into(folder, "video.gif", pictures)
    with refused_by_the_system(Path(path), "path", "choose another path"):
        write_file(path, pictures)
    return Path(path)


def write_into(folder: str | Path, name: str, data: bytes) -> Path:
    """Write a file into a run folder; UsageError where the folder takes none."""
    path = Path(folder) / name
    with refused_by_the_system(Path(folder), "run", "make it writable, or copy the folder"):
        write_file(path, data)
    return path


def _require_counts(**counts: int | None) -> None:
    for name, count in counts.items():
        if count is not None and (type(count) is not int or count < 1):
            raise UsageError(f"`{name}` must be an integer of 1 or more, got `{count!r}`")


def _run_of(
    folder: str | Path, trust: bool | Trust, env_factory: Env
) -> tuple[RunConfig, str | Callable[..., Any]]:
    """Options of a stored run, and what its environments are made with."""
    trust = Trust.of(trust)
    _, run = run_of(RunFolder.open(folder, option="run").read_config(), trust=trust)
    return run, env_factory or trust.environment(run.env, run.env_kwargs)


@contextmanager
def _environment(run: RunConfig, source: Env, episodes: int, seed: int) -> Iterator[EnvBase]:
    environments = Environments(run, source)
    try:
        with mistakes_are_told():
            env = environments.alone(episodes, seed)
        yield env
    finally:
        environments.close()


def policy_path(folder: str | Path, policy: Literal["final", "best"]) -> Path:
    """The file of a run's policy; UsageError where there is none yet."""
    path = Path(folder) / ("policy.pt" if policy == "final" else "policy_best.pt")
    try:
        found = path.is_file()
    except OSError as error:  # a name longer than any file's
        raise UsageError(
            f"`run` must be a run folder, got {brief(folder)!r}: {error.strerror}; give another"
        ) from error
    if not found:
        raise UsageError(
            f"`run` must hold {path.name}, got {str(folder)!r} without; it is written with the "
            "first checkpoint"
        )
    return path


def _refuse_another_policy(policy: Policy, env: EnvBase, path: Path, name: str) -> None:
    """Let the policy act once on made-up observations: sizes that do not fit are told here."""
    keys, made_up = policy.actor.in_keys, env.fake_tensordict()
    wanted = [made_up.get(key).shape for key in env.action_keys]
    try:
        # No action at all may be chosen under a mask of zeros.
        seen = made_up.select(*keys).apply(lambda x: x | True if x.dtype == torch.bool else x)
        with torch.no_grad(), set_exploration_type(ExplorationType.DETERMINISTIC):
            acted = policy.actor(seen)
        found = [acted.get(key).shape for key in env.action_keys]
    except (RuntimeError, KeyError, ValueError):
        found = None
    if found != wanted:
        batch = len(env.batch_size)
        specs = dict(env.observation_spec.items(True, True))
        read = [key for key in specs if key in keys] or list(specs)
        sizes = ", ".join(f"{key} {tuple(specs[key].shape[batch:])}" for key in read)
        raise UsageError(
            f"`run` must hold a policy of its own environment, got {str(path)!r}, trained on "
            f"{policy.metadata.get('env')!r}, which does not fit {name!r} with {sizes} and actions "
            f"{', '.join(str(tuple(shape[batch:])) for shape in wanted)}; put the run's own policy "
            "back"
        )
