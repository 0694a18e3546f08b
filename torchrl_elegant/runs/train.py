"""`train` and `resume`: configurations in, policy, history and run folder out."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from tensordict.nn import TensorDictModuleBase

from torchrl_elegant.algorithms import ALGORITHMS, AlgorithmConfig
from torchrl_elegant.config.blame import mistakes_are_told
from torchrl_elegant.config.changes import build
from torchrl_elegant.config.machine import require_cores
from torchrl_elegant.config.options import options_of, require_known
from torchrl_elegant.config.text import UsageError
from torchrl_elegant.runs.callbacks import Callback, Callbacks, RunningRun
from torchrl_elegant.runs.config_file import from_yaml
from torchrl_elegant.runs.folder import RunFolder
from torchrl_elegant.runs.monitor import SIGNAL_CODES, Follower, Monitor, StopSignals
from torchrl_elegant.runs.policy import describe
from torchrl_elegant.runs.reporter import Reporter
from torchrl_elegant.runs.start import begin_with
from torchrl_elegant.runs.state import RunState, open_run
from torchrl_elegant.runs.trial import Trial, run_config
from torchrl_elegant.runs.trust import Trust, know_environment, leads_back
from torchrl_elegant.trainers.ranks import Ranks
from torchrl_elegant.trainers.run_config import RunConfig


@dataclass(frozen=True, kw_only=True)
class TrainResult:
    """Result of a run.

    ``policy`` is the trained actor, ``history`` the rows of ``metrics.csv``, ``folder`` where all
    of it is stored.

    ``stopped_by`` says why it ended early: ``"SIGINT"``, ``"SIGTERM"``, ``"stop file"``,
    ``"target_return"``, or a callback's reason; None where all frames were collected. ``unsaved``
    names files that could not be written to the end, and since which frame.
    """

    policy: TensorDictModuleBase
    history: list[dict[str, float]]
    folder: Path
    stopped_by: str | None = None
    unsaved: Mapping[str, int] = field(default_factory=dict)

    @property
    def exit_code(self) -> int:
        """Exit code of a run: 1 where files could not be written, as shells have it after a signal.

        A run that a ``stop`` file, ``target_return`` or a callback ended has done what it was told.
        """
        if self.unsaved:
            return 1
        return SIGNAL_CODES.get(self.stopped_by or "", 0)


def train(
    config: AlgorithmConfig,
    env: str | Callable[..., Any] | None = None,
    *,
    callbacks: Sequence[Callback] = (),
    start_from: str | Path | None = None,
    **run: Any,
) -> TrainResult:
    """Train ``config``'s algorithm on ``env``.

    Args:
        config: an algorithm's configuration, such as ``SACConfig(batch_size=64)``.
        env: a Gymnasium id, ``"package.module:factory"``, or a callable that returns a Gymnasium or
            TorchRL environment (see ``make_env``); None for the algorithm's ``example``.
        callbacks: told what happens; they may log and stop the run.
        start_from: run folder or policy file whose actor's parameters the new run begins with.
        run: fields of ``RunConfig``: ``total_frames``, ``seed``, ``device``, ``folder``, ...

    >>> import tempfile
    >>> from torchrl_elegant.algorithms import SACConfig
    >>> small = SACConfig(num_cells=(8,), batch_size=8, warmup=10)
    >>> where = tempfile.mkdtemp() + "/run"
    >>> result = train(small, total_frames=30, eval_episodes=1, folder=where, progress=False)
    >>> int(result.history[-1]["frames"]), result.folder.name
    (30, 'run')
    """
    return _run(
        run_config(config, env, **run), config, env, callbacks=callbacks, start_from=start_from
    )


def resume(
    folder: str | Path,
    *,
    trust: bool | Trust = False,
    callbacks: Sequence[Callback] = (),
    **changes: Any,
) -> TrainResult:
    """Go on with the run in ``folder`` from its last whole checkpoint.

    Args:
        folder: a run folder.
        trust: whether stored names such as ``env: module:factory`` may run code; names that this
            process has trained with, has imported or was given again need no trust.
        callbacks: as in ``train``; they get back the state that they had.
        changes: options of the run or of its algorithm, such as a larger ``total_frames``; besides,
            ``env_factory``: the callable to make environments with, for a run that was started
            with one that cannot be imported by its name, such as a lambda; ``networks``: those of a
            run whose configuration had any.
    """
    trust = Trust.of(trust)
    _, run, config = stored_run(folder, trust=trust)
    env = changes.pop("env_factory", None)
    changed, config = with_changes(run, config, changes)
    if "env" in changes:
        know_environment(changed.env)
    env = the_same_environment(run, changed, trust=trust) if env is None else env
    return _run(changed, config, env, folder=Path(folder), callbacks=callbacks)


def with_changes(
    run: RunConfig, config: AlgorithmConfig, changes: Mapping[str, Any]
) -> tuple[RunConfig, AlgorithmConfig]:
    """Configurations of a run that goes on, with ``changes`` of options of either."""
    own = {*options_of(type(config)), "networks"} & changes.keys()
    rest = {name: value for name, value in changes.items() if name not in own}
    require_known(rest, RunConfig, type(config))
    config = build(type(config), {name: changes[name] for name in own}, config)
    changed = build(RunConfig, rest, run)
    _refuse_another_run(run, changed)
    return changed, config


def stored_run(
    folder: str | Path, *, option: str = "resume", trust: bool | Trust = False
) -> tuple[str, RunConfig, AlgorithmConfig]:
    """Algorithm, run and algorithm configuration of a run folder, which came as ``option``.

    Only an algorithm is imported, and only where ``trust`` allows it (see ``resume``).
    """
    opened = RunFolder.open(folder, option=option)
    return from_yaml(opened.read_config(), algorithms=ALGORITHMS, trust=Trust.of(trust))


def run_with(
    run: RunConfig,
    config: AlgorithmConfig,
    folder: Path | None,
    *,
    trust: bool | Trust = False,
    start_from: str | Path | None = None,
) -> TrainResult:
    """Start a run, or go on with the one in ``folder``, from built configurations."""
    if folder is not None:
        trust = Trust.of(trust)
        the_same_environment(stored_run(folder, trust=trust)[1], run, trust=trust)
    return _run(run, config, run.env, folder=folder, start_from=start_from)


def the_same_environment(stored: RunConfig, run: RunConfig, *, trust: Trust) -> str:
    """The environment's name for a run that goes on; UsageError for another or an untrusted one."""
    _refuse_another_run(stored, run)
    return trust.environment(run.env, run.env_kwargs)


