"""The stored side of a run: its folder and checkpoints, new or found."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from torchrl._utils import logger as torchrl_logger
from torchrl.checkpoint import GlobalRNGState
from torchrl.data import ReplayBuffer

from torchrl_elegant.algorithms import OffPolicyConfig
from torchrl_elegant.trainers.checkpoint import Checkpoints
from torchrl_elegant.trainers.config import RunConfig
from torchrl_elegant.trainers.config_file import to_yaml
from torchrl_elegant.trainers.distributed import Ranks
from torchrl_elegant.trainers.folder import RunFolder, run_path
from torchrl_elegant.trainers.learner import Learner
from torchrl_elegant.trainers.plan import Counters
from torchrl_elegant.trainers.progress import Progress
from torchrl_elegant.trainers.reporter import COLUMNS
from torchrl_elegant.trainers.values import UsageError

# Batches that a buffer must hold again before a run that did not store it learns on.
_REFILL_BATCHES = 20


@dataclass(kw_only=True)
class RunState:
    """What ``open_run`` gives."""

    folder: RunFolder
    checkpoints: Checkpoints
    progress: Progress
    counters: Counters


def open_run(
    run: RunConfig,
    config: OffPolicyConfig,
    learner: Learner,
    buffer: ReplayBuffer,
    *,
    ranks: Ranks,
    folder: Path | None,
) -> RunState:
    """Make a new run's folder, or load the last whole checkpoint of the one in ``folder``.

    With several ranks the first alone writes. Each fills its own replay buffer anew when the run
    goes on, because a checkpoint could hold but the first rank's.
    """
    text = to_yaml(config.name, run, config)
    progress = Progress()
    if folder is None:
        path = run_path(run, config.name)
        if ranks.is_first:
            columns = list(dict.fromkeys((*COLUMNS, *learner.loss.out_keys)))
            RunFolder.create(path, config=text, columns=columns)
        # Its name holds the time, and only the first rank knows when the folder is there.
        opened = RunFolder.open(ranks.same(path))
    else:
        opened = RunFolder.open(folder)
    components = {"learner": learner, "progress": progress, "random": GlobalRNGState()}
    if run.save_buffer and ranks.count == 1:
        components["buffer"] = buffer
    checkpoints = Checkpoints(
        opened.checkpoints_path,
        keep_last=run.keep_last,
        components=components,
        optional={"buffer"} & set(components),
    )
    state = RunState(folder=opened, checkpoints=checkpoints, progress=progress, counters=Counters())
    if folder is not None:
        _load(state, run, config, learner, buffer, ranks)
        if ranks.is_first:
            opened.resume(progress.frames)
            opened.write_config(text)
    return state


def _load(
    state: RunState,
    run: RunConfig,
    config: OffPolicyConfig,
    learner: Learner,
    buffer: ReplayBuffer,
    ranks: Ranks,
) -> None:
    path = state.checkpoints.latest()
    if path is None:
        torchrl_logger.info("%s has no checkpoint yet: starting over", state.folder.path)
        return
    try:
        parts = None if ranks.is_first else ("learner", "progress")
        state.checkpoints.load(path, components=parts)
    except (RuntimeError, ValueError) as error:
        reason = str(error).splitlines()[-1].strip()
        raise UsageError(
            f"the configuration must fit what {path} holds, got {reason}; networks and buffer "
            "cannot change their sizes when a run goes on"
        ) from error
    frames = state.progress.frames
    if frames >= run.total_frames:
        raise UsageError(
            f"`total_frames` must exceed the {frames} frames that the run in "
            f"{state.folder.path} already has, got {run.total_frames}; set total_frames higher"
        )
    state.counters.frames, state.counters.updates = frames, learner.updates
    state.counters.debt = state.progress.debt
    if not len(buffer):
        state.counters.refill = min(frames, max(config.warmup, _REFILL_BATCHES * config.batch_size))
    torchrl_logger.info("going on from frame %d (%s)", frames, path.name)
