"""Selection: by whom a member is replaced, if at all, among rivals that had the same budget."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from operator import attrgetter
from typing import NamedTuple, Protocol

import numpy as np


class Rival(NamedTuple):
    """A finished pod. All count in rankings; one can be gone on from if its checkpoint is there."""

    pod: int
    score: float
    there: bool = True


_IS_THERE = attrgetter("there")


class Selection(Protocol):
    """Rule by which a member goes on from its own checkpoint or from a rival's."""

    def choose(self, own: Rival | None, rivals: Sequence[Rival], rng: np.random.Generator) -> Rival:
        """``own``, or one of ``rivals`` whose checkpoint is there, as one of them must be.

        ``rivals`` come the best first, as ``best_first`` has them. They include ``own``, which is
        None for a member that cannot go on from itself.
        """


def rank(rival: Rival) -> tuple[float, int]:
    """Key that sorts rivals, the best first."""
    return -rival.score, rival.pod


def best_first(rivals: Sequence[Rival]) -> list[Rival]:
    """Rivals by their score; of equals the older one comes first.

    >>> best_first([Rival(1, 0.0), Rival(2, 5.0), Rival(3, 5.0)])[0].pod
    2
    """
    return sorted(rivals, key=rank)


@dataclass(frozen=True)
class Truncation:
    """The worst part is replaced by the best part (Jaderberg et al. 2017, section 4.1.1).

    Args:
        population: members. Before all of them have come to a depth, its worst part is counted
            among those that have.
        part: worst part that is replaced, and best part that replaces it.

    >>> rivals = best_first([Rival(pod, float(pod)) for pod in range(8)])
    >>> rule, rng = Truncation(population=8), np.random.default_rng(0)
    >>> rule.choose(rivals[6], rivals, rng).pod in (6, 7), rule.choose(rivals[5], rivals, rng).pod
    (True, 2)
    """

    population: int
    part: float = 0.25

    def choose(self, own: Rival | None, rivals: Sequence[Rival], rng: np.random.Generator) -> Rival:
        """One of the best part where ``own`` is in the worst; else ``own``."""
        cut = int(self.part * len(rivals))
        if len(rivals) >= self.population > 1:
            cut = max(cut, 1)
        # Not a list of the worst: a decision among thousands takes microseconds.
        if own is not None and (cut == 0 or rank(own) < rank(rivals[-cut])):
            return own
        count = max(cut, 1)
        drawn = next(islice(filter(_IS_THERE, rivals), int(rng.integers(count)), None), None)
        if drawn is None:
            # Fewer than that many are there.
            best = list(islice(filter(_IS_THERE, rivals), count))
            drawn = best[int(rng.integers(len(best)))]
        return drawn


@dataclass(frozen=True)
class BestOfSome:
    """The best of some that are drawn replaces a member that is worse.

    >>> rivals = [Rival(2, 2.0), Rival(1, 1.0)]
    >>> BestOfSome().choose(rivals[1], rivals, np.random.default_rng(0)).pod
    2
    """

    count: int = 3

    def choose(self, own: Rival | None, rivals: Sequence[Rival], rng: np.random.Generator) -> Rival:
        """The best of ``own`` and of those that are drawn."""
        others = [one for one in rivals if one != own and one.there]
        drawn = rng.permutation(len(others))[: self.count]
        return best_first([*([own] if own else []), *(others[index] for index in drawn)])[0]


@dataclass(frozen=True)
class Softmax:
    """A rival is drawn with the odds exp(z), where z is its score in standard deviations.

    >>> rivals = [Rival(2, 1e9), Rival(1, 0.0)]
    >>> drawn = [Softmax().choose(None, rivals, np.random.default_rng(k)).pod for k in range(20)]
    >>> 10 < drawn.count(2) < 20
    True
    """

    temperature: float = 1.0

    def choose(self, own: Rival | None, rivals: Sequence[Rival], rng: np.random.Generator) -> Rival:
        """Any of the rivals, the good ones more often."""
        ranked = [one for one in rivals if one.there]
        scores = np.array([one.score for one in ranked])
        spread = scores.std()
        z = (scores - scores.mean()) / spread if spread > 0 else np.zeros_like(scores)
        odds = np.exp((z - z.max()) / self.temperature)
        return ranked[int(rng.choice(len(ranked), p=odds / odds.sum()))]


class Nobody:
    """Nobody is replaced: a random search, each member with the options that it first drew.

    A member that cannot go on from itself goes on from the best.

    >>> rivals = [Rival(1, 1.0), Rival(2, 2.0)]
    >>> Nobody().choose(rivals[0], rivals, np.random.default_rng(0)).pod
    1
    """

    def choose(self, own: Rival | None, rivals: Sequence[Rival], rng: np.random.Generator) -> Rival:
        """``own``, if there is one."""
        return own or next(one for one in best_first(rivals) if one.there)


def selection_of(name: str, population: int) -> Selection:
    """The rule called ``name``.

    >>> selection_of("softmax", 8)
    Softmax(temperature=1.0)
    """
    rules: dict[str, Selection] = {
        "truncation": Truncation(population),
        "tournament": BestOfSome(),
        "softmax": Softmax(),
        "none": Nobody(),
    }
    return rules[name]
