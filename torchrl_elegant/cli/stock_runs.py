"""Runs of a stock study, one for each window: begun, gone on with, or found finished."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from torchrl_elegant.algorithms import AlgorithmConfig
from torchrl_elegant.config.options import options_of
from torchrl_elegant.config.text import UsageError, brief
from torchrl_elegant.runs.folder import refused_by_the_system
from torchrl_elegant.runs.sweeps.folder import has_finished
from torchrl_elegant.runs.sweeps.sweep import note_end
from torchrl_elegant.runs.train import run_with, stored_run
from torchrl_elegant.trainers.family import family_of
from torchrl_elegant.trainers.ranks import Ranks
from torchrl_elegant.trainers.run_config import RunConfig

# Options that change nothing of what a run learns.
_FREE = frozenset(
    {
        *("device", "threads", "folder", "logger", "progress"),
        *("checkpoint_interval", "keep_last", "save_buffer", "episode_log", "compile"),
    }
)


def run_folders(folder: Path, count: int) -> list[Path]:
    """Run folders of a study: its own for one window, else one in it for each.

    >>> [path.name for path in run_folders(Path("study"), 2)]
    ['window-1', 'window-2']
    """
    return [folder / f"window-{n}" for n in range(1, count + 1)] if count > 1 else [folder]


def refuse_taken(folder: Path, places: Sequence[Path]) -> None:
    """Refuse a folder for a new study that holds anything."""
    with refused_by_the_system(folder, "folder", "choose another folder=..."):
        within = len(places) > 1 and folder.is_dir() and any(folder.iterdir())
        if within or (folder / "config.yaml").is_file():
            raise UsageError(
                f"`folder` must be new or empty, got {brief(folder)!r}; go on with the study in it "
                f"by the same words and resume={folder} instead, or choose another folder=..."
            )


def refuse_another(folder: Path, runs: Sequence[RunConfig], config: AlgorithmConfig) -> None:
    """Refuse to go on with a study that was begun with other words, or that has its report."""
    with refused_by_the_system(folder, "resume", "give another resume=..."):
        if (folder / "report.md").exists():
            raise UsageError(
                f"`resume` must be a study without a report, got {brief(folder)!r} with report.md; "
                "begin a new one in another folder=..."
            )
        begun = [run for run in runs if (Path(str(run.folder)) / "config.yaml").is_file()]
    if not begun:
        raise UsageError(
            f"`resume` must be the folder of a study, got {brief(folder)!r} without "
            f"{Path(str(runs[0].folder)) / 'config.yaml'}; give the words with which it began, or "
            f"begin a new one with folder={folder}"
        )
    for run in begun:
        _, before, learned = stored_run(str(run.folder))
        if type(learned) is not type(config):
            _tell("algorithm", learned.name, config.name, run)
        # A run stores what follows from its options as well.
        planned = family_of(run, config, Ranks.alone(run.torch_device()))
        for old, new in ((before, planned.run), (learned, planned.config)):
            for name in options_of(type(new)).keys() - _FREE:
                if getattr(old, name) != getattr(new, name):
                    _tell(name, getattr(old, name), getattr(new, name), run)


def _tell(name: str, before: Any, after: Any, run: RunConfig) -> None:
    raise UsageError(
        f"`{name}` must stay {before!r} when a study goes on, as in {run.folder}, got {after!r}; "
        "give the words with which it began, or begin a new one in another folder=..."
    )


def train_window(run: RunConfig, config: AlgorithmConfig) -> int:
    """Train in `run.folder` until the run there is finished; returns the exit code."""
    folder = Path(str(run.folder))
    if has_finished(folder, run.total_frames):
        return 0
    if not (folder / "config.yaml").is_file():
        return note_end(run.total_frames, run_with(run, config, None))
    run = replace(run, folder=stored_run(folder)[1].folder)
    return note_end(run.total_frames, run_with(run, config, folder))
