"""Scalars of a tournament for TensorBoard, or for another of TorchRL's loggers."""

from __future__ import annotations

import logging
import statistics

from torchrl.record.loggers.common import Logger

from torchrl_elegant.runs.reporter import close_logger
from torchrl_elegant.tournament.leaderboard import Leaderboard
from torchrl_elegant.tournament.views.standings import Standings
from torchrl_elegant.tournament.views.watcher import Pace

logger = logging.getLogger(__name__)

# What the leaderboard calls the step that was logged last, and seconds between two steps.
_LOGGED, _POINT = "logged", 2.0


class ScalarWriter:
    """Logs scores, options, pods and slots by the units that are used.

    The leaderboard keeps the last step, so that no process that goes on logs one twice.

    Args:
        standings: what is logged.
        board: the leaderboard, to which this process may write.
        target: TorchRL's logger.
    """

    def __init__(self, standings: Standings, board: Leaderboard, target: Logger) -> None:
        self._standings, self._board, self._target = standings, board, target
        self._pace = Pace(_POINT, share=0.005)
        self._step = int(board.meta(_LOGGED) or 0)
        self._slots = 0

    def look(self, slots: int) -> None:
        """Log a point, if pods have ended since the last."""
        self._slots = slots
        if self._pace.is_due():
            with self._pace.look():
                self._log()

    def close(self) -> None:
        """Log the last point, and have all written."""
        self._log()
        try:
            close_logger(self._target)
        except OSError as error:
            logger.warning("the last scalars could not be written: %s", error)

    def _log(self) -> None:
        self._standings.look()
        step = int(self._standings.used)
        if step <= self._step:
            return
        try:
            # First: a point that a kill costs is better than one that is there twice.
            with self._board.transaction():
                self._board.set_meta(_LOGGED, step)
            self._step = step
            self._target.log_metrics(scalars(self._standings, self._slots), step=step)
        except OSError as error:
            logger.warning("scalars could not be written at %d: %s", step, error)


def scalars(standings: Standings, slots: int) -> dict[str, float]:
    """Numbers of one moment by their names."""
    found = {f"option/{word}": value for word, value in standings.medians().items()}
    newest = [row.score for row in standings.done.values() if row.score is not None]
    if newest:
        parts = statistics.quantiles(newest, n=4, method="inclusive") if len(newest) > 1 else newest
        found |= {"score/mean": statistics.fmean(newest)}
        found |= {"score/quartile_1": parts[0], "score/quartile_3": parts[-1]}
        found |= {"score/median": statistics.median(newest)}
    leader = standings.leader()
    if leader is not None and leader.score is not None:
        found["score/best"] = leader.score
    states = {f"pods/{state}": float(standings.counts[state]) for state in ("done", "failed")}
    return {**found, **states, "slots": float(slots)}
