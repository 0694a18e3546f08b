"""Stored state of a run: its folder and checkpoints, new or found."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path

from torchrl._utils import logger

from torchrl_elegant.algorithms import ALGORITHMS
from torchrl_elegant.config.text import UsageError
from torchrl_elegant.runs.checkpoints import Checkpoints
from torchrl_elegant.runs.config_file import from_yaml, to_yaml
from torchrl_elegant.runs.files import sole_use
from torchrl_elegant.runs.folder import RunFolder, run_path
from torchrl_elegant.runs.monitor import Progress
from torchrl_elegant.runs.reporter import COLUMNS
from torchrl_elegant.runs.trial import Trial, configured_values_kept
from torchrl_elegant.trainers.ranks import Ranks


@dataclass(kw_only=True)
class RunState:
    """Folder, checkpoints and progress of a run, as ``open_run`` gives them."""

    folder: RunFolder
    checkpoints: Checkpoints
    progress: Progress


@contextmanager
def open_run(trial: Trial, *, folder: Path | None) -> Iterator[RunState]:
    """Make a new run's folder, or load the last whole checkpoint of the one in ``folder``.

    With several ranks the first alone writes. Each fills its own replay buffer anew when the run
    goes on, because a checkpoint holds only the first rank's buffer. No other process can open the
    folder before this is left.
    """
    ranks, names = trial.ranks, trial.learner.metric_names
    text = to_yaml(trial.config.name, trial.run, trial.config)
    if folder is None:
        columns = list(dict.fromkeys((*COLUMNS, *names)))
        opened = _create(run_path(trial.run, trial.config.name), text, columns, ranks)
    else:
        opened = RunFolder.open(folder)
    with sole_use(opened.path) if ranks.is_first else nullcontext():
        progress = Progress()
        state = RunState(
            folder=opened, checkpoints=_checkpoints(opened, trial, progress), progress=progress
        )
        if folder is not None:
            _load(state, trial)
            if ranks.is_first:
                opened.resume(trial.ledger.frames, names)
                opened.write_config(text)
        yield state


def _create(path: Path, text: str, columns: list[str], ranks: Ranks) -> RunFolder:
    if ranks.is_first:
        RunFolder.create(path, config=text, columns=columns)
    # Its name holds the time, and only the first rank knows when the folder is there.
    return RunFolder.open(ranks.same(path))


def _checkpoints(opened: RunFolder, trial: Trial, progress: Progress) -> Checkpoints:
    components = {
        "learner": trial.learner,
        "ledger": trial.ledger,
        "progress": progress,
        "random": trial.random,
    }
    stored, ranks = trial.run.save_buffer and trial.store is not None, trial.ranks
    if stored and ranks.count == 1:
        components["buffer"] = trial.store
    elif stored and ranks.is_first:
        logger.info(
            "the replay buffers of %d ranks are not stored: a run that goes on fills them anew",
            ranks.count,
        )
    return Checkpoints(
        opened.checkpoints_path,
        keep_last=trial.run.keep_last,
        components=components,
        optional={"buffer"} & set(components),
    )


def _load(state: RunState, trial: Trial) -> None:
    path = state.checkpoints.latest()
    if path is None:
        logger.info("%s has no checkpoint yet: starting over", state.folder.path)
        return
    _, _, before = from_yaml(state.folder.read_config(), algorithms=ALGORITHMS)
    trial.family.refuse_changes(before, trial.config.beginnings)
    parts = None if trial.ranks.is_first else ("learner", "ledger", "progress")
    try:
        with configured_values_kept(trial.learner):
            state.checkpoints.load(path, components=parts)
    except (RuntimeError, ValueError) as error:
        trial.family.refuse_changes(before)
        reason = str(error).splitlines()[-1].strip()
        raise UsageError(
            f"the configuration must fit what {path} holds, got {reason}; networks and buffer "
            "cannot change their sizes when a run goes on"
        ) from error
    ledger = trial.ledger
    if ledger.is_full and ledger.loaded_owed < 1:
        raise UsageError(
            f"`total_frames` must exceed the {ledger.frames} frames that the run in "
            f"{state.folder.path} already has, got {trial.run.total_frames}; set total_frames "
            "higher"
        )
    if not trial.ranks.is_first:
        # The first rank has its random streams back; the others must not draw theirs again.
        trial.reseed()
    trial.go_on()
    logger.info("going on from frame %d (%s)", ledger.frames, path.name)
