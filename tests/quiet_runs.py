"""Runs that tests start: short, on one thread, with nothing on the screen."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from torchrl_elegant.algorithms import AlgorithmConfig
from torchrl_elegant.runs import TrainResult, train
from torchrl_elegant.runs.evaluate import evaluate

QUIET = {"logger": "none", "progress": False}


def learnt(
    config: AlgorithmConfig, env: Any, folder: Path, frames: int, **run: Any
) -> list[dict[str, float]]:
    """The history of a run that is evaluated and saved at its end alone, unless ``run`` differs."""
    whole = {"total_frames": frames, "eval_interval": frames, "checkpoint_interval": frames}
    settings = {**whole, "folder": str(folder), "threads": 1, **QUIET}
    return train(config, env, **{**settings, **run}).history


def pendulum_return(config: AlgorithmConfig, folder: Path, frames: int, **run: Any) -> float:
    """What ten episodes on Pendulum give at the end of a run."""
    run = {"eval_episodes": 10, **run}
    return learnt(config, "Pendulum-v1", folder, frames, **run)[-1]["return_mean"]


def swings_up(config: AlgorithmConfig, folder: Path, frames: int, goal: float) -> bool:
    """Whether a run on Pendulum gets to ``goal`` and is there on other episodes, too.

    The first of ten evaluations that sees it there ends the run; as the best of several it would
    say more than is so."""
    pendulum_return(config, folder, frames, eval_interval=frames // 10, target_return=goal)
    return evaluate(folder, episodes=10).return_mean >= goal


def short_run(
    config: AlgorithmConfig, env: Any, folder: Path, frames: int, **run: Any
) -> TrainResult:
    """A run that is evaluated and saved half way and at its end, unless ``run`` differs."""
    half = {"eval_interval": frames // 2, "checkpoint_interval": frames // 2, "eval_episodes": 1}
    settings = {"total_frames": frames, **half, "folder": str(folder), **QUIET}
    return train(config, env, **{**settings, **run})
