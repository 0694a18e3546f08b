"""Orchestrator: the loop that keeps as many pods at work as there are slots."""

from __future__ import annotations

import logging
import sqlite3
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from time import monotonic

from torchrl_elegant.runs.monitor import StopSignals
from torchrl_elegant.tournament.executors import Event, Executor
from torchrl_elegant.tournament.garbage import GarbageCollector
from torchrl_elegant.tournament.generator import Generator
from torchrl_elegant.tournament.leaderboard import TRAINING, Leaderboard, Pod
from torchrl_elegant.tournament.options import TournamentConfig
from torchrl_elegant.tournament.pod import (
    Order,
    Result,
    Stop,
    left_result,
    left_results,
    result_path,
)
from torchrl_elegant.tournament.resources import Room, SlotsFile
from torchrl_elegant.tournament.schemes import scheme_of
from torchrl_elegant.tournament.store import Store
from torchrl_elegant.tournament.updater import Updater
from torchrl_elegant.tournament.views import Watcher

logger = logging.getLogger(__name__)

# Seconds between two looks at signals, files and leases, and those that a pod has to stop in.
_LOOK, _GRACE = 0.2, 30.0
_QUEUED, _FINAL = "state = 'queued'", "operation = 'final' AND state != 'failed'"
_FIRST = "id IN (SELECT id FROM pod WHERE state = 'queued' ORDER BY id LIMIT ?)"


class PodsFailedError(RuntimeError):
    """One pod after another failed, so that it is no pod's fault."""


@dataclass(eq=False)
class _Running:
    order: Order
    heard: float
    stopped: float | None = None
    #: Units that it had trained when it was found hopeless.
    hopeless: float | None = None


class _AwakeTime:
    """Seconds in which this process was awake: a machine that sleeps loses no pod to its lease."""

    def __init__(self) -> None:
        self._last, self.now = monotonic(), 0.0

    def look(self) -> float:
        now = monotonic()
        self.now += min(now - self._last, 5 * _LOOK)
        self._last = now
        return self.now


