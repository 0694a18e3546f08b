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
# Files that one turn removes at most: thousands at once would hold up those who wait for a pod.
_BATCH = 100


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
        # Depth of the member that was furthest behind when it was last looked for garbage.
        self._lowest = 0
        # Marked ones whose files are there.
        self._marked: list[str] = []

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
            self._fresh = 0
            limit, lowest = self._config.store_mb * 1_000_000, self._lowest_depth()
            if lowest > self._lowest or self._board.kept_bytes() > limit:
                self._mark(limit)
        self._remove(_BATCH)
        if self._full >= _FULL:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(self._store.path))

    def collect(self, limit: int) -> None:
        """Mark checkpoints in a transaction, and then remove their files.

        A kill in between forgets none.
        """
        self._mark(limit)
        self._remove(len(self._marked))

    def _mark(self, limit: int) -> None:
        self._lowest = self._lowest_depth()
        with self._board.transaction():
            marked = self._unneeded(limit)
            self._board.discard(marked)
        self._marked += [one.digest for one in marked]

    def _remove(self, count: int) -> None:
        self._store.remove(self._marked[:count])
        del self._marked[:count]

    def _unneeded(self, limit: int) -> list[Kept]:
        pods, starts = self._board.needed()
        pods |= {pod.id for pod in self._board.best_of_members(self._config.finalists)}

        def free(kept: list[Kept]) -> list[Kept]:
            return [
                one
                for one in kept
                if not (one.pod in pods if one.published else one.digest in starts)
            ]

        marked = free(self._board.kept(below=self._lowest))
        total = self._board.kept_bytes() - sum(one.bytes for one in marked)
        if total > limit:
            known = {one.digest for one in marked}
            rest = [one for one in free(self._board.kept()) if one.digest not in known]
            for one in sorted(rest, key=lambda one: (one.score or 0.0, -one.pod)):
                if total > limit:
                    marked.append(one)
                    total -= one.bytes
        return marked

    def _lowest_depth(self) -> int:
        lowest = self._board.lowest_depth()
        return self._config.quanta if lowest is None else lowest
