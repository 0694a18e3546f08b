"""Garbage collection: which checkpoints nobody can need any more, and a disk that is full."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterable

from torchrl_elegant.tournament.leaderboard import Kept, Leaderboard
from torchrl_elegant.tournament.options import TournamentConfig
from torchrl_elegant.tournament.pod import Result
from torchrl_elegant.tournament.store import Store

# Full disks in a row after which nothing is left to try.
_FULL = 3


class GarbageCollector:
    """Removes checkpoints that nobody can need, and the worst others beyond a limit of bytes.

    Needed are those that pods at work or in the queue begin with, the newest of each member, and
    those of the best members. Besides, whoever is furthest behind may still go on from any rival at
    its own depth.

    Args:
        board: the leaderboard.
        store: the checkpoints.
        config: the limit, and how many of the best are kept.
    """

    def __init__(self, board: Leaderboard, store: Store, config: TournamentConfig) -> None:
        self._board, self._store, self._config = board, store, config
        self._full = 0
        # Checkpoints that have come since the last collection.
        self._fresh = 0

    def after(self, results: Iterable[Result]) -> None:
        """Collect after results were entered; OSError for a disk that stays full."""
        results = list(results)
        for result in results:
            self._full += result.kind == "full"
            if result.kind == "done":
                self._full = 0
        if any(result.kind == "full" for result in results):
            # What can go goes now, whatever the limit allows.
            self.collect(0)
        self._fresh += sum(result.checkpoint is not None for result in results)
        if self._fresh > self._config.population // 4:
            self.collect(self._config.store_mb * 1_000_000)
        if self._full >= _FULL:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(self._store.path))

    def collect(self, limit: int) -> None:
        """Mark checkpoints in a transaction, and then remove their files.

        A kill in between forgets none.
        """
        self._fresh = 0
        with self._board.transaction():
            for digest in self._board.digests("trash"):
                self._board.set_checkpoint(digest, "gone")
            marked = self._unneeded(limit)
            for digest in marked:
                self._board.set_checkpoint(digest, "trash")
        self._store.remove(marked)

    def _unneeded(self, limit: int) -> list[str]:
        best = self._board.best_of_members(self._config.finalists)
        pinned = self._begun_with() | self._board.newest() | {pod.checkpoint for pod in best}
        lowest = self._board.lowest_depth()
        lowest = self._config.quanta if lowest is None else lowest
        kept = self._board.kept()
        marked, rest = list[Kept](), list[Kept]()
        for one in kept:
            if one.digest not in pinned:
                (rest if one.published and one.depth >= lowest else marked).append(one)
        total = sum(one.bytes for one in kept) - sum(one.bytes for one in marked)
        for one in sorted(rest, key=lambda one: (one.score or 0.0, -one.pod)):
            if total > limit:
                marked.append(one)
                total -= one.bytes
        return [one.digest for one in marked]

    def _begun_with(self) -> set[str | None]:
        found: set[str | None] = set()
        for pod in self._board.pods("state IN ('queued', 'running')"):
            found |= {pod.start, *(self._board.pod(parent).checkpoint for parent in pod.parents)}
        return found