class Orchestrator:
    """Starts pods, takes their results in, and follows slots that come and go.

    Each turn makes all its changes in one transaction, and acts on them after that is on the disk:
    a pod is started once its row is there, and a result file removed once it was entered. Killed at
    any moment, another one goes on from the same folder.

    Args:
        folder: that of the tournament; this process has it to itself.
        board: the leaderboard.
        store: the checkpoints.
        config: options.
        generator, updater: decide what is next, and what a result is worth.
        executor: runs the pods.
        slots: gives the number of pods at a time, at each look; None for that of the options.
        episodes: episodes of an evaluation.
        room: what this machine has room for.
        watchers: whoever looks on.
    """

    def __init__(
        self,
        folder: Path,
        *,
        board: Leaderboard,
        store: Store,
        config: TournamentConfig,
        generator: Generator,
        updater: Updater,
        executor: Executor,
        slots: Callable[[], int] | None = None,
        episodes: int = 10,
        room: Room | None = None,
        watchers: Sequence[Watcher] = (),
    ) -> None:
        self.folder, self.results = folder, folder / "results"
        self.board, self.store, self.config = board, store, config
        self.generator, self.updater, self.executor = generator, updater, executor
        self.scheme = scheme_of(board, config, generator, updater)
        self.garbage = GarbageCollector(board, store, config)
        self.room = room or Room(folder, peaks=board.peaks())
        self._wanted, self._episodes = slots or self._configured_slots, episodes
        self._watchers = list(watchers)
        self._running: dict[int, _Running] = {}
        self._inbox: list[Result] = []
        self._time = _AwakeTime()
        self._slots_file = SlotsFile(folder / "slots")
        self._looked = -1.0
        self._signals = StopSignals()
        self.stopped_by: str | None = None

    def recover(self) -> None:
        """Take in what a killed orchestrator has left: results, running pods, stray files."""
        with self.board.transaction():
            for result in left_results(self.results):
                self.updater.take(result)
            self._add_rechecks()
            for pod in self.board.pods("state = 'running'"):
                self.board.set_pod(pod.id, state="queued", attempt=pod.attempt + 1)
        for path in self.results.iterdir():
            path.unlink()
        for name in ("stop", "slots"):
            # They are for a tournament that runs, and must not stop or bind the one that goes on.
            (self.folder / name).unlink(missing_ok=True)
        self._sweep()

    def _sweep(self) -> None:
        """Remove files that the leaderboard does not know, while nobody publishes."""
        with self.board.transaction():
            for digest in self.board.digests("trash"):
                self.board.set_checkpoint(digest, "gone")
        self.store.sweep({*self.board.digests("live"), *self.board.digests("damaged")})

    def run(self) -> None:
        """Work until the budget is used and the finalists are evaluated, or until told to stop."""
        with self._signals:
            try:
                self.recover()
                while self._turn():
                    self.executor.wait(_LOOK, self._hear)
                    self._look()
            finally:
                self.executor.close()
        self.garbage.collect(self.config.store_mb * 1_000_000)
        self._sweep()

    def _turn(self) -> bool:
        """Enter results, decide, start; False once nothing is left to do."""
        taken, self._inbox = self._inbox, []
        # Once a turn: slots that came between two looks would end a tournament that waits for them.
        slots = self._open()
        with self.board.transaction():
            for result in taken:
                # A process may die when its work is done, and before it has said so.
                left = self._left(result) if result.kind == "lost" else None
                self.updater.take(left or result)
                running = self._running.get(result.pod)
                if running is not None and running.order.attempt == result.attempt:
                    del self._running[result.pod]
            self._add_rechecks()
            orders = [] if self.stopped_by else self._orders(slots - len(self._running))
            idle = not self._running and not orders
            over = idle and (bool(self.stopped_by) or self._is_over(slots))
        self.room.note(taken)
        if self.updater.failures >= max(3, self.config.population):
            self._give_in(f"{self.updater.failures} pods failed one after another")
        if over and not self.stopped_by and not self.board.pods(_FINAL):
            self._give_in("all pods failed")
        # Free slots first: files may wait.
        for order in orders:
            self._running[order.pod] = _Running(order, self._time.look())
            self.executor.start(order.to_json())
        self._clear(taken)
        return not over

    def _clear(self, taken: Sequence[Result]) -> None:
        """Remove files that nobody needs, after results were entered."""
        for result in taken:
            result_path(self.results, result.pod, result.attempt).unlink(missing_ok=True)
        self.garbage.after(taken)
        if not self.room.has_disk():
            self.garbage.collect(0)

    def _left(self, result: Result) -> Result | None:
        return left_result(result_path(self.results, result.pod, result.attempt))

    def _give_in(self, what: str) -> None:
        last = self.board.pods("state IN ('failed', 'ended')")[-1]
        reason = last.error or "a hopeless score"
        raise PodsFailedError(
            f"{what}, the last one, pod {last.id}, by {reason}; mend that, and go on with "
            f"resume={self.folder}, or begin a new tournament"
        )

    def _is_over(self, slots: int) -> bool:
        """True if nothing is left; without slots, what is left waits."""
        if slots > 0:
            return True
        return bool(self.board.pods(_FINAL)) and not self.board.pods(_QUEUED)

    def _orders(self, free: int) -> list[Order]:
        """Orders for free slots, whose rows are then running."""
        if free <= 0:
            return []
        pods = self.board.pods(_FIRST, free)
        if len(pods) < free:
            # A whole generation may be decided at once: the rest waits in the queue.
            pods = (pods + self.scheme.next(free - len(pods)))[:free]
        if not pods and not self._running and not self.board.pods(_FINAL):
            pods = self.generator.finals()[:free]
        self.board.start(pods)
        return [self._order(pod) for pod in pods]

    def _add_rechecks(self) -> None:
        """Put evaluations of new leaders of a depth into the queue."""
        for depth in sorted(self.scheme.depths()) if self.config.recheck else ():
            leading = list(islice((one for one in self.board.rivals(depth) if one.there), 2))
            if len(leading) > 1:
                leader = leading[0]
                done = self.board.pods("operation = 'recheck' AND parents = ?", f"[{leader.pod}]")
                if not done:
                    self.generator.recheck(self.board.pod(leader.pod))

    def _order(self, pod: Pod) -> Order:
        parents = map(self.board.checkpoint_of, pod.parents)
        parent, other, *_ = (*parents, None, None)
        rungs = range(self.config.rungs, 0, -1) if pod.operation in TRAINING else ()
        episodes = self.config.final_episodes if pod.operation == "final" else self._episodes
        return Order(
            pod=pod.id,
            attempt=pod.attempt,
            operation=pod.operation,
            entry=pod.entry,
            options=pod.options,
            parent=parent,
            start=pod.start,
            amount=pod.amount,
            budget=pod.budget,
            unit=self.config.unit,
            rungs=tuple(pod.budget / 2**rung for rung in rungs),
            seed=pod.seed,
            episodes=episodes,
            other=other,
        )

    # What happens while pods run.

    def _hear(self, event: Event) -> None:
        running = self._running.get(event.pod)
        if event.result is not None:
            # Late ones, too: the leaderboard refuses them, and their files go.
            self._inbox.append(event.result)
        elif running is not None and running.order.attempt == event.attempt:
            running.heard = self._time.now
            if event.rung is not None:
                with self.board.transaction():
                    order = running.order
                    hopeless = self.updater.report(order, event.rung, event.score, event.frames)
                if hopeless:
                    running.hopeless = order.rungs[event.rung]
                    self._stop(event.pod, "hopeless")
        self._look()

    def _look(self) -> None:
        """Obey signals and files; end pods that have no slot, and those that are silent."""
        now = self._time.look()
        if now - self._looked < _LOOK and not self._signals.requested:
            return
        self._looked = now
        stop_file = self.folder / "stop"
        if self.stopped_by is None and (self._signals.requested or stop_file.exists()):
            self.stopped_by = self._signals.reason or "stop file"
            stop_file.unlink(missing_ok=True)
            logger.info("%s: pods leave what they have, and end", self.stopped_by)
        slots = 0 if self.stopped_by else self._slots()
        for watcher in list(self._watchers):
            try:
                watcher.look(slots)
            except (OSError, sqlite3.Error) as error:
                # Whoever looks on must not end what is looked at.
                logger.warning("a view of the tournament ends: %s", error)
                self._watchers.remove(watcher)
        staying = [pod for pod, one in self._running.items() if one.stopped is None]
        if len(staying) > slots:
            for pod in sorted(staying, key=self._standing)[: len(staying) - slots]:
                self._stop(pod, "preempted")
        for pod, one in list(self._running.items()):
            if one.stopped is not None and now - one.stopped > _GRACE:
                self._give_up(pod, "partial" if one.hopeless is None else "ended")
            elif now - one.heard > self.config.lease:
                logger.warning("pod %d was silent for %g s", pod, self.config.lease)
                self._give_up(pod, "lost")

    def _stop(self, pod: int, reason: Stop) -> None:
        self._running[pod].stopped = self._time.now
        self.executor.stop(pod, reason)

    def _give_up(self, pod: int, kind: str) -> None:
        running = self._running[pod]
        self.executor.kill(pod)
        amount = running.hopeless or 0.0
        attempt = running.order.attempt
        self._inbox.append(Result(pod=pod, attempt=attempt, kind=kind, amount=amount))

    def _standing(self, pod: int) -> float:
        """Part of the rivals of its parent that a running pod's parent is not behind."""
        parents = self.board.pod(pod).parents
        parent = self.board.pod(parents[0]) if parents else None
        if parent is None or parent.score is None:
            return -1.0
        scores = [rival.score for rival in self.board.rivals(parent.depth)] or [parent.score]
        return sum(score <= parent.score for score in scores) / len(scores)

    def _open(self) -> int:
        """Slots, or none while the disk has no room for what new pods leave."""
        return self._slots() if self.room.has_disk() else 0

    def _slots(self) -> int:
        count, most = self._wanted(), self.executor.most
        return max(0, count if most is None else min(count, most))

    def _configured_slots(self) -> int:
        given = self._slots_file.read()
        if given is not None:
            return given
        if self.config.slots is not None:
            return self.config.slots
        return self.room.slots() if self.executor.is_local else self.executor.most or 0
