"""Callbacks: objects of the user's that a run tells what happens, and that may log and stop it."""

from __future__ import annotations

import io
import logging
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torchrl.checkpoint import CheckpointError

from torchrl_elegant.runs.files import write_file
from torchrl_elegant.runs.film import animation, rendering_environment, require_pictures
from torchrl_elegant.runs.metrics import COLUMNS
from torchrl_elegant.runs.policy import Policy, save_policy
from torchrl_elegant.runs.trial import Trial
from torchrl_elegant.trainers.clock import Clock
from torchrl_elegant.trainers.evaluation import Evaluation
from torchrl_elegant.trainers.random_streams import streams_kept

logger = logging.getLogger(__name__)


class RunningRun:
    """A run as its callbacks see it.

    ``trial`` holds all of it: ``trial.run`` and ``trial.config`` are its options,
    ``trial.learner.policy`` is the policy that learns. ``folder`` is the run folder.
    """

    def __init__(self, trial: Trial, folder: Path) -> None:
        self.trial, self.folder, self.clock = trial, folder, Clock()
        self.stopped_by: str | None = None
        #: Files that could not be written when they were last due, and since which frame.
        self.unsaved: dict[str, int] = {}
        self._logged: dict[str, float | Tensor] = {}

    @property
    def frames(self) -> int:
        """Frames that are collected."""
        return self.trial.ledger.frames

    @property
    def updates(self) -> int:
        """Updates that are made."""
        return self.trial.ledger.updates

    def log(self, name: str, value: float | Tensor) -> None:
        """Put a number into a column of the next row of ``metrics.csv``, and into the logger.

        The last value counts. A row is written after ``on_evaluation``; what is logged later
        belongs to the next one. A tensor of one element is read when its row is written.
        """
        if not name.isprintable() or name in ("", *COLUMNS, *self.trial.metric_names):
            raise ValueError(f"`name` must be a new column's, got {name!r}; choose another name")
        if isinstance(value, Tensor) and value.numel() != 1:
            raise ValueError(f"`value` must be one number, got a tensor of {tuple(value.shape)}")
        self._logged[name] = value.detach().clone() if isinstance(value, Tensor) else float(value)

    def stop(self, reason: str) -> None:
        """End the run after the present round; it evaluates and saves before. The first counts."""
        self.stopped_by = self.stopped_by or reason

    @contextmanager
    def storing(self, name: str) -> Iterator[None]:
        """Go on where a file cannot be written: a full disk must not cost what has been learned.

        The run's closing lines name the file, unless it is written later.
        """
        try:
            with self.clock.during("save"):
                yield
        except (CheckpointError, OSError) as error:
            # Once: the closing lines say it again if it stays so.
            if name not in self.unsaved:
                self.unsaved[name] = self.frames
                logger.warning("%s: %s; training goes on", name, error)
        else:
            self.unsaved.pop(name, None)

    def take_logged(self) -> dict[str, float]:
        """Values that were logged since the last call."""
        logged, self._logged = self._logged, {}
        return {name: float(value) for name, value in logged.items()}


