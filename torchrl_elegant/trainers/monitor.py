"""What watches a run: evaluation, metrics, checkpoints, and the reasons to stop."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping

from tensordict import TensorDictBase

from torchrl_elegant.trainers.checkpoint import Checkpoints
from torchrl_elegant.trainers.clock import Clock
from torchrl_elegant.trainers.config import RunConfig
from torchrl_elegant.trainers.distributed import Ranks
from torchrl_elegant.trainers.evaluation import Evaluation, PolicyEvaluator
from torchrl_elegant.trainers.finite import DivergedError
from torchrl_elegant.trainers.follower import Follower
from torchrl_elegant.trainers.full_disk import despite_full_disk
from torchrl_elegant.trainers.learner import Learner
from torchrl_elegant.trainers.pace import Pace
from torchrl_elegant.trainers.play import PlayStopped
from torchrl_elegant.trainers.progress import Averages, Progress
from torchrl_elegant.trainers.reporter import Reporter
from torchrl_elegant.trainers.signals import StopSignals
from torchrl_elegant.trainers.sources import Source

__all__ = ["Follower", "Monitor"]

# How often, in seconds, the run folder is looked at for a `stop` file.
_STOP_FILE_INTERVAL = 0.5


class Monitor:
    """Looks after a run between its updates.

    Args:
        run: intervals, targets and totals.
        learner: whose policy is evaluated and saved.
        progress: the run's counters, part of its checkpoints.
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
        evaluator: PolicyEvaluator,
        signals: StopSignals,
        ranks: Ranks,
    ) -> None:
        self.run, self.learner, self.progress = run, learner, progress
        self.reporter, self.checkpoints = reporter, checkpoints
        self.evaluator, self.signals, self.ranks = evaluator, signals, ranks
        self.stop_reason: str | None = None
        self._averages = Averages()
        self.clock = Clock()
        self._pace = Pace(self.clock, frames=progress.frames, updates=learner.updates)
        self._seconds_before = progress.seconds
        self._next_look = 0.0
        self._next_evaluation = _next_multiple(progress.frames, run.eval_interval)
        self._next_checkpoint = _next_multiple(progress.frames, run.checkpoint_interval)
        self._saved_at = (progress.frames, learner.updates)
        self._abandoned = False

    def note(self, metrics: TensorDictBase) -> None:
        """Take in the terms of one update."""
        self._averages.add(metrics)

    def after(self, source: Source) -> bool:
        """Do what is due once ``source`` has handed over its frames; whether to go on."""
        frames = self.progress.frames = source.frames
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
        self.progress.frames = source.frames
        # Who sends a signal waits for the end: what is learnt is saved, and nothing else done.
        done = self._abandoned or self.progress.evaluated_at == source.frames
        if not self.signals.requested and not done:
            self._evaluate(source, lambda: self.signals.requested)
        self._save(source)
        pace = self._pace.summary(frames=source.frames, updates=self.learner.updates)
        with despite_full_disk():
            self.reporter.finish(self.stop_reason, pace)

    def _evaluate(self, source: Source, should_stop: Callable[[], bool]) -> None:
        self._require_sound()
        averages = self._averages.take()
        try:
            with self.clock.during("evaluate"):
                evaluation = self.evaluator.evaluate(should_stop)
        except PlayStopped:
            # Episodes may have no end: what is learnt is saved, and nothing else done.
            self._abandoned = True
            return
        progress = self.progress
        # Not the source's own count: workers collect on while the policy is evaluated.
        frames = progress.evaluated_at = progress.frames
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
        episodes = source.episodes()
        trained = {}
        if episodes:
            trained["train_return"] = sum(value for value, _ in episodes) / len(episodes)
        return {
            "frames": self.progress.frames,
            "updates": self.learner.updates,
            "seconds": self.progress.seconds,
            "return_mean": evaluation.return_mean,
            "return_std": evaluation.return_std,
            "return_ci95": evaluation.return_ci95,
            "length_mean": evaluation.length_mean,
            **trained,
            **self._pace.row(frames=self.progress.frames, updates=self.learner.updates),
            **averages,
        }

    def _save(self, source: Source, evaluation: Evaluation | None = None) -> None:
        progress = self.progress
        saved = self._saved_at == (source.frames, self.learner.updates)
        # Saved once more with its return, without which the best checkpoint cannot be told.
        if saved and evaluation is None:
            return
        self._require_sound()
        progress.seconds = self._seconds_before + self._pace.seconds
        metadata = {} if evaluation is None else {"return_mean": evaluation.return_mean}
        with self.clock.during("save"), despite_full_disk():
            with source.pause():
                progress.frames, progress.debt = source.frames, source.debt()
                self.checkpoints.save(progress.frames, metadata)
            self._saved_at = (progress.frames, self.learner.updates)
            self.reporter.policy(self.learner.policy, progress.frames)

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