def _refuse_another_run(stored: RunConfig, run: RunConfig) -> None:
    for name in ("env", "env_kwargs", "pixels", "folder"):
        before, after = getattr(stored, name), getattr(run, name)
        if before != after and (name != "env" or leads_back(before)):
            raise UsageError(
                f"`{name}` must stay {before!r} when a run goes on, got {after!r}; start a new "
                "run instead"
            )


def _run(
    run: RunConfig,
    config: AlgorithmConfig,
    env: Any,
    *,
    folder: Path | None = None,
    callbacks: Sequence[Callback] = (),
    start_from: str | Path | None = None,
) -> TrainResult:
    if folder is None:
        know_environment(run.env, run.env_kwargs)
    known = Callbacks(callbacks)
    with ExitStack() as stack:
        with mistakes_are_told():
            run.logger_name()
            stack.enter_context(_threads(run.threads))
            ranks = stack.enter_context(Ranks(run.torch_device()))
            trial = stack.enter_context(Trial(config, env, run=run, ranks=ranks))
            describe(trial.learner.policy, trial.about())
            if start_from is not None:
                begin_with(trial.learner, start_from)
            stack.enter_context(trial.random.active())
            state = stack.enter_context(open_run(trial, folder=folder, callbacks=known))
            view = RunningRun(trial, state.folder.path)
            watcher = _watcher(stack, view, state)
        watcher.start()
        trial.follow(watcher)
        return TrainResult(
            policy=trial.learner.policy,
            history=state.folder.metrics.rows() if ranks.is_first else [],
            folder=state.folder.path,
            stopped_by=watcher.stopped_by,
            unsaved=view.unsaved,
        )


def _watcher(stack: ExitStack, view: RunningRun, state: RunState) -> Follower | Monitor:
    signals, trial = stack.enter_context(StopSignals()), view.trial
    _ = trial.source
    if not trial.ranks.is_first:
        return Follower(signals, trial.ranks)
    reporter = Reporter(view, state.folder)
    stack.callback(reporter.close)
    return Monitor(
        view,
        progress=state.progress,
        reporter=reporter,
        checkpoints=state.checkpoints,
        callbacks=state.callbacks,
        signals=signals,
    )


@contextmanager
def _threads(count: int) -> Iterator[None]:
    """Give torch the threads that were asked for, and back those that it had; 0 changes none."""
    before = torch.get_num_threads()
    if count:
        # Far beyond the cores torch does not refuse: the process ends with a signal.
        require_cores("threads", count, f"{count} threads")
        torch.set_num_threads(count)
    try:
        yield
    finally:
        if count:
            torch.set_num_threads(before)
