"""Generations: nobody is ahead, decisions follow from whole generations alone."""

from __future__ import annotations

import json
from pathlib import Path
from typing import ClassVar

import pytest
from tournament_toys import Quick, Toy, check_whole, history, play, rows, toy_tournament

from torchrl_elegant.tournament import TournamentConfig
from torchrl_elegant.tournament.executors import ProcessExecutor
from torchrl_elegant.tournament.executors import processes as workers
from torchrl_elegant.tournament.leaderboard import TRAINING
from torchrl_elegant.tournament.pod import Link, Order, Result
from torchrl_elegant.tournament.store import Store

PLAN = {"scheme": "generational", "population": 8, "budget": 3_200}
FUSION = {**PLAN, "fusion": True}
TRAINED = f"operation IN {TRAINING}"


class Uneven(Toy):
    """Toy whose pods take different times, so that they do not end together."""

    def __call__(self, order: Order, link: Link) -> Result:
        return Toy(self.store, 0.01 * ((7 * order.pod) % 4))(order, link)


def in_processes(folder: Path, **options) -> None:
    """A tournament of uneven toys in worker processes, forked from this one."""
    work = Uneven(Store(folder / "checkpoints"))
    made = toy_tournament(folder, work=work, executor=ProcessExecutor, **options)
    with made.board:
        made.run()
    check_whole(folder)


@pytest.fixture
def quick(monkeypatch):
    monkeypatch.setattr(workers, "_Forker", Quick)


@pytest.mark.parametrize("plan", [PLAN, FUSION], ids=["plain", "fusion"])
def test_no_pod_begins_before_the_generation_before_it_is_over(tmp_path, quick, plan):
    in_processes(tmp_path, slots=lambda: 3, **plan)
    spans = rows(tmp_path, "SELECT depth, operation, created, ended FROM pod")
    for depth in range(1, 4):
        ends = [ended for at, operation, _, ended in spans if at == depth and operation != "final"]
        begins = [begun for at, name, begun, _ in spans if at == depth + 1 and name in TRAINING]
        assert len(begins) == 8
        assert max(ends) <= min(begins)
    # The negative control: the other scheme lets members go ahead.
    in_processes(
        tmp_path / "other", slots=lambda: 3, **{**plan, "scheme": "asynchronous", "fusion": False}
    )
    spans = rows(tmp_path / "other", "SELECT depth, created, ended FROM pod WHERE member >= 0")
    assert max(ended for depth, _, ended in spans if depth == 1) > min(
        begun for depth, begun, _ in spans if depth == 2
    )


