"""Schemes: which members may get their next pod now, and which scores are settled."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Protocol

from torchrl_elegant.tournament.generator import Generator
from torchrl_elegant.tournament.leaderboard import Leaderboard, Pod
from torchrl_elegant.tournament.options import TournamentConfig
from torchrl_elegant.tournament.updater import Updater

_BUSY = "id = (SELECT id FROM pod WHERE state IN ('queued', 'running') LIMIT 1)"
_NEWEST = "state = 'done' AND id IN (SELECT pod FROM member)"


class Scheme(Protocol):
    """Order in which members train; every method is called inside a transaction."""

    def depths(self) -> Collection[int]:
        """Depths whose leaders may be evaluated once more now."""

    def next(self, free: int) -> list[Pod]:
        """New pods, those to begin with first; what has no slot waits in the queue."""


@dataclass
class Asynchronous:
    """A member gets its next pod once a slot is free; those that are behind come first."""

    board: Leaderboard
    config: TournamentConfig
    generator: Generator
    updater: Updater

    def depths(self) -> Collection[int]:
        """Depths at which something has finished since the last call."""
        depths, self.updater.depths = self.updater.depths, set()
        return depths

    def next(self, free: int) -> list[Pod]:
        """Pods for as many members as there are slots."""
        return _pods_of_members(self, free)


@dataclass
class Generational:
    """Every member trains one pod of a generation; the next generation begins after all are over.

    Leaders are evaluated once more, and pairs are averaged, between two generations. All decisions
    of a generation are made in one transaction, from what is settled: they do not depend on the
    order in which pods come to their end, nor on the number of slots.
    """

    board: Leaderboard
    config: TournamentConfig
    generator: Generator

    def depths(self) -> Collection[int]:
        """Depths of the generation that is over; none while a pod is at work or in the queue."""
        return set() if self._is_busy() else {pod.depth for pod in self.board.pods(_NEWEST)}

    def next(self, free: int) -> list[Pod]:
        """Averages of the generation that is over, or else pods of the next one."""
        if self._is_busy():
            return []
        over = self.board.meta("generation") or 0
        if self.config.fusion and over > (self.board.meta("fused") or 0):
            self.board.set_meta("fused", over)
            pairs = pairs_of(self.board.pods(_NEWEST))
            if pairs:
                return [self.generator.fuse(*pair) for pair in pairs]
        if over >= self.config.quanta:
            return []
        pods = _pods_of_members(self, self.config.population)
        if pods:
            self.board.set_meta("generation", over + 1)
        return pods

    def _is_busy(self) -> bool:
        return bool(self.board.pods(_BUSY))


def pairs_of(pods: Collection[Pod]) -> list[tuple[Pod, Pod]]:
    """Pairs to average: one of the better half of its depth, and the next best that is like it.

    Alike are pods of one depth, algorithm and architecture, with the same options and the same root
    of their ancestry. Nobody is in two pairs.
    """
    found, paired = list[tuple[Pod, Pod]](), set[int]()
    for depth in sorted({pod.depth for pod in pods}):
        row = sorted((pod for pod in pods if pod.depth == depth), key=_rank)
        for place, better in enumerate(row[: (len(row) + 1) // 2]):
            like = [one for one in row[place + 1 :] if one.id not in paired and _alike(better, one)]
            if like and better.id not in paired:
                found.append((better, like[0]))
                paired |= {better.id, like[0].id}
    return found


def _rank(pod: Pod) -> tuple[float, int]:
    assert pod.score is not None
    return -pod.score, pod.id


def _alike(one: Pod, other: Pod) -> bool:
    return (one.entry, one.architecture, one.lineage, one.options) == (
        other.entry,
        other.architecture,
        other.lineage,
        other.options,
    )


def _pods_of_members(scheme: Asynchronous | Generational, most: int) -> list[Pod]:
    """New pods of members that wait, as far as the budget goes."""
    board, config = scheme.board, scheme.config
    left = int((config.budget - board.spent()) // config.pod_budget)
    waiting = board.waiting(max(0, min(most, left)))
    return [scheme.generator.next(member, newest) for member, newest in waiting]


def scheme_of(
    board: Leaderboard, config: TournamentConfig, generator: Generator, updater: Updater
) -> Scheme:
    """The scheme that the options name."""
    if config.scheme == "generational":
        return Generational(board, config, generator)
    return Asynchronous(board, config, generator, updater)
