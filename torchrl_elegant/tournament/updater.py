"""Updater: whether and how a result enters the leaderboard, and which pods are hopeless."""

from __future__ import annotations

import logging
import math
from statistics import median

from torchrl_elegant.tournament.leaderboard import PUBLISHING, TRAINING, Leaderboard, Pod, now
from torchrl_elegant.tournament.options import TournamentConfig
from torchrl_elegant.tournament.pod import Order, Result
from torchrl_elegant.tournament.store import Store

logger = logging.getLogger(__name__)

# Others that a score is compared with at a rung, at least.
_FEW = 3


class Updater:
    """Takes results in, each once.

    A result counts only if its pod runs, and in the attempt that the result is of: one that comes
    late, or twice, changes nothing. A score that is not a finite number is a failure.

    Args:
        board: the leaderboard, inside a transaction whenever a method is called.
        store: the checkpoints.
        config: how often a pod is started again.
    """

    def __init__(self, board: Leaderboard, store: Store, config: TournamentConfig) -> None:
        self.board, self.store, self.config = board, store, config
        #: Depths at which something has finished, since the caller last emptied it.
        self.depths: set[int] = set()
        #: Failures since a pod last finished.
        self.failures = 0
        #: Results that came late or twice.
        self.refused = 0
        self._best = -math.inf

    def take(self, result: Result) -> bool:
        """Enter a result; False where it came late or twice."""
        found = self.board.pods("id = ?", result.pod)
        pod = found[0] if found else None
        there = result.checkpoint is not None and self.store.has(result.checkpoint)
        if pod is not None and there:
            # Also that of a late result: what is known is removed once nobody needs it.
            self.board.add_checkpoint(str(result.checkpoint), pod.id, result.size)
        if pod is None or pod.state != "running" or pod.attempt != result.attempt:
            self.refused += 1
            logger.info("a late result of pod %d is refused", result.pod)
            return False
        kind = result.kind
        if kind == "done":
            self._finish(pod, result, there)
        elif kind == "ended":
            self._close(pod, result, "ended", result.error)
        elif kind == "lost" and pod.crashes < self.config.retries:
            self._again(pod, crashes=pod.crashes + 1)
        elif kind == "damaged":
            self._damaged(pod, result)
        elif kind == "partial":
            left = {"start": result.checkpoint, "amount": result.amount} if there else {}
            self._again(pod, **left)
        elif kind == "full":
            self._again(pod)
        else:
            self._fail(pod, result, result.error or "its process died")
        return True

    def report(self, order: Order, rung: int, score: float, frames: int) -> bool:
        """Enter the score of a running pod at a rung; True if the pod is hopeless.

        It is below the median of those that came to the same rung of the same depth.
        """
        pod = self.board.pod(order.pod)
        others = self.board.rung_scores(pod.depth, rung, besides=pod.id)
        if not math.isfinite(score):
            return True
        self.board.add_report(pod, rung, score, frames)
        return len(others) >= _FEW and score < median(others)

    def _finish(self, pod: Pod, result: Result, there: bool) -> None:
        if not result.is_finite:
            self._fail(pod, result, f"its score is {result.score}")
            return
        publishes = pod.operation in PUBLISHING
        if publishes and not there:
            self._again(pod)
            return
        self._close(pod, result, "done")
        self.failures = 0
        if publishes and float(result.score or 0.0) > self._best:
            self._best = float(result.score or 0.0)
            told = (pod.id, pod.algorithm, self._best, result.frames)
            logger.info("best so far: pod %d (%s), return %.2f after %d frames", *told)
        if pod.operation == "recheck":
            self._join(self.board.pod(pod.parents[0]), result)
        if pod.operation == "fuse":
            for part in map(self.board.pod, pod.parents):
                assert part.member is not None
                self.board.set_member(part.member, pod=pod.id)
        if pod.operation != "final":
            self.depths.add(pod.depth)

    def _close(self, pod: Pod, result: Result, state: str, error: str | None = None) -> None:
        same = ("score", "score_error", "episodes", "amount", "frames", "updates", "seconds")
        values = {name: getattr(result, name) for name in (*same, "memory", "checkpoint")}
        if state == "failed":
            # It uses up its budget: a member that always fails comes to its end as well.
            values |= {"score": None, "checkpoint": None, "amount": pod.budget}
        self.board.set_pod(pod.id, **values, state=state, error=error, ended=now(), start=None)
        if pod.member is not None and pod.operation in TRAINING:
            # A pod that failed did not bring its member further.
            depth = pod.depth if state == "done" else pod.depth - 1
            over = depth >= self.config.quanta
            self.board.set_member(pod.member, state="finished" if over else "waiting", depth=depth)

    def _fail(self, pod: Pod, result: Result, error: str) -> None:
        self._close(pod, result, "failed", error)
        self.failures += 1
        logger.warning("pod %d (%s) failed: %s", pod.id, pod.algorithm, error)

    def _again(self, pod: Pod, **values: object) -> None:
        self.board.set_pod(pod.id, state="queued", attempt=pod.attempt + 1, **values)

    def _damaged(self, pod: Pod, result: Result) -> None:
        assert result.error is not None
        self.board.set_checkpoint(result.error, "damaged")
        logger.warning("checkpoint %s is damaged: nobody goes on from it", result.error[:12])
        if result.error == pod.start:
            self._again(pod, start=None, amount=0)
        else:
            # Its member goes on from a rival; the damage is the fault of nobody who trains.
            self._close(pod, result, "failed", f"checkpoint {result.error} is damaged")

    def _join(self, target: Pod, again: Result) -> None:
        """Put the episodes of a second evaluation to those of the first."""
        assert target.score is not None
        assert again.score is not None
        few, more = target.episodes or 1, again.episodes or 1
        total = few + more
        score = (few * target.score + more * again.score) / total
        squares = few * more / total * (target.score - again.score) ** 2
        for error, count in ((target.score_error, few), (again.score_error, more)):
            squares += (error or 0.0) ** 2 * count * (count - 1)
        error = math.sqrt(squares / (total - 1) / total) if total > 1 else None
        self.board.set_pod(target.id, score=score, score_error=error, episodes=total)