@pytest.mark.parametrize("plan", [PLAN, FUSION], ids=["plain", "fusion"])
def test_slots_that_come_and_go_change_no_decision(tmp_path, quick, plan):
    play(tmp_path / "one", **plan)
    in_processes(tmp_path / "three", slots=lambda: 3, **plan)
    looks = []

    def slots() -> int:
        looks.append(1)
        return (3, 1, 0, 2)[len(looks) // 5 % 4]

    in_processes(tmp_path / "some", slots=slots, **plan)
    assert history(tmp_path / "three") == history(tmp_path / "one")
    assert history(tmp_path / "some") == history(tmp_path / "one")


def test_the_worst_quarter_goes_on_from_the_best_quarter_of_a_whole_generation(tmp_path):
    play(tmp_path, recheck=False, **PLAN)
    check_whole(tmp_path)
    for depth in range(1, 4):
        scores = dict(
            rows(tmp_path, f"SELECT id, score FROM pod WHERE depth = {depth} AND {TRAINED}")
        )
        ranked = sorted(scores, key=lambda pod: -scores[pod])
        children = rows(
            tmp_path,
            f"SELECT operation, parents, member FROM pod WHERE depth = {depth + 1} AND {TRAINED}",
        )
        owners = dict(rows(tmp_path, "SELECT id, member FROM pod"))
        for operation, text, member in children:
            (parent,) = json.loads(text)
            own = next(pod for pod in scores if owners[pod] == member)
            assert operation == ("exploit" if own in ranked[-2:] else "continue")
            assert parent in ranked[:2] if own in ranked[-2:] else parent == own


def test_a_leader_is_evaluated_once_more_after_its_generation(tmp_path):
    play(tmp_path, **PLAN)
    again = rows(tmp_path, "SELECT depth, parents FROM pod WHERE operation = 'recheck'")
    assert {depth for depth, _ in again} == {1, 2, 3, 4}
    assert len({parents for _, parents in again}) == len(again)
    for depth in range(1, 5):
        ((leader, episodes),) = rows(
            tmp_path,
            f"SELECT id, episodes FROM pod WHERE depth = {depth} AND {TRAINED} "
            "ORDER BY score DESC LIMIT 1",
        )
        assert (depth, f"[{leader}]") in again
        assert episodes == 10


def test_failed_pods_count_as_done_and_their_members_go_on_from_the_best(tmp_path):
    class Bad(Toy):
        faults: ClassVar[set] = {2, 5, 12}

        def __call__(self, order, link):
            if order.pod in self.faults:
                raise FloatingPointError("diverged")
            return super().__call__(order, link)

    play(tmp_path, work=Bad(Store(tmp_path / "checkpoints")), recheck=False, **PLAN)
    check_whole(tmp_path)
    counts = rows(tmp_path, "SELECT member, COUNT(*) FROM pod WHERE member >= 0 GROUP BY member")
    assert counts == [(member, 4) for member in range(8)]
    next_one = "SELECT operation, parents, depth FROM pod WHERE member = {} AND id > 8 LIMIT 1"
    best = rows(
        tmp_path,
        "SELECT id FROM pod WHERE depth = 1 AND state = 'done' ORDER BY score DESC LIMIT 1",
    )[0][0]
    for member in (1, 4):
        assert rows(tmp_path, next_one.format(member)) == [("exploit", f"[{best}]", 2)]


def test_a_generation_in_which_all_failed_begins_anew(tmp_path):
    class Bad(Toy):
        def __call__(self, order, link):
            if order.pod <= 4:
                raise FloatingPointError("diverged")
            return super().__call__(order, link)

    options = {"scheme": "generational", "work": Bad(Store(tmp_path / "checkpoints"))}
    made = toy_tournament(tmp_path, **options)
    # Four in a row would end it.
    made.updater.failures = -1
    with made.board:
        made.run()
    check_whole(tmp_path)
    begun = rows(tmp_path, "SELECT id, operation, depth FROM pod WHERE id BETWEEN 5 AND 8")
    assert begun == [(pod, "initial", 1) for pod in range(5, 9)]


@pytest.mark.parametrize("selection", ["truncation", "tournament", "softmax"])
def test_rules_rungs_switches_and_mixed_algorithms_come_to_their_end(tmp_path, selection):
    options = {"algorithms": 2, "switch": 0.5, "rungs": 1, "selection": selection}
    for name in ("a", "b"):
        play(tmp_path / name, **{**FUSION, **options})
        check_whole(tmp_path / name)
    assert history(tmp_path / "a") == history(tmp_path / "b")
    counts = rows(
        tmp_path / "a", f"SELECT member, COUNT(*) FROM pod WHERE {TRAINED} GROUP BY member"
    )
    assert counts == [(member, 4) for member in range(8)]
    assert rows(tmp_path / "a", "SELECT COUNT(*) FROM pod WHERE operation = 'switch'")[0][0] > 0
    assert rows(tmp_path / "a", "SELECT COUNT(*) FROM pod WHERE state = 'ended'")[0][0] > 0
    assert rows(tmp_path / "a", "SELECT COUNT(*) FROM pod WHERE operation = 'final'") == [(3,)]


def test_a_stop_in_the_middle_of_a_generation_changes_nothing(tmp_path):
    class Stopping(Toy):
        def __call__(self, order, link):
            self.seconds = 0.0
            if order.pod == 12 and order.attempt == 1:
                (tmp_path / "run" / "stop").touch()
                self.seconds = 0.1
            return super().__call__(order, link)

    work = Stopping(Store(tmp_path / "run" / "checkpoints"))
    assert play(tmp_path / "run", work=work, **FUSION).stopped_by == "stop file"
    play(tmp_path / "run", **FUSION)
    play(tmp_path / "whole", **FUSION)
    check_whole(tmp_path / "run")
    assert history(tmp_path / "run") == history(tmp_path / "whole")


def test_fusion_is_refused_where_there_are_no_generations():
    told = (
        "`fusion` must stay False with scheme=asynchronous, got `True`; "
        "set scheme=generational to use it, or fusion=False"
    )
    with pytest.raises(ValueError, match=told):
        TournamentConfig(fusion=True)
    with pytest.raises(ValueError, match="`scheme` must be one of asynchronous, generational"):
        TournamentConfig(scheme="generations")
