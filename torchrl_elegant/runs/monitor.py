"""Monitor of a run: evaluation, metrics, checkpoints, callbacks, and reasons to stop."""

from __future__ import annotations

import math
import signal
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from types import FrameType, TracebackType
from typing import Any

import torch
from torch import Tensor

from torchrl_elegant.runs.callbacks import Callback, Callbacks, RunningRun
from torchrl_elegant.runs.checkpoints import Checkpoints
from torchrl_elegant.runs.reporter import Reporter
from torchrl_elegant.trainers.clock import Clock, Pace
from torchrl_elegant.trainers.evaluation import Evaluation, PlayStopped
from torchrl_elegant.trainers.learner import DivergedError
from torchrl_elegant.trainers.ranks import Ranks
from torchrl_elegant.trainers.sources import Source

#: Exit codes after a signal, as shells have them.
SIGNAL_CODES = {"SIGINT": 130, "SIGTERM": 143}


class StopSignals:
    """Turn the first SIGINT or SIGTERM into a flag; the second SIGINT interrupts at once.

    Handlers are replaced on entry and put back on exit. Outside the main thread, where Python
    allows no handlers, nothing is replaced and `requested` stays False.

    >>> import os
    >>> with StopSignals() as stop:
    ...     os.kill(os.getpid(), signal.SIGTERM)
    ...     stop.requested, stop.reason
    (True, 'SIGTERM')
    """

    def __init__(self) -> None:
        self.reason: str | None = None
        self._previous: dict[signal.Signals, Any] = {}

    @property
    def requested(self) -> bool:
        """True if a signal has asked for the end."""
        return self.reason is not None

    def __enter__(self) -> StopSignals:
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGINT, signal.SIGTERM):
                self._previous[number] = signal.signal(number, self._handle)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for number, handler in self._previous.items():
            # A handler that was not installed from Python reads back as None and cannot be set.
            signal.signal(number, signal.SIG_DFL if handler is None else handler)
        self._previous.clear()

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if self.requested and number == signal.SIGINT:
            raise KeyboardInterrupt
        if not self.requested:
            self.reason = signal.Signals(number).name


class Averages:
    """Running means of an update's terms, kept on their device until somebody asks.

    >>> import torch
    >>> averages = Averages()
    >>> averages.add({"loss": torch.tensor(1.0)})
    >>> averages.add({"loss": torch.tensor(3.0), "extra": torch.tensor(5.0)})
    >>> averages.take()
    {'loss': 2.0, 'extra': 5.0}
    """

    def __init__(self) -> None:
        # By set of names: an update with the actor has more terms than one without.
        self._sums: dict[tuple[str, ...], tuple[list[Tensor], list[int]]] = {}

    def add(self, terms: Mapping[str, Tensor]) -> None:
        names, values = tuple(terms.keys()), list(terms.values())
        known = self._sums.get(names)
        if known is None:
            self._sums[names] = ([value.clone() for value in values], [1])
            return
        torch._foreach_add_(known[0], values)
        known[1][0] += 1

    def finite(self) -> bool:
        """True if everything noted since the last call of ``take`` is a finite number."""
        sums = [total for sums, _ in self._sums.values() for total in sums]
        # One question in all: on a GPU every answer has to be waited for.
        return not sums or bool(torch.stack([total.isfinite() for total in sums]).all())

    def take(self) -> dict[str, float]:
        """The means since the last call."""
        totals: dict[str, float] = {}
        counts: dict[str, int] = {}
        for names, (sums, (count,)) in self._sums.items():
            for name, total in zip(names, sums, strict=True):
                totals[name] = totals.get(name, 0.0) + total.item()
                counts[name] = counts.get(name, 0) + count
        self._sums.clear()
        return {name: total / counts[name] for name, total in totals.items()}


