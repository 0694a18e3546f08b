"""`train` and `resume`: configurations in, policy, history and run folder out."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from tensordict.nn import TensorDictModuleBase

from torchrl_elegant.algorithms import ALGORITHMS, AlgorithmConfig
from torchrl_elegant.config.text import UsageError
from torchrl_elegant.runs.config_file import from_yaml
from torchrl_elegant.runs.folder import RunFolder
from torchrl_elegant.runs.monitor import Follower, Monitor, StopSignals
from torchrl_elegant.runs.policy import BUILDERS, Describable
from torchrl_elegant.runs.reporter import Reporter
from torchrl_elegant.runs.state import RunState, open_run
from torchrl_elegant.runs.trial import Trial, run_config
from torchrl_elegant.trainers.ranks import Ranks
from torchrl_elegant.trainers.run_config import RunConfig
from torchrl_elegant.trainers.watcher import Watcher


@dataclass(frozen=True, kw_only=True)
class TrainResult:
    """Result of a run.

    ``policy`` is the trained actor, ``history`` the rows of ``metrics.csv``, ``folder`` where all
    of it is stored.
    """

    policy: TensorDictModuleBase
    history: list[dict[str, float]]
    folder: Path


def train(
    config: AlgorithmConfig, env: str | Callable[..., Any] | None = None, **run: Any
) -> TrainResult:
    """Train ``config``'s algorithm on ``env``.

    Args:
        config: an algorithm's configuration, such as ``SACConfig(batch_size=64)``.
        env: a Gymnasium id, ``"package.module:factory"``, or a callable that returns a Gymnasium or
            TorchRL environment (see ``make_env``); None for the algorithm's ``example``.
        run: fields of ``RunConfig``: ``total_frames``, ``seed``, ``device``, ``folder``, ...

    >>> import tempfile
    >>> from torchrl_elegant.algorithms import SACConfig
    >>> small = SACConfig(num_cells=(8,), batch_size=8, warmup=10)
    >>> where = tempfile.mkdtemp() + "/run"
    >>> result = train(small, total_frames=30, eval_episodes=1, folder=where, progress=False)
    >>> int(result.history[-1]["frames"]), result.folder.name
    (30, 'run')
    """
    return _run(run_config(config, env, **run), config, env, folder=None)


def resume(folder: str | Path, **changes: Any) -> TrainResult:
    """Go on with the run in ``folder`` from its last whole checkpoint.

    Args:
        folder: a run folder.
        changes: fields of ``RunConfig`` to change, such as a larger ``total_frames``; besides,
            ``env_factory``: the callable to make environments with, for a run that was started
            with one that cannot be imported by its name, such as a lambda.
    """
    _, run, config = stored_run(folder)
    env = changes.pop("env_factory", run.env)
    changed = replace(run, **changes)
    _refuse_another_run(run, changed)
    return _run(changed, config, env, folder=Path(folder))


def stored_run(
    folder: str | Path, *, option: str = "resume"
) -> tuple[str, RunConfig, AlgorithmConfig]:
    """Algorithm, run and algorithm configuration of a run folder, which came as ``option``."""
    opened = RunFolder.open(folder, option=option)
    return from_yaml(opened.read_config(), algorithms=ALGORITHMS)


def run_with(run: RunConfig, config: AlgorithmConfig, folder: Path | None) -> TrainResult:
    """Start a run, or go on with the one in ``folder``, from built configurations."""
    if folder is not None:
        _refuse_another_run(stored_run(folder)[1], run)
    return _run(run, config, run.env, folder=folder)


def _refuse_another_run(stored: RunConfig, run: RunConfig) -> None:
    for name in ("env", "env_kwargs", "pixels", "folder"):
        before, after = getattr(stored, name), getattr(run, name)
        if before != after:
            raise UsageError(
                f"`{name}` must stay {before!r} when a run goes on, got {after!r}; start a new "
                "run instead"
            )


def _run(run: RunConfig, config: AlgorithmConfig, env: Any, *, folder: Path | None) -> TrainResult:
    with ExitStack() as stack:
        with _mistakes_are_the_users():
            run.logger_name()
            stack.enter_context(_threads(run.threads))
            ranks = stack.enter_context(Ranks(run.torch_device()))
            trial = stack.enter_context(Trial(config, env, run=run, ranks=ranks))
            _check_storable(trial.learner.policy)
            stack.enter_context(trial.random.active())
            state = stack.enter_context(open_run(trial, folder=folder))
            watcher = _watcher(stack, trial, state)
        trial.follow(watcher)
        history = state.folder.metrics.rows() if ranks.is_first else []
        return TrainResult(policy=trial.learner.policy, history=history, folder=state.folder.path)


def _watcher(stack: ExitStack, trial: Trial, state: RunState) -> Watcher:
    signals = stack.enter_context(StopSignals())
    _ = trial.source
    if not trial.ranks.is_first:
        return Follower(signals, trial.ranks)
    reporter = Reporter(trial.run, state.folder, trial.about(), trial.ledger.frames)
    stack.callback(reporter.close)
    return Monitor(
        run=trial.run,
        learner=trial.learner,
        progress=state.progress,
        reporter=reporter,
        checkpoints=state.checkpoints,
        evaluator=trial,
        signals=signals,
        ranks=trial.ranks,
    )


@contextmanager
def _threads(count: int) -> Iterator[None]:
    """Give torch the threads that were asked for, and back those that it had; 0 changes none."""
    before = torch.get_num_threads()
    if count:
        torch.set_num_threads(count)
    try:
        yield
    finally:
        if count:
            torch.set_num_threads(before)


@contextmanager
def _mistakes_are_the_users() -> Iterator[None]:
    """While a run is set up, a wrong value is a wrong configuration: one clear line for scripts."""
    try:
        yield
    except (ValueError, TypeError, ImportError) as error:
        raise error if isinstance(error, UsageError) else UsageError(str(error)) from error


def _check_storable(policy: Any) -> None:
    name = type(policy).__name__
    if name not in BUILDERS or not isinstance(policy, Describable):
        raise UsageError(
            "`policy` must be of a class in torchrl_elegant.runs.policy.BUILDERS, with a method "
            f"spec_dict() that gives the builder's arguments, got {name}; without them no policy "
            "file could be written"
        )
