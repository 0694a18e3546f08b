"""Stored state of a run: its folder and checkpoints, new or found."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path

from torchrl_elegant.algorithms import ALGORITHMS
from torchrl_elegant.config.text import UsageError
from torchrl_elegant.runs.callbacks import Callbacks
from torchrl_elegant.runs.checkpoints import Checkpoints
from torchrl_elegant.runs.config_file import from_yaml, to_yaml
from torchrl_elegant.runs.exported.policy_file import PolicyFileError, read_page
from torchrl_elegant.runs.files import free_path, sole_use, write_file
from torchrl_elegant.runs.folder import RunFolder, run_path
from torchrl_elegant.runs.metrics import COLUMNS
from torchrl_elegant.runs.monitor import Progress
from torchrl_elegant.runs.trial import Trial, configured_values_kept
from torchrl_elegant.trainers.ranks import Ranks

logger = logging.getLogger(__name__)


@dataclass(kw_only=True)
class RunState:
    """Folder, checkpoints, progress and callbacks of a run, as ``open_run`` gives them."""

    folder: RunFolder
    checkpoints: Checkpoints
    progress: Progress
    callbacks: Callbacks


@contextmanager
def open_run(
    trial: Trial, *, folder: Path | None, callbacks: Callbacks | None = None
) -> Iterator[RunState]:
    """Make a new run's folder, or load the last whole checkpoint of the one in ``folder``.

    With several ranks the first alone writes. Each fills its own replay buffer anew when the run
    goes on, because a checkpoint holds only the first rank's buffer. No other process can open the
    folder before this is left.
    """
    ranks, names = trial.ranks, trial.metric_names
    text = to_yaml(trial.config.name, trial.run, trial.config)
    if folder is None:
        columns = list(dict.fromkeys((*COLUMNS, *names)))
        opened = _create(run_path(trial.run, trial.config.name), text, columns, ranks)
    else:
        opened = RunFolder.open(folder)
    with sole_use(opened.path) if ranks.is_first else nullcontext():
        progress, callbacks = Progress(), callbacks or Callbacks()
        state = RunState(
            folder=opened,
            checkpoints=_checkpoints(opened, trial, progress, callbacks),
            progress=progress,
            callbacks=callbacks,
        )
        if folder is not None:
            _load(state, trial)
            if ranks.is_first:
                _keep_copies(opened, trial.ledger.frames)
                opened.resume(trial.ledger.frames, names)
                opened.write_config(text)
        try:
            yield state
        except UsageError:
            if folder is None and ranks.is_first and not trial.ledger.frames:
                opened.discard()
            raise


def _create(path: Path, text: str, columns: list[str], ranks: Ranks) -> RunFolder:
    made = RunFolder.create(path, config=text, columns=columns) if ranks.is_first else None
    # Its name holds the time, and only the first rank knows when the folder is there.
    path = ranks.same(path)
    return made or RunFolder.open(path)


def _checkpoints(
    opened: RunFolder, trial: Trial, progress: Progress, callbacks: Callbacks
) -> Checkpoints:
    components = {
        "callbacks": callbacks,
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


def _refuse_to_start_over(state: RunState) -> None:
    """Refuse a run without a whole checkpoint that has something to lose."""
    folder, saved, rows = state.folder, state.checkpoints.names(), state.folder.metrics.rows()
    # A kill while the first checkpoint is saved leaves the row and the best policy before it.
    if not saved and not folder.policy_path.is_file() and len(rows) <= 1:
        return
    policies = {path: _frames_of(path) for path in folder.policy_paths if path.is_file()}
    whole = [path for path, frames in policies.items() if frames is not None]
    lost, way_out = [], "begin a new run in another folder=..."
    if whole:
        lost.append(f"a policy trained for {policies[whole[0]]} frames")
        source = folder.path if whole[0] == folder.policy_path else whole[0]
        way_out += f", from nothing or with start_from={source}"
    elif policies:
        lost.append("a damaged policy")
    if rows:
        lost.append(f"{len(rows)} rows of metrics up to frame {int(rows[-1]['frames'])}")
    what = f"whose {len(saved)} checkpoints are all damaged" if saved else "without a checkpoint"
    raise UsageError(
        f"`resume` must find a whole checkpoint, got {str(folder.path)!r} {what}; to start over "
        f"would lose {' and '.join(lost) or 'what they hold'}: {way_out}"
    )


def _keep_copies(folder: RunFolder, frames: int) -> None:
    """Copy what is from later than ``frames``: the run is going to write over it."""
    trained = {path: _frames_of(path) for path in folder.policy_paths if path.is_file()}
    late = {path: found for path, found in trained.items() if found is None or found > frames}
    if any(row["frames"] > frames for row in folder.metrics.rows()):
        late[folder.metrics.path] = frames
    for path, found in late.items():
        copy = free_path(path)
        write_file(copy, path.read_bytes())
        state = "is damaged" if found is None else f"is from after frame {frames}"
        logger.info("%s %s: kept as %s", path, state, copy.name)


def _frames_of(policy: Path) -> int | None:
    """Frames that a policy was trained for; None where it is damaged or does not say."""
    try:
        frames = read_page(policy)["metadata"].get("frames")
    except PolicyFileError:
        return None
    return frames if isinstance(frames, int) else None


def _is_finished(state: RunState, frames: int) -> bool:
    """False for a run that was ended before its last evaluation, or before its last policy."""
    policy = _frames_of(state.folder.policy_path)
    return state.progress.evaluated_at >= frames and policy is not None and policy >= frames


def _load(state: RunState, trial: Trial) -> None:
    state.folder.require_readable()
    path = state.checkpoints.latest()
    if path is None:
        _refuse_to_start_over(state)
        logger.info("%s has no checkpoint yet: starting over", state.folder.path)
        return
    _, _, before = from_yaml(state.folder.read_config(), algorithms=ALGORITHMS)
    trial.family.refuse_changes(before, trial.config.settled)
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
    if ledger.was_done and trial.ranks.same(_is_finished(state, ledger.frames)):
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