class Progress:
    """Facts of a run, beside its counts, that outlive its process."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self.evaluated_at = -1

    def state_dict(self) -> dict[str, Any]:
        return dict(vars(self))

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        vars(self).update(state_dict)


class Follower:
    """Watcher of ranks other than 0: it only listens for the stop."""

    def __init__(self, signals: StopSignals, ranks: Ranks) -> None:
        self.signals, self.ranks = signals, ranks
        self.clock = Clock()
        self.stopped_by: str | None = None

    def start(self) -> None:
        """Leave the beginning to the first rank."""

    def note(self, terms: Mapping[str, Tensor]) -> None:
        """Leave the terms to the first rank."""

    def after(self, source: Source) -> bool:
        """True if all ranks go on."""
        self.stopped_by = self.ranks.agree(self.signals.reason)
        return self.stopped_by is None

    def finish(self, source: Source) -> None:
        """Leave the end to the first rank, and take over its reason."""
        self.stopped_by = self.ranks.agree(self.stopped_by or self.signals.reason)


# Seconds between two looks for a `stop` file in the run folder.
_STOP_FILE_INTERVAL = 0.5


class Monitor:
    """Looks after a run between its updates.

    Args:
        view: the run, as callbacks see it.
        progress: what outlives the process, part of the checkpoints.
        reporter: writes rows, policies and pictures.
        checkpoints: saves everything a resumed run needs.
        callbacks: told what happens.
        signals: asks for a stop from outside.

    Of several ranks the first has the monitor, all the others a ``Follower``. A loop tells
    ``clock`` what it does, as ``train_off_policy`` shows; evaluations, and whatever is written, the
    monitor tells it itself.
    """

    def __init__(
        self,
        view: RunningRun,
        *,
        progress: Progress,
        reporter: Reporter,
        checkpoints: Checkpoints,
        callbacks: Callbacks,
        signals: StopSignals,
    ) -> None:
        self.view, self.trial, self.clock = view, view.trial, view.clock
        self.run, self.learner = view.trial.run, view.trial.learner
        self.progress, self.reporter, self.checkpoints = progress, reporter, checkpoints
        self.callbacks, self.signals = callbacks, signals
        self._averages = Averages()
        frames = view.frames
        self._pace = Pace(self.clock, frames=frames, updates=view.updates)
        self._seconds_before = progress.seconds
        self._next_look = 0.0
        self._next_evaluation = _next_multiple(frames, self.run.eval_interval)
        self._next_checkpoint = _next_multiple(frames, self.run.checkpoint_interval)
        self._told_at = frames
        # A run that was ended between its last checkpoint and its policy still has that to write.
        self._saved_at = None if view.trial.ledger.was_done else self._moment()
        self._abandoned = False

    @property
    def stopped_by(self) -> str | None:
        """Reason of an early end."""
        return self.view.stopped_by

    def start(self) -> None:
        """Tell the callbacks that the run begins."""
        self.view.trial.learner.is_watched = bool(self.callbacks.on_update)
        self._tell(self.callbacks.all, lambda callback: callback.on_start(self.view))

    def note(self, terms: Mapping[str, Tensor]) -> None:
        """Take in the terms of one update."""
        self._averages.add(terms)
        if self.callbacks.on_update:
            self._tell(
                self.callbacks.on_update, lambda callback: callback.on_update(self.view, terms)
            )

    def after(self, source: Source) -> bool:
        """Do what is due once ``source`` has handed over its frames; whether to go on."""
        frames = self.view.frames
        self.reporter.advance(frames)
        if self.run.episode_log:
            self._note_episodes(source)
        if frames > self._told_at:
            self._told_at = frames
            self._tell(self.callbacks.all, lambda callback: callback.on_rollout(self.view))
        # At the end of collection updates are still owed; `finish` waits for them.
        over = frames >= self.run.total_frames
        if frames >= self._next_evaluation and not over:
            self._next_evaluation = _next_multiple(frames, self.run.eval_interval)
            self._evaluate(source, self._is_asked_to_stop)
        if frames >= self._next_checkpoint and not over:
            self._next_checkpoint = _next_multiple(frames, self.run.checkpoint_interval)
            self._save(source)
        self._look_for_stop()
        self.view.stopped_by = self.trial.ranks.agree(self.stopped_by)
        return self.stopped_by is None

    def finish(self, source: Source) -> None:
        """Evaluate and save a last time."""
        # After a signal, save and exit without evaluating.
        done = self._abandoned or self.progress.evaluated_at == self.view.frames
        if not self.signals.requested and not done:
            self._evaluate(source, lambda: self.signals.requested)
        self._save(source)
        self._tell(self.callbacks.all, lambda callback: callback.on_end(self.view))
        self.view.stopped_by = self.trial.ranks.agree(self.stopped_by or self.signals.reason)
        pace = self._pace.summary(frames=self.view.frames, updates=self.view.updates)
        self.reporter.finish(pace, self.checkpoints.latest() if self.view.unsaved else None)

    def _tell(self, listeners: Iterable[Callback], tell: Callable[[Callback], None]) -> None:
        """Call a method of each callback; where one fails, nothing that is learned is lost."""
        for callback in listeners:
            try:
                tell(callback)
            except Exception:
                self._save(self.trial.source)
                raise

    def _evaluate(self, source: Source, should_stop: Callable[[], bool]) -> None:
        self._require_sound()
        averages = self._averages.take()
        try:
            with self.clock.during("evaluate"):
                evaluation = self.trial.evaluate(should_stop)
        except PlayStopped:
            # Episodes may have no end: what is learned is saved, and nothing else done.
            self._abandoned = True
            return
        progress = self.progress
        progress.evaluated_at = self.view.frames
        progress.seconds = self._seconds_before + self._pace.seconds
        row = self._row(source, evaluation, averages)
        target = self.run.target_return
        if target is not None and evaluation.return_mean >= target:
            self.view.stop("target_return")
        try:
            self._tell(
                self.callbacks.all,
                lambda callback: callback.on_evaluation(self.view, evaluation),
            )
        finally:
            # Not lost with a callback that fails.
            self.reporter.row({**row, **self.view.take_logged()})
        if self.callbacks.best.is_best:
            self._save(source, evaluation)

    def _require_sound(self) -> None:
        """On a GPU a loss is not looked at update by update, but what is stored must be sound."""
        if not self._averages.finite():
            for name, value in self._averages.take().items():
                if not math.isfinite(value):
                    raise DivergedError(
                        f"`{name}` has become {value} by update {self.learner.updates}; the last "
                        "checkpoint is sound"
                    )
        self.learner.raise_if_broken()

    def _row(
        self, source: Source, evaluation: Evaluation, averages: Mapping[str, float]
    ) -> dict[str, float]:
        returned = source.train_return()
        trained = {} if returned is None else {"train_return": returned}
        return {
            "frames": self.view.frames,
            "updates": self.view.updates,
            "seconds": self.progress.seconds,
            "return_mean": evaluation.return_mean,
            "return_std": evaluation.return_std,
            "return_ci95": evaluation.return_ci95,
            "length_mean": evaluation.length_mean,
            **evaluation.group_means,
            **trained,
            **self._pace.row(frames=self.view.frames, updates=self.view.updates),
            **averages,
        }

    def _save(self, source: Source, evaluation: Evaluation | None = None) -> None:
        # Saved once more with its return, without which the best checkpoint cannot be told.
        if self._saved_at == self._moment() and evaluation is None:
            return
        self._require_sound()
        self.progress.seconds = self._seconds_before + self._pace.seconds
        metadata = {} if evaluation is None else {"return_mean": evaluation.return_mean}
        with self.view.storing("checkpoints"):
            with source.pause():
                if self.run.episode_log:
                    self._note_episodes(source)
                    self.reporter.write_episodes()
                path = self.checkpoints.save(self.view.frames, metadata)
            self._saved_at = self._moment()
        self.reporter.policy(self.learner.policy, self.view.frames)
        if "checkpoints" not in self.view.unsaved:
            self._tell(self.callbacks.all, lambda callback: callback.on_checkpoint(self.view, path))

    def _moment(self) -> tuple[int, int, int]:
        return self.view.frames, self.view.updates, self.progress.evaluated_at

    def _note_episodes(self, source: Source) -> None:
        seconds = self._seconds_before + self._pace.seconds
        self.reporter.note_episodes(source.episodes(), seconds)

    def _is_asked_to_stop(self) -> bool:
        self._look_for_stop()
        return self.stopped_by is not None

    def _look_for_stop(self) -> None:
        if self.signals.reason is not None:
            self.view.stop(self.signals.reason)
        now = time.monotonic()
        if now >= self._next_look:
            self._next_look = now + _STOP_FILE_INTERVAL
            if self.reporter.stop_requested():
                self.view.stop("stop file")


def _next_multiple(frames: int, interval: int | None) -> int:
    assert interval is not None
    return (frames // interval + 1) * interval
