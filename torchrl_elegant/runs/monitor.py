"""Monitor of a run: evaluation, metrics, checkpoints, and reasons to stop."""

from __future__ import annotations

import math
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from types import FrameType, TracebackType
from typing import Any, Protocol

import torch
from torch import Tensor
from torchrl._utils import logger

from torchrl_elegant.runs.checkpoints import CheckpointError, Checkpoints
from torchrl_elegant.runs.reporter import Reporter
from torchrl_elegant.trainers.clock import Clock, Pace
from torchrl_elegant.trainers.evaluation import Evaluation, PlayStopped
from torchrl_elegant.trainers.learner import DivergedError, Learner
from torchrl_elegant.trainers.ranks import Ranks
from torchrl_elegant.trainers.run_config import RunConfig
from torchrl_elegant.trainers.sources import Source


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
        self.best_return = -math.inf
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

    def note(self, terms: Mapping[str, Tensor]) -> None:
        """Leave the terms to the first rank."""

    def after(self, source: Source) -> bool:
        """True if all ranks go on."""
        return self.ranks.agree(not self.signals.requested)

    def finish(self, source: Source) -> None:
        """Leave the end to the first rank."""


@contextmanager
def despite_full_disk() -> Iterator[None]:
    """Go on where nothing can be written: a full disk must not cost what has been learned.

    The last good checkpoint stays, and the run writes again when the next one is due.
    """
    try:
        yield
    except (CheckpointError, OSError) as error:
        logger.warning("%s; training goes on", error)


class Evaluator(Protocol):
    """Player of whole episodes; ``PlayStopped`` ends it where ``should_stop`` says so."""

    def evaluate(self, should_stop: Callable[[], bool]) -> Evaluation: ...


# Seconds between two looks for a `stop` file in the run folder.
_STOP_FILE_INTERVAL = 0.5


class Monitor:
    """Looks after a run between its updates.

    Args:
        run: intervals, targets and totals.
        learner: whose policy is evaluated and saved.
        progress: what outlives the process, part of the checkpoints.
        reporter: writes rows, policies and pictures.
        checkpoints: saves everything a resumed run needs.
        evaluator: plays evaluation episodes.
        signals: asks for a stop from outside.
        ranks: the first rank has the monitor, all the others a ``Follower``.

    A loop tells ``clock`` what it does, as ``train_off_policy`` shows; evaluations, and whatever is
    written, the monitor tells it itself.
    """

    def __init__(
        self,
        *,
        run: RunConfig,
        learner: Learner,
        progress: Progress,
        reporter: Reporter,
        checkpoints: Checkpoints,
        evaluator: Evaluator,
        signals: StopSignals,
        ranks: Ranks,
    ) -> None:
        self.run, self.learner, self.progress = run, learner, progress
        self.reporter, self.checkpoints = reporter, checkpoints
        self.evaluator, self.signals, self.ranks = evaluator, signals, ranks
        self.stop_reason: str | None = None
        self._averages = Averages()
        self.clock = Clock()
        frames = learner.ledger.frames
        self._pace = Pace(self.clock, frames=frames, updates=learner.updates)
        self._seconds_before = progress.seconds
        self._next_look = 0.0
        self._next_evaluation = _next_multiple(frames, run.eval_interval)
        self._next_checkpoint = _next_multiple(frames, run.checkpoint_interval)
        self._saved_at = (frames, learner.updates)
        self._abandoned = False

    @property
    def frames(self) -> int:
        """Frames, as the ledger has them."""
        return self.learner.ledger.frames

    def note(self, terms: Mapping[str, Tensor]) -> None:
        """Take in the terms of one update."""
        self._averages.add(terms)

    def after(self, source: Source) -> bool:
        """Do what is due once ``source`` has handed over its frames; whether to go on."""
        frames = self.frames
        self.reporter.advance(frames)
        # At the end of collection updates are still owed; `finish` waits for them.
        over = frames >= self.run.total_frames
        if frames >= self._next_evaluation and not over:
            self._next_evaluation = _next_multiple(frames, self.run.eval_interval)
            self._evaluate(source, self._is_asked_to_stop)
        if frames >= self._next_checkpoint and not over:
            self._next_checkpoint = _next_multiple(frames, self.run.checkpoint_interval)
            self._save(source)
        self._look_for_stop()
        return self.ranks.agree(self.stop_reason is None)

    def finish(self, source: Source) -> None:
        """Evaluate and save a last time."""
        # After a signal, save and exit without evaluating.
        done = self._abandoned or self.progress.evaluated_at == self.frames
        if not self.signals.requested and not done:
            self._evaluate(source, lambda: self.signals.requested)
        self._save(source)
        pace = self._pace.summary(frames=self.frames, updates=self.learner.updates)
        with despite_full_disk():
            self.reporter.finish(self.stop_reason, pace)

    def _evaluate(self, source: Source, should_stop: Callable[[], bool]) -> None:
        self._require_sound()
        averages = self._averages.take()
        try:
            with self.clock.during("evaluate"):
                evaluation = self.evaluator.evaluate(should_stop)
        except PlayStopped:
            # Episodes may have no end: what is learned is saved, and nothing else done.
            self._abandoned = True
            return
        progress = self.progress
        frames = progress.evaluated_at = self.frames
        progress.seconds = self._seconds_before + self._pace.seconds
        row = self._row(source, evaluation, averages)
        with self.clock.during("save"), despite_full_disk():
            self.reporter.row(row)
        if evaluation.return_mean > progress.best_return:
            progress.best_return = evaluation.return_mean
            with self.clock.during("save"), despite_full_disk():
                self.reporter.best_policy(self.learner.policy, frames, evaluation)
            self._save(source, evaluation)
        target = self.run.target_return
        if target is not None and evaluation.return_mean >= target:
            self.stop_reason = f"the return {evaluation.return_mean:.1f} reached {target:g}"

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
            "frames": self.frames,
            "updates": self.learner.updates,
            "seconds": self.progress.seconds,
            "return_mean": evaluation.return_mean,
            "return_std": evaluation.return_std,
            "return_ci95": evaluation.return_ci95,
            "length_mean": evaluation.length_mean,
            **trained,
            **self._pace.row(frames=self.frames, updates=self.learner.updates),
            **averages,
        }

    def _save(self, source: Source, evaluation: Evaluation | None = None) -> None:
        progress = self.progress
        saved = self._saved_at == (self.frames, self.learner.updates)
        # Saved once more with its return, without which the best checkpoint cannot be told.
        if saved and evaluation is None:
            return
        self._require_sound()
        progress.seconds = self._seconds_before + self._pace.seconds
        metadata = {} if evaluation is None else {"return_mean": evaluation.return_mean}
        with self.clock.during("save"), despite_full_disk():
            with source.pause():
                self.checkpoints.save(self.frames, metadata)
            self._saved_at = (self.frames, self.learner.updates)
            self.reporter.policy(self.learner.policy, self.frames)

    def _is_asked_to_stop(self) -> bool:
        self._look_for_stop()
        return self.stop_reason is not None

    def _look_for_stop(self) -> None:
        if self.signals.requested:
            self.stop_reason = f"{self.signals.reason} received"
        now = time.monotonic()
        if now >= self._next_look:
            self._next_look = now + _STOP_FILE_INTERVAL
            if self.reporter.stop_requested():
                self.stop_reason = "the run folder holds a file named stop"


def _next_multiple(frames: int, interval: int | None) -> int:
    assert interval is not None
    return (frames // interval + 1) * interval
