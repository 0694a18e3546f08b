"""Rivals of each depth, the best first, without sorting at each decision."""

from __future__ import annotations

import sqlite3
from bisect import bisect_left, insort

from torchrl_elegant.tournament.selection import Rival, best_first, rank


class Rivals:
    """Rivals of each depth, the best first, kept from one decision to the next.

    Pods that have changed since are read again, one by one: to read and sort all of them takes
    milliseconds for each thousand.

    Args:
        database: the leaderboard's.
        is_alone: False for a reader beside the one that writes, which keeps nothing.
    """

    def __init__(self, database: sqlite3.Connection, *, is_alone: bool = True) -> None:
        self._db, self._is_alone = database, is_alone
        self._depths: dict[int, list[Rival]] = {}
        self._depth_of: dict[int, int] = {}
        #: Finished pods of the depths that are kept.
        self.known: dict[int, Rival] = {}
        #: Pods that have changed.
        self.changed: set[int] = set()

    def of(self, depth: int) -> list[Rival]:
        """Rivals of a depth."""
        if not self._is_alone:
            self._depths.clear()
        for pod in self.changed & self._depth_of.keys():
            self._remove(pod)
        for pod in self.changed:
            for found, rival in self._read("pod.id = ?", pod):
                if found in self._depths:
                    insort(self._depths[found], self._know(found, rival), key=rank)
        self.changed.clear()
        if depth not in self._depths:
            rows = self._read("depth = ?", depth)
            self._depths[depth] = best_first([self._know(depth, rival) for _, rival in rows])
        return self._depths[depth]

    def lose(self, pod: int) -> None:
        """Know that the checkpoint of a pod has gone, without reading the pod again."""
        rival = self.known.get(pod)
        if rival is not None:
            depth = self._depth_of[pod]
            place = bisect_left(self._depths[depth], rank(rival), key=rank)
            self._depths[depth][place] = self._know(depth, rival._replace(there=False))

    def _know(self, depth: int, rival: Rival) -> Rival:
        self.known[rival.pod], self._depth_of[rival.pod] = rival, depth
        return rival

    def _remove(self, pod: int) -> None:
        rivals, rival = self._depths[self._depth_of.pop(pod)], self.known.pop(pod)
        del rivals[bisect_left(rivals, rank(rival), key=rank)]

    def _read(self, where: str, value: int) -> list[tuple[int, Rival]]:
        found = self._db.execute(
            "SELECT depth, pod.id, score, checkpoint.state = 'live' FROM pod JOIN checkpoint "
            f"ON digest = checkpoint WHERE {where} AND pod.state = 'done'",
            (value,),
        )
        return [(row[0], Rival(row[1], row[2], bool(row[3]))) for row in found]