class Callback:
    """Base class of callbacks; every method does nothing, so that one overrides what it needs.

    Under ``torchrun`` only the first rank has callbacks. An exception ends the run with its
    traceback, after a checkpoint is saved; in ``on_start`` there is nothing to save. Counts that
    should outlive a killed run are given to ``state_dict`` as plain data or tensors; they go into
    each checkpoint.

    >>> class Printed(Callback):
    ...     def on_evaluation(self, run, evaluation):
    ...         run.log("worst_return", min(evaluation.returns))
    """

    @property
    def key(self) -> str:
        """Name in checkpoints; two of one class in one run need keys of their own."""
        return type(self).__name__

    def on_start(self, run: RunningRun) -> None:
        """Called before the first frame of a run, or of a run that goes on."""

    def on_rollout(self, run: RunningRun) -> None:
        """Called after each round in which frames arrived and were learned from."""

    def on_update(self, run: RunningRun, terms: Mapping[str, Tensor]) -> None:
        """Called after each update; clone ``terms`` that you keep: they may be overwritten."""

    def on_evaluation(self, run: RunningRun, evaluation: Evaluation) -> None:
        """Called after each evaluation, before its row is written."""

    def on_checkpoint(self, run: RunningRun, path: Path) -> None:
        """Called after each checkpoint, which is the folder ``path``."""

    def on_end(self, run: RunningRun) -> None:
        """Called after the last checkpoint of a run that reached its end or was stopped."""

    def state_dict(self) -> dict[str, Any]:
        """Plain data and tensors to go on with after a resume."""
        return {}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Take back what ``state_dict`` gave; before ``on_start``."""


class StopOnPlateau(Callback):
    """Stop when no evaluation has been better for a while.

    Evaluations before the first update do not count. A run that is resumed after it has stopped
    waits anew.

    Args:
        patience: evaluations in a row without a better mean return.
        min_delta: how much better one must be to count.
    """

    def __init__(self, *, patience: int = 5, min_delta: float = 0.0) -> None:
        if patience < 1:
            raise ValueError(f"`patience` must be 1 or more, got {patience}")
        if not min_delta >= 0:
            raise ValueError(f"`min_delta` must be 0 or more, got {min_delta}")
        self.patience, self.min_delta = patience, min_delta
        self.best, self.waited = -math.inf, 0

    def on_evaluation(self, run: RunningRun, evaluation: Evaluation) -> None:
        if run.updates == 0:
            return
        self.waited += 1
        if evaluation.return_mean > self.best + self.min_delta:
            self.best, self.waited = evaluation.return_mean, 0
        if self.waited >= self.patience:
            run.stop(f"plateau: {self.waited} evaluations without a return above {self.best:.4g}")
            self.waited = 0

    def state_dict(self) -> dict[str, Any]:
        return {"best": self.best, "waited": self.waited}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        self.best, self.waited = state_dict["best"], state_dict["waited"]


class KeepBest(Callback):
    """Keep the policy with the highest score in ``policy_<name>.pt``.

    A run keeps ``policy_best.pt``, that of the highest mean return, by itself.

    Args:
        score: what to go by, such as ``lambda evaluation: min(evaluation.returns)``.
        name: letters, digits, ``-`` and ``_``.
    """

    def __init__(self, *, score: Callable[[Evaluation], float], name: str) -> None:
        if re.fullmatch(r"[\w-]+", name) is None:
            raise ValueError(f"`name` must be letters, digits, - and _, got {name!r}")
        self.score, self.name = score, name
        self.best = -math.inf
        #: True if the last evaluation was the best so far.
        self.is_best = False

    @property
    def key(self) -> str:
        return f"policy_{self.name}.pt"

    def on_evaluation(self, run: RunningRun, evaluation: Evaluation) -> None:
        score = float(self.score(evaluation))
        self.is_best = score > self.best
        if not self.is_best:
            return
        page = {**run.trial.about(), "frames": run.frames, "score": score}
        page["return_mean"] = evaluation.return_mean
        with run.storing(self.key):
            save_policy(run.folder / self.key, run.trial.learner.policy, page)
            # Not before: where the disk is full, the next good one has another try.
            self.best = score

    def state_dict(self) -> dict[str, Any]:
        return {"best": self.best}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        self.best = state_dict["best"]


class RecordVideo(Callback):
    """Film one episode of the present policy at each evaluation, as ``video_<frames>.gif``.

    The environment must take ``render_mode="rgb_array"``. Needs the extra ``video``.

    Args:
        every: film each `every`-th evaluation, beginning with the first.
        seed: seed of the episode, the same each time.
    """

    def __init__(self, *, every: int = 1, seed: int = 1_000) -> None:
        if every < 1:
            raise ValueError(f"`every` must be 1 or more, got {every}")
        require_pictures("RecordVideo")
        self.every, self.seed = every, seed
        self.seen = 0

    def on_start(self, run: RunningRun) -> None:
        with streams_kept():
            trial = run.trial
            rendering_environment(trial.run, trial.environments.env, "RecordVideo").close()

    def on_evaluation(self, run: RunningRun, evaluation: Evaluation) -> None:
        self.seen += 1
        if (self.seen - 1) % self.every:
            return
        trial = run.trial
        path = run.folder / f"video_{run.frames:012d}.gif"
        policy = Policy(trial.learner.policy, trial.about())
        with run.storing(path.name), streams_kept():
            source = trial.environments.env
            film = animation(trial.run, policy, seed=self.seed, env=source, asker="RecordVideo")
            write_file(path, film)

    def state_dict(self) -> dict[str, Any]:
        return {"seen": self.seen}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        self.seen = state_dict["seen"]


class Callbacks:
    """Callbacks of a run, with the one that keeps the best policy; their state is one.

    Args:
        callbacks: the user's.
    """

    def __init__(self, callbacks: Sequence[Callback] = ()) -> None:
        self.best = KeepBest(score=lambda evaluation: evaluation.return_mean, name="best")
        self._by_key: dict[str, Callback] = {}
        if isinstance(callbacks, Callback):
            raise TypeError(f"`callbacks` must be a list, got {callbacks!r}; put it into one")
        for callback in (self.best, *callbacks):
            if not isinstance(callback, Callback):
                raise TypeError(
                    "`callbacks` must hold objects whose class is derived from "
                    f"torchrl_elegant.Callback, got {callback!r}"
                )
            if callback.key in self._by_key:
                raise ValueError(
                    f"`callbacks` must have keys of their own, got two of {callback.key!r}; give "
                    "one another name, or override its property `key`"
                )
            self._by_key[callback.key] = callback
        self.all = tuple(self._by_key.values())
        #: Those that want to hear of every update: most want none, and it is the loop's hot path.
        self.on_update = tuple(
            callback for callback in self.all if type(callback).on_update is not Callback.on_update
        )
        _require_storable(self.state_dict())

    def state_dict(self) -> dict[str, Any]:
        return {key: callback.state_dict() for key, callback in self._by_key.items()}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        for key, callback in self._by_key.items():
            if key in state_dict:
                callback.load_state_dict(state_dict[key])


def _require_storable(state: Mapping[str, Any]) -> None:
    """Refuse before a run what a checkpoint could not be read back with."""
    data = io.BytesIO()
    try:
        torch.save(state, data)
        data.seek(0)
        torch.load(data, weights_only=True)
    except Exception as error:
        raise TypeError(
            f"`state_dict` of callbacks must be plain data and tensors, got {state!r}"
        ) from error
