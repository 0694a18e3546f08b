"""`sweep`: one configuration on several seeds, each a run of its own, in one folder."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Literal

from torchrl_elegant.algorithms import ALGORITHMS, AlgorithmConfig
from torchrl_elegant.config.text import UsageError
from torchrl_elegant.runs.callbacks import Callback
from torchrl_elegant.runs.config_file import from_yaml
from torchrl_elegant.runs.files import sole_use
from torchrl_elegant.runs.folder import run_path
from torchrl_elegant.runs.metrics import read_metrics
from torchrl_elegant.runs.monitor import SIGNAL_CODES
from torchrl_elegant.runs.policy import Policy
from torchrl_elegant.runs.sweeps.folder import SweepFolder, note_finished
from torchrl_elegant.runs.sweeps.side_by_side import MISTAKE, Ending, Task, run_side_by_side
from torchrl_elegant.runs.train import (
    TrainResult,
    resume,
    the_same_environment,
    train,
    with_changes,
)
from torchrl_elegant.runs.trial import run_config
from torchrl_elegant.runs.trust import Trust, know_environment
from torchrl_elegant.trainers.family import family_of
from torchrl_elegant.trainers.ranks import Ranks
from torchrl_elegant.trainers.run_config import RunConfig

logger = logging.getLogger(__name__)

Outcome = Literal["finished", "failed", "stopped", "not started"]

# Arguments of `resume` that are no options, and options that each run has for itself.
_BESIDE, _OWN = ("trust", "env_factory"), ("seed", "folder")


@dataclass(frozen=True, kw_only=True)
class SeedResult:
    """One run of a sweep; ``reason`` is the last line of a run that failed.

    A run that a signal, a ``stop`` file or a callback ended is ``"stopped"``, and can go on.
    """

    seed: int
    folder: Path
    outcome: Outcome
    reason: str = ""

    @property
    def history(self) -> list[dict[str, float]]:
        """The rows of ``metrics.csv``; none before the run began."""
        path = self.folder / "metrics.csv"
        return read_metrics(path) if path.is_file() else []

    def policy(self) -> Policy:
        """The newest policy."""
        return Policy.load(self.folder / "policy.pt")


@dataclass(frozen=True, kw_only=True)
class SweepResult:
    """Runs of a sweep in the order of their seeds.

    ``stopped_by`` is the signal that ended it early, ``"SIGINT"`` or ``"SIGTERM"``; else None.
    """

    folder: Path
    seeds: tuple[SeedResult, ...]
    stopped_by: str | None = None

    @property
    def exit_code(self) -> int:
        """Exit code of a sweep: as shells have it after a signal, 1 where a seed failed."""
        if self.stopped_by is not None:
            return SIGNAL_CODES[self.stopped_by]
        return 1 if self.failed else 0

    @property
    def failed(self) -> tuple[SeedResult, ...]:
        """Runs that failed."""
        return tuple(one for one in self.seeds if one.outcome == "failed")


def sweep_path(run: RunConfig, algorithm: str) -> Path:
    """The folder that a new sweep is to use: the one configured, or a new name below `runs/`.

    >>> sweep_path(RunConfig(folder="here"), "sac").name
    'here'
    """
    path = run_path(run, algorithm)
    if run.folder is not None:
        return path
    name, _, stamp = path.name.rpartition(f"-s{run.seed}-")
    return path.with_name(f"{name}-{stamp}")


def sweep(
    config: AlgorithmConfig,
    env: str | Callable[..., Any] | None = None,
    *,
    seeds: int,
    jobs: int = 1,
    callbacks: Sequence[Callback] = (),
    **run: Any,
) -> SweepResult:
    """Train on several seeds, each in a process and a run folder of its own.

    A seed that fails stops no other. Ctrl-C and SIGTERM have every run save and end;
    ``resume_sweep`` goes on with those that are not finished.

    Args:
        config: an algorithm's configuration.
        env: as in ``train``.
        seeds: number of seeds, from ``seed`` on.
        jobs: runs at a time; each has its share of the cores.
        callbacks: as in ``train``; every run has copies of its own.
        run: fields of ``RunConfig``; ``folder`` is that of the sweep.
    """
    first = run_config(config, env, **run)
    _check(seeds=seeds, jobs=jobs)
    folder = SweepFolder.create(
        sweep_path(first, config.name), run=first, config=config, seeds=seeds
    )
    own = {seed: {**run, "seed": seed, "folder": str(folder.of(seed))} for seed in folder.seeds}
    end = partial(note_end, first.total_frames)
    tasks = {seed: partial(_begin, config, env, callbacks, end, own[seed]) for seed in own}
    with sole_use(folder.path):
        # A mistake in the arguments is one in all of them.
        return run_seeds(folder, tasks, jobs=jobs, last_codes=[MISTAKE])


def resume_sweep(
    folder: str | Path,
    *,
    seeds: int | None = None,
    jobs: int = 1,
    callbacks: Sequence[Callback] = (),
    **changes: Any,
) -> SweepResult:
    """Go on with the seeds of a sweep that are not finished.

    Args:
        folder: the folder of a sweep.
        seeds: number of seeds that it is to have, at least as many as it has.
        jobs: as in ``sweep``.
        callbacks: as in ``resume``.
        changes: as in ``resume``, for each seed that goes on; with a larger ``total_frames`` all
            do.
    """
    _check(seeds=seeds, jobs=jobs)
    with SweepFolder.going_on(Path(folder)) as opened:
        options = _check_changes(opened, changes)
        opened.plan(seeds=seeds, total_frames=changes.get("total_frames"))
        # A seed that an earlier resume did not come to knows of the older plan alone.
        changes = {**changes, "total_frames": opened.total_frames}
        end = partial(note_end, opened.total_frames)
        tasks = {
            seed: partial(_go_on, opened.prepare(seed), callbacks, end, changes)
            for seed in opened.unfinished()
        }
        return run_seeds(opened, tasks, jobs=jobs, last_codes=mistakes_of_all(options))


def run_seeds(
    sweep: SweepFolder, tasks: Mapping[int, Task], *, jobs: int, last_codes: Collection[int] = ()
) -> SweepResult:
    """Run the tasks of seeds, each of which notes its end, and say how all ended.

    The caller has the folder to itself: see ``sole_use``.
    """
    names = {seed: f"seed {seed}" for seed in sweep.seeds}
    named = {names[seed]: task for seed, task in tasks.items()}
    ending = run_side_by_side(named, jobs=jobs, last_codes=last_codes)
    if last_codes and set(ending.codes.values()) == {MISTAKE}:
        sweep.discard()
        raise UsageError(_reason(ending, next(iter(ending.last_lines))))
    results = []
    for seed in sweep.seeds:
        code = ending.codes.get(names[seed], 0 if seed not in tasks else None)
        results.append(
            SeedResult(
                seed=seed,
                folder=sweep.of(seed),
                outcome=_outcome(code, ending.stopped_by, sweep.is_finished(seed)),
                reason=_reason(ending, names[seed]) if code else "",
            )
        )
    result = SweepResult(folder=sweep.path, seeds=tuple(results), stopped_by=ending.stopped_by)
    _tell(result)
    return result


def _reason(ending: Ending, name: str) -> str:
    return ending.last_lines.get(name, "").removeprefix("error: ")


def _outcome(code: int | None, stopped_by: str | None, finished: bool) -> Outcome:
    if code is None:
        return "not started"
    if code == 0:
        return "finished" if finished else "stopped"
    # A process that gets the signal before its run begins dies of it.
    return "stopped" if stopped_by is not None and code > 128 else "failed"


def _tell(result: SweepResult) -> None:
    for one in result.seeds:
        rows = one.history if one.outcome != "failed" else []
        if rows:
            last = rows[-1]
            told = f"return {last['return_mean']:.2f} at frame {last['frames']:,.0f}"
            logger.info("seed %d %s: %s", one.seed, one.outcome, told)
        elif one.outcome == "failed":
            logger.error("seed %d failed: %s", one.seed, one.reason or "it said nothing")
        else:
            logger.info("seed %d %s", one.seed, one.outcome)
    if any(one.outcome != "finished" for one in result.seeds):
        logger.info("to go on with what is not finished: resume=%s", result.folder)
    logger.info("sweep folder: %s", result.folder)


def _check(*, seeds: int | None, jobs: int) -> None:
    for name, value in (("seeds", seeds), ("jobs", jobs)):
        whole = type(value) is int and value >= 1
        if not whole and not (name == "seeds" and value is None):
            raise UsageError(f"`{name}` must be an integer of 1 or more, got `{value}`")


def refuse_own(names: Collection[str]) -> None:
    """Refuse to change what each run of a sweep has for itself.

    >>> refuse_own(["gamma"])
    """
    for name in _OWN:
        if name in names:
            raise UsageError(
                f"`{name}` must not be given when a sweep goes on: each run has its own"
            )


def mistakes_of_all(options: Collection[str]) -> list[int]:
    """Exit codes after which no more seeds go on: a change that one refuses is wrong for all.

    >>> mistakes_of_all(["total_frames"]), mistakes_of_all(["num_cells"])
    ([], [2])
    """
    # More frames suit every seed: the one that fails then has another reason.
    return [MISTAKE] if set(options) - {"total_frames"} else []


def _check_changes(sweep: SweepFolder, changes: Mapping[str, Any]) -> list[str]:
    """Names of the options among ``changes``, which every seed can go on with."""
    refuse_own(changes)
    options = {name: value for name, value in changes.items() if name not in _BESIDE}
    trust = Trust.of(changes.get("trust", False))
    _, run, config = from_yaml(sweep.config(), algorithms=ALGORITHMS, trust=trust)
    changed, after = with_changes(run, config, options)
    if "env" in options:
        know_environment(changed.env)
    if "env_factory" not in changes:
        the_same_environment(run, changed, trust=trust)
    refuse_unfit(config, changed, after, total_frames=sweep.total_frames)
    return list(options)


def refuse_unfit(
    before: AlgorithmConfig, run: RunConfig, config: AlgorithmConfig, *, total_frames: int
) -> None:
    """Refuse, before any seed goes on, what each of them would refuse.

    Args:
        before: the stored configuration.
        run, config: those to go on with.
        total_frames: of the plan so far; fewer are another mistake, which the plan tells.
    """
    run = replace(run, total_frames=max(run.total_frames, total_frames))
    family_of(run, config, Ranks.alone()).refuse_changes(before, config.settled)


def note_end(total_frames: int, result: TrainResult) -> int:
    """Exit code of a run of a sweep; one that has ended as planned is noted in its folder."""
    rows = result.history
    # A callback may say stop at the last evaluation, when nothing is left to do.
    whole = bool(rows) and rows[-1]["frames"] >= total_frames
    if result.exit_code == 0 and (whole or result.stopped_by in (None, "target_return")):
        note_finished(result.folder, total_frames)
    return result.exit_code


_End = Callable[[TrainResult], int]


def _begin(
    config: AlgorithmConfig,
    env: Any,
    callbacks: Sequence[Callback],
    end: _End,
    run: Mapping[str, Any],
) -> int:
    return end(train(config, env, callbacks=callbacks, **run))


def _go_on(
    folder: Path, callbacks: Sequence[Callback], end: _End, changes: Mapping[str, Any]
) -> int:
    return end(resume(folder, callbacks=callbacks, **changes))
