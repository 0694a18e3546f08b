"""`train` and `resume`: configurations in, policy, history and run folder out."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tensordict.nn import TensorDictModuleBase

from torchrl_elegant.algorithms import ALGORITHMS, AlgorithmConfig
from torchrl_elegant.config.text import UsageError
from torchrl_elegant.runs.collection import EnvFactory
from torchrl_elegant.runs.config_file import from_yaml
from torchrl_elegant.runs.families import make_loop, make_store
from torchrl_elegant.runs.folder import RunFolder
from torchrl_elegant.runs.monitor import Follower, Monitor, StopSignals
from torchrl_elegant.runs.plan import per_rank, planned, seed_learner, set_threads
from torchrl_elegant.runs.reporter import Reporter
from torchrl_elegant.runs.setup import build_evaluator, build_learner, env_factory
from torchrl_elegant.runs.state import RunState, open_run
from torchrl_elegant.trainers.learner import DivergedError, Learner
from torchrl_elegant.trainers.ranks import Ranks
from torchrl_elegant.trainers.run_config import RunConfig

# Parameters of glibc's mallopt, and the largest threshold it takes.
_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3
_BYTES = 1 << 25


def keep_freed_blocks() -> bool:
    """Have this process keep freed blocks of up to 32 MiB instead of returning them at once.

    An update on the CPU allocates and frees the same activations again and again. Blocks beyond
    128 KiB, those of a 256 wide ensemble, otherwise go back to the kernel each time and are paged
    in anew: a tenth of the update. Returns whether the C library took the setting; others than
    glibc leave things as they are.

    >>> keep_freed_blocks() in (True, False)
    True
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None:
        return False
    return bool(mallopt(_MMAP_THRESHOLD, _BYTES)) and bool(mallopt(_TRIM_THRESHOLD, 16 * _BYTES))


@dataclass(frozen=True, kw_only=True)
class TrainResult:
    """What a run leaves.

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
    if env is None:
        env = config.example if isinstance(config, AlgorithmConfig) else RunConfig.env
    name = env if isinstance(env, str) else _import_path(env)
    return _run(RunConfig(env=name, **run), config, env, folder=None)


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
    for name in ("env", "env_kwargs", "pixels", "frame_stack", "grey", "resize", "folder"):
        before, after = getattr(stored, name), getattr(run, name)
        if before != after:
            raise UsageError(
                f"`{name}` must stay {before!r} when a run goes on, got {after!r}; start a new "
                "run instead"
            )


def _run(run: RunConfig, config: AlgorithmConfig, env: Any, *, folder: Path | None) -> TrainResult:
    with ExitStack() as stack:
        with _mistakes_are_the_users():
            run = planned(run, config)
            set_threads(run, config)
            keep_freed_blocks()
            ranks = stack.enter_context(Ranks(run.torch_device()))
            share = per_rank(run, config, ranks)
            seed_learner(run, ranks.rank)
            make = env_factory(run, env)
            learner, environment = build_learner(run, share, make, ranks)
            buffer = make_store(share, ranks)
            state = stack.enter_context(
                open_run(run, config, learner, buffer, ranks=ranks, folder=folder)
            )
            source, loop = make_loop(run, share, make, learner, buffer, state, ranks)
            stack.callback(source.shutdown)
            monitor = _watch(stack, run, make, learner, environment, state, ranks)
        try:
            loop(monitor)
        except DivergedError as error:
            raise DivergedError(f"{error}; stopped at frame {source.frames}") from error
        history = state.folder.metrics.rows() if ranks.is_first else []
        return TrainResult(policy=learner.policy, history=history, folder=state.folder.path)


def _watch(
    stack: ExitStack,
    run: RunConfig,
    make: EnvFactory,
    learner: Learner,
    environment: Mapping[str, Any],
    state: RunState,
    ranks: Ranks,
) -> Monitor | Follower:
    signals = stack.enter_context(StopSignals())
    if not ranks.is_first:
        return Follower(state.progress, signals, ranks)
    evaluator = build_evaluator(run, make, learner, state.counters)
    stack.callback(evaluator.shutdown)
    reporter = Reporter(run, state.folder, environment, state.counters.frames)
    stack.callback(reporter.close)
    return Monitor(
        run=run,
        learner=learner,
        progress=state.progress,
        reporter=reporter,
        checkpoints=state.checkpoints,
        evaluator=evaluator,
        signals=signals,
        ranks=ranks,
    )


@contextmanager
def _mistakes_are_the_users() -> Iterator[None]:
    """While a run is set up, a wrong value is a wrong configuration: one clear line for scripts."""
    try:
        yield
    except (ValueError, TypeError, ImportError) as error:
        raise error if isinstance(error, UsageError) else UsageError(str(error)) from error


def _import_path(factory: Callable[..., Any]) -> str:
    return f"{factory.__module__}:{getattr(factory, '__qualname__', type(factory).__qualname__)}"
