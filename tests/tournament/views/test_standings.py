"""Standings of watchers: read bit by bit, they are what is there."""

from __future__ import annotations

import pytest
from tournament_toys import Toy, history, play, rows

from torchrl_elegant.tournament import orchestrator
from torchrl_elegant.tournament.store import Store
from torchrl_elegant.tournament.views.standings import Standings


class Looker:
    """Watcher that looks whenever it is asked, and counts the rows that it reads."""

    def __init__(self, folder):
        self.folder, self.standings, self.slots = folder, None, []

    def look(self, slots):
        if self.standings is None:
            self.standings = Standings(self.folder)
        self.standings.look()
        self.slots.append(slots)

    def close(self):
        self.standings.close()


class Failing(Toy):
    def __call__(self, order, link):
        if order.pod % 7 == 3:
            raise ValueError("no")
        return super().__call__(order, link)


@pytest.fixture
def often(monkeypatch):
    """An orchestrator that looks at every turn."""
    monkeypatch.setattr(orchestrator, "_LOOK", 0.0)


def test_read_bit_by_bit_it_knows_what_a_reader_of_all_knows(tmp_path, often):
    looker = Looker(tmp_path)
    work = Failing(Store(tmp_path / "checkpoints"))
    play(tmp_path, work=work, watchers=[looker])
    looker.look(1)
    found, whole = looker.standings, Standings(tmp_path)
    whole.look()
    assert len(looker.slots) > 50
    assert found.pods == whole.pods
    for name in ("newest", "done", "best", "counts", "used"):
        assert getattr(found, name) == getattr(whole, name), name
    assert sorted(found.failed) == sorted(whole.failed) != []
    assert found.is_over
    whole.close()
    looker.close()
    # And that is what the leaderboard has.
    best = rows(
        tmp_path,
        "SELECT member, MAX(score) FROM pod WHERE state = 'done' AND member >= 0 GROUP BY member",
    )
    assert {member: row.score for member, row in found.best.items()} == dict(best)
    assert [(found.used,)] == rows(tmp_path, "SELECT SUM(amount) FROM pod WHERE member >= 0")
    states = rows(tmp_path, "SELECT state, COUNT(*) FROM pod WHERE member >= 0 GROUP BY state")
    assert {state: count for state, count in found.counts.items() if count} == dict(states)
    rechecks = rows(tmp_path, "SELECT COUNT(*) FROM pod WHERE operation = 'recheck'")
    assert rechecks[0][0] > 0


def test_a_look_reads_what_is_new_and_no_more(tmp_path, often):
    class Counting(Looker):
        most = 0

        def look(self, slots):
            super().look(slots)
            before = len(self.standings.pods)
            taken = []
            take = Standings._take

            def counted(query, value):
                found = self.standings._db.execute(query, (value,)).fetchall()
                taken.extend(found)
                take(self.standings, query, value)

            self.standings._take = counted
            self.standings.look()
            del self.standings._take
            assert len(self.standings.pods) == before
            self.most = max(self.most, len(taken))

    looker = Counting(tmp_path)
    play(tmp_path, watchers=[looker])
    # One slot and the evaluations that wait, of some thirty pods.
    assert len(looker.standings.pods) > 25
    assert looker.most <= 6
    looker.close()


def test_a_recheck_that_lowers_the_best_score_is_followed(tmp_path, often):
    class Falling(Toy):
        def __call__(self, order, link):
            result = super().__call__(order, link)
            if order.operation == "recheck":
                return type(result)(**{**vars(result), "score": -1e6})
            return result

    looker = Looker(tmp_path)
    play(tmp_path, work=Falling(Store(tmp_path / "checkpoints")), watchers=[looker])
    looker.look(1)
    best = rows(
        tmp_path,
        "SELECT member, MAX(score) FROM pod WHERE state = 'done' AND member >= 0 GROUP BY member",
    )
    assert {member: row.score for member, row in looker.standings.best.items()} == dict(best)
    assert min(row.score for row in looker.standings.pods.values() if row.score) < -1e5
    looker.close()


def test_nobody_who_looks_on_changes_what_is_decided(tmp_path, often):
    play(tmp_path / "alone", seed=5)
    looker = Looker(tmp_path / "seen")
    play(tmp_path / "seen", seed=5, watchers=[looker])
    looker.close()
    assert history(tmp_path / "alone") == history(tmp_path / "seen")
    assert set(looker.slots) == {1}
