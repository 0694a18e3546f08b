"""Rules by which members are replaced."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from torchrl_elegant.tournament.selection import (
    BestOfSome,
    Rival,
    Softmax,
    Truncation,
    best_first,
    selection_of,
)

EIGHT = [Rival(pod, float(pod)) for pod in range(8)]


def winners(rule, own, rivals, times=400):
    return Counter(
        rule.choose(own, best_first(rivals), np.random.default_rng(seed)).pod
        for seed in range(times)
    )


def test_scores_are_numbers_and_equals_do_not_collide():
    ranked = best_first([Rival(1, 99_999.0), Rival(2, 100_000.0), Rival(3, -50.0), Rival(4, -10.0)])
    assert [one.pod for one in ranked] == [2, 1, 4, 3]
    assert [one.pod for one in best_first([Rival(3, 1.0), Rival(1, 1.0), Rival(2, 1.0)])] == [
        1,
        2,
        3,
    ]


def test_truncation_replaces_the_worst_quarter_by_the_best_quarter():
    rule = Truncation(population=8)
    for own in EIGHT:
        expected = {6, 7} if own.pod < 2 else {own.pod}
        assert winners(rule, own, EIGHT).keys() == expected
    # The parents of four hundred are the best quarter, evenly.
    counts = winners(rule, EIGHT[0], EIGHT)
    assert min(counts.values()) > 150


def test_truncation_of_few():
    three = EIGHT[:3]
    # Of a population of eight, three say little yet; of one of three they are all.
    assert winners(Truncation(population=8), three[0], three) == {0: 400}
    assert winners(Truncation(population=3), three[0], three) == {2: 400}
    assert winners(Truncation(population=1), three[0], three[:1]) == {0: 400}


def test_the_best_of_some_others_replaces_whoever_is_worse():
    rule = BestOfSome(count=3)
    assert winners(rule, EIGHT[7], EIGHT) == {7: 400}
    assert winners(rule, EIGHT[0], EIGHT)[0] == 0
    middle = winners(rule, EIGHT[5], EIGHT)
    assert middle.keys() == {5, 6, 7}
    assert winners(rule, EIGHT[0], EIGHT[:1]) == {0: 400}


def test_softmax_follows_scores_whatever_their_unit():
    counts = winners(Softmax(), EIGHT[0], EIGHT, times=2_000)
    assert counts[7] > counts[4] > counts[0] > 0
    larger = [Rival(one.pod, 1e6 * one.score) for one in EIGHT]
    assert winners(Softmax(), larger[0], larger, times=2_000) == counts
    assert len(winners(Softmax(), None, [Rival(1, 2.0), Rival(2, 2.0)])) == 2


def test_a_random_search_replaces_nobody_but_those_that_cannot_go_on():
    rule = selection_of("none", 8)
    for own in EIGHT:
        assert winners(rule, own, EIGHT) == {own.pod: 400}
    assert winners(rule, None, EIGHT) == {7: 400}


@pytest.mark.parametrize("name", ["truncation", "tournament", "softmax"])
def test_whose_checkpoint_is_gone_counts_but_is_not_gone_on_from(name):
    rule = selection_of(name, 8)
    rivals = [one._replace(there=one.pod in (0, 5)) for one in EIGHT]
    assert winners(rule, None, rivals).keys() <= {0, 5}
    assert winners(rule, rivals[0], rivals).keys() <= {0, 5}
    assert 5 in winners(rule, rivals[0], rivals)


@pytest.mark.parametrize("there", [{0, 1, 2, 3}, {1, 3, 5, 6}, {2, 7}, {6}])
def test_truncation_draws_evenly_from_the_best_part_that_is_there(there):
    """Those that are gone are passed over, also where fewer than a part are left."""
    rivals = [Rival(pod, -float(pod), pod in there) for pod in range(8)]
    rule, rng = Truncation(population=8, part=0.5), np.random.default_rng(0)
    drawn = Counter(rule.choose(rivals[7], rivals, rng).pod for _ in range(400))
    best = sorted(there)[:4]
    assert sorted(drawn) == best
    assert min(drawn.values()) > 0.7 * 400 / len(best)
