"""The loop with pods that only pretend to train: decisions, budgets, failures, files."""

from __future__ import annotations

import errno
import json
import os
import sqlite3
from contextlib import suppress
from typing import ClassVar

import pytest
from tournament_toys import Toy, check_whole, history, play, rows, toy_tournament

from torchrl_elegant.config.text import UsageError
from torchrl_elegant.tournament.leaderboard import FILE, TRAINING, Leaderboard
from torchrl_elegant.tournament.orchestrator import PodsFailedError
from torchrl_elegant.tournament.pod import Result
from torchrl_elegant.tournament.selection import best_first
from torchrl_elegant.tournament.store import Store


def test_a_tournament_comes_to_its_end_within_its_budget(tmp_path):
    made = play(tmp_path)
    check_whole(tmp_path)
    done = rows(
        tmp_path, "SELECT member, MAX(depth), COUNT(*) FROM pod WHERE member >= 0 GROUP BY member"
    )
    assert [(member, depth) for member, depth, _ in done] == [(0, 5), (1, 5), (2, 5), (3, 5)]
    assert rows(tmp_path, "SELECT SUM(amount) FROM pod") == [(2_000.0,)]
    assert rows(tmp_path, "SELECT COUNT(*) FROM pod WHERE operation = 'final'") == [(3,)]
    assert made.stopped_by is None
    # The worst are replaced by the best: all have come near the best rate.
    rates = [
        json.loads(options)["lr"]
        for (options,) in rows(tmp_path, "SELECT options FROM pod WHERE depth = 5")
    ]
    first = [
        json.loads(options)["lr"]
        for (options,) in rows(tmp_path, "SELECT options FROM pod WHERE depth = 1")
    ]
    assert len(set(rates)) < len(set(first)) + 3
    operations = {name for (name,) in rows(tmp_path, "SELECT DISTINCT operation FROM pod")}
    assert operations == {"initial", "continue", "exploit", "recheck", "final"}


def test_selection_beats_no_selection(tmp_path):
    """With the negative control: without replacement the mean of the last scores is lower."""

    class Stay:
        def choose(self, own, rivals, rng):
            return own

    found = {}
    for name in ("truncation", "stay"):
        made = toy_tournament(tmp_path / name, population=8, budget=8_000, recheck=False)
        if name == "stay":
            made.generator.selection = Stay()
        with made.board:
            made.run()
        scores = [
            score
            for (score,) in rows(
                tmp_path / name, "SELECT score FROM pod WHERE depth = 10 AND member >= 0"
            )
        ]
        assert len(scores) == 8
        found[name] = sum(scores) / 8
    assert found["truncation"] > 1.3 * found["stay"]


@pytest.mark.parametrize("selection", ["truncation", "tournament", "softmax"])
def test_the_same_seed_gives_the_same_tournament(tmp_path, selection):
    for name, seed in (("a", 1), ("b", 1), ("c", 2)):
        play(tmp_path / name, selection=selection, seed=seed)
    assert history(tmp_path / "a") == history(tmp_path / "b")
    assert history(tmp_path / "a") != history(tmp_path / "c")


def test_a_finished_tournament_that_goes_on_changes_nothing(tmp_path):
    play(tmp_path)
    before = history(tmp_path)
    play(tmp_path)
    assert history(tmp_path) == before
    check_whole(tmp_path)


class Faulty(Toy):
    """Toy whose pods of some numbers end as they should not."""

    faults: ClassVar[dict] = {}

    def __call__(self, order, link):
        fault = self.faults.get(order.pod)
        if isinstance(fault, Exception):
            raise fault
        result = super().__call__(order, link)
        if fault is not None:
            return Result(**{**vars(result), "score": fault})
        return result


@pytest.mark.parametrize(
    "fault",
    [float("nan"), float("inf"), -float("inf"), ValueError("no"), FloatingPointError("diverged")],
)
def test_a_score_that_is_no_number_never_ranks(tmp_path, fault):
    class Bad(Faulty):
        faults: ClassVar[dict] = {2: fault, 5: fault, 9: fault}

    play(tmp_path, work=Bad(Store(tmp_path / "checkpoints")))
    check_whole(tmp_path)
    failed = rows(tmp_path, "SELECT id, score, error FROM pod WHERE state = 'failed'")
    assert [pod for pod, _, _ in failed] == [2, 5, 9]
    assert all(score is None and error for _, score, error in failed)
    parents = {
        parent
        for (text,) in rows(tmp_path, "SELECT parents FROM pod")
        for parent in json.loads(text)
    }
    assert not parents & {2, 5, 9}
    rivals = {
        pod
        for (text,) in rows(tmp_path, "SELECT inputs FROM decision")
        for pod, _, _ in json.loads(text).get("rivals", [])
    }
    assert not rivals & {2, 5, 9}
    # Those who failed went on from a rival, or began anew.
    assert (
        rows(
            tmp_path,
            "SELECT MIN(depth) FROM (SELECT MAX(depth) AS depth FROM pod WHERE member >= 0 "
            "GROUP BY member)",
        )[0][0]
        >= 4
    )


def test_pods_that_all_fail_end_the_tournament(tmp_path):
    class Bad(Toy):
        def __call__(self, order, link):
            raise KeyError("missing")

    made = toy_tournament(tmp_path, work=Bad(Store(tmp_path / "checkpoints")))
    with (
        made.board,
        pytest.raises(
            PodsFailedError,
            match="4 pods failed one after another, the last one, pod 4, by KeyError: 'missing'",
        ),
    ):
        made.run()


def test_a_damaged_parent_is_found_and_its_member_goes_on_from_a_rival(tmp_path):
    class Flip(Toy):
        def __call__(self, order, link):
            result = super().__call__(order, link)
            if order.pod == 3:
                path = self.store.path / result.checkpoint
                data = bytearray(path.read_bytes())
                data[7] ^= 1
                path.write_bytes(data)
            return result

    play(tmp_path, work=Flip(Store(tmp_path / "checkpoints")), recheck=False)
    (digest,) = [digest for (digest,) in rows(tmp_path, "SELECT checkpoint FROM pod WHERE id = 3")]
    assert rows(tmp_path, f"SELECT state FROM checkpoint WHERE digest = '{digest}'") == [
        ("damaged",)
    ]
    failed = rows(tmp_path, "SELECT parents, error FROM pod WHERE state = 'failed'")
    assert failed == [("[3]", f"checkpoint {digest} is damaged")]
    # Nobody begins with it once that is known, and its member is not lost.
    assert rows(tmp_path, "SELECT COUNT(*) FROM pod WHERE parents = '[3]'") == [(1,)]
    assert rows(tmp_path, "SELECT MAX(depth) FROM pod WHERE member = 2")[0][0] >= 4


def test_a_full_disk_that_empties_costs_no_pod(tmp_path):
    class Full(Toy):
        calls = 0

        def publish(self, order, page):
            type(self).calls += 1
            if type(self).calls in (6, 7):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            return super().publish(order, page)

    play(tmp_path, work=Full(Store(tmp_path / "checkpoints")))
    check_whole(tmp_path)
    assert rows(tmp_path, "SELECT DISTINCT state FROM pod") == [("done",)]
    assert rows(tmp_path, "SELECT attempt, COUNT(*) FROM pod GROUP BY attempt")[-1] == (3, 1)


def test_a_full_disk_that_stays_full_ends_in_order_and_can_go_on(tmp_path):
    class Full(Toy):
        calls = 0

        def publish(self, order, page):
            type(self).calls += 1
            if type(self).calls > 6:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            return super().publish(order, page)

    made = toy_tournament(tmp_path, work=Full(Store(tmp_path / "checkpoints")))
    with made.board, pytest.raises(OSError, match="No space left"):
        made.run()
    play(tmp_path)
    check_whole(tmp_path)
    assert rows(tmp_path, "SELECT SUM(amount) FROM pod") == [(2_000.0,)]


def test_hopeless_pods_end_early(tmp_path):
    play(tmp_path, rungs=2, population=8, budget=4_000, recheck=False)
    check_whole(tmp_path)
    ended = rows(tmp_path, "SELECT id, amount, checkpoint FROM pod WHERE state = 'ended'")
    assert ended
    assert {(amount, checkpoint) for _, amount, checkpoint in ended} <= {
        (25.0, None),
        (50.0, None),
        (75.0, None),
    }
    # The best of a depth are never among them.
    assert rows(tmp_path, "SELECT COUNT(*) FROM report")[0][0] > 40
    parents = {
        parent
        for (text,) in rows(tmp_path, "SELECT parents FROM pod")
        for parent in json.loads(text)
    }
    assert not parents & {pod for pod, *_ in ended}


def test_a_stop_file_leaves_what_pods_have_and_the_tournament_goes_on_exactly(tmp_path):
    class Stopping(Toy):
        def __call__(self, order, link):
            if order.pod == 7 and order.attempt == 1:
                (tmp_path / "stop").touch()
            return super().__call__(order, link)

    made = play(tmp_path, work=Stopping(Store(tmp_path / "checkpoints"), seconds=0.1))
    assert made.stopped_by == "stop file"
    ((attempt, state, amount, start),) = rows(
        tmp_path, "SELECT attempt, state, amount, start FROM pod WHERE id = 7"
    )
    assert (attempt, state) == (2, "queued")
    assert 0 < amount < 100
    assert start
    play(tmp_path)
    check_whole(tmp_path)
    play(tmp_path / "reference")
    assert history(tmp_path) == history(tmp_path / "reference")


def test_checkpoints_beyond_the_limit_go_but_for_those_that_are_needed(tmp_path):
    class Big(Toy):
        def publish(self, order, page):
            return {**super().publish(order, page), "size": 400_000}

    play(
        tmp_path / "small",
        work=Big(Store(tmp_path / "small" / "checkpoints")),
        store_mb=1,
        recheck=False,
    )
    check_whole(tmp_path / "small")
    play(tmp_path / "large", work=Big(Store(tmp_path / "large" / "checkpoints")), recheck=False)
    kept = [
        len(rows(tmp_path / name, "SELECT * FROM checkpoint WHERE state = 'live'"))
        for name in ("small", "large")
    ]
    assert kept[0] <= kept[1] <= 8


def test_a_leader_is_evaluated_again_and_its_score_is_that_of_all_episodes(tmp_path):
    play(tmp_path)
    found = rows(
        tmp_path,
        "SELECT target.episodes, target.score, again.score FROM pod AS again "
        "JOIN pod AS target ON again.parents = '[' || target.id || ']' "
        "WHERE again.operation = 'recheck'",
    )
    assert len(found) >= 5
    assert {episodes for episodes, _, _ in found} == {10}


def test_a_switch_begins_anew_with_another_algorithm(tmp_path):
    play(tmp_path, switch=0.5, algorithms=2, population=8, budget=8_000)
    check_whole(tmp_path)
    switched = rows(
        tmp_path, "SELECT depth, parents, member, entry FROM pod WHERE operation = 'switch'"
    )
    assert switched
    for depth, parents, _, _ in switched:
        assert (depth, parents) == (1, "[]")


def test_a_small_tournament_whose_pods_all_fail_tells_it_too(tmp_path):
    class Bad(Toy):
        def __call__(self, order, link):
            raise FloatingPointError("`loss_actor` is nan at update 3")

    options = {"population": 2, "budget": 200, "work": Bad(Store(tmp_path / "checkpoints"))}
    for _ in range(2):
        made = toy_tournament(tmp_path, **options)
        told = "all pods failed, the last one, pod 2, by `loss_actor` is nan at update 3; mend that"
        with made.board, pytest.raises(PodsFailedError, match=told):
            made.run()


def test_a_database_that_another_program_holds_or_that_is_read_only_is_told(tmp_path):
    other = None
    for pragma, told in (("busy_timeout = 0", "is locked"), ("query_only = 1", "readonly")):
        made = toy_tournament(tmp_path)
        made.board._db.execute(f"PRAGMA {pragma}")
        if other is None:
            other = sqlite3.connect(tmp_path / FILE, isolation_level=None)
            other.execute("BEGIN IMMEDIATE")
        else:
            other.close()
        with made.board, pytest.raises(UsageError, match=f"can be written, got .*{told}"):
            made.run()
    play(tmp_path)
    check_whole(tmp_path)


def test_final_evaluations_that_all_fail_are_made_again(tmp_path):
    class Bad(Toy):
        failures = 3

        def __call__(self, order, link):
            if order.operation == "final" and self.failures:
                self.failures -= 1
                raise OSError("the simulator has gone")
            return super().__call__(order, link)

    play(tmp_path, work=Bad(Store(tmp_path / "checkpoints")))
    check_whole(tmp_path)
    query = "SELECT state, COUNT(*) FROM pod WHERE operation = 'final' GROUP BY state"
    assert dict(rows(tmp_path, query)) == {"done": 3, "failed": 3}


def test_final_evaluations_that_never_succeed_are_told(tmp_path):
    class Bad(Toy):
        def __call__(self, order, link):
            if order.operation == "final":
                raise OSError("the simulator has gone")
            return super().__call__(order, link)

    made = toy_tournament(tmp_path, work=Bad(Store(tmp_path / "checkpoints")))
    with made.board, pytest.raises(PodsFailedError, match=r"one after another.*simulator has gone"):
        made.run()
    # Once it is mended, the tournament has its winner.
    play(tmp_path)
    assert rows(tmp_path, "SELECT id FROM pod WHERE operation = 'final' AND state = 'done'")


def test_a_database_for_which_the_disk_is_full_loses_nothing(tmp_path):
    made = toy_tournament(tmp_path)
    with made.board:
        pages = made.board._db.execute("PRAGMA page_count").fetchone()[0]
        made.board._db.execute(f"PRAGMA max_page_count = {pages + 1}")
        with pytest.raises(OSError, match="No space left on device") as told:
            made.run()
        assert told.value.errno == errno.ENOSPC
        assert str(told.value.filename).endswith("leaderboard.sqlite")
    play(tmp_path)
    check_whole(tmp_path)
    play(tmp_path / "reference")
    assert history(tmp_path) == history(tmp_path / "reference")


@pytest.mark.parametrize("scheme", ["asynchronous", "generational"])
def test_slots_that_come_between_two_looks_end_nothing(tmp_path, scheme):
    answers = iter([0, 1, 1, 1, 0])
    play(tmp_path, slots=lambda: next(answers, 1), scheme=scheme)
    check_whole(tmp_path)
    assert rows(tmp_path, "SELECT SUM(amount) FROM pod") == [(2_000.0,)]
    assert rows(tmp_path, "SELECT COUNT(*) FROM pod WHERE operation = 'final'") == [(3,)]


def test_files_that_stop_and_bind_are_for_a_tournament_that_runs(tmp_path):
    tmp_path.joinpath("stop").touch()
    tmp_path.joinpath("slots").write_text("0")
    play(tmp_path)
    check_whole(tmp_path)
    assert not {"stop", "slots"} & {path.name for path in tmp_path.iterdir()}


def test_what_is_spent_is_the_sum_of_all_pods_at_any_moment(tmp_path):
    class Mixed(Faulty):
        faults: ClassVar[dict] = {2: ValueError("no"), 5: float("nan")}

    made = toy_tournament(
        tmp_path, work=Mixed(Store(tmp_path / "checkpoints")), rungs=1, population=6
    )
    query = (
        "SELECT SUM(CASE WHEN state IN ('queued', 'running') THEN budget ELSE amount END) "
        f"FROM pod WHERE operation IN {TRAINING}"
    )
    seen, real = [], made.executor.wait

    def wait(seconds, hear):
        seen.append((made.board.spent(), rows(tmp_path, query)[0][0]))
        real(seconds, hear)

    made.executor.wait = wait
    with made.board:
        made.run()
        with suppress(ZeroDivisionError), made.board.transaction():
            made.board.set_pod(1, amount=1e6)
            assert made.board.spent() > 1e6
            raise ZeroDivisionError
        seen.append((made.board.spent(), rows(tmp_path, query)[0][0]))
    assert len(seen) > 20
    assert all(spent == summed for spent, summed in seen)


def test_standings_are_those_of_the_database_after_each_change(tmp_path):
    made = toy_tournament(tmp_path, population=8, budget=4_000, store_mb=1)
    real, seen = made.executor.wait, []

    def check() -> None:
        with Leaderboard(made.board.path, read_only=True) as other:
            for depth in range(1, 6):
                ours, read = made.board.rivals(depth), other.rivals(depth)
                assert list(ours) == list(read) == best_first(read)
                seen.append(len(ours))
                for one in ours:
                    assert made.board.rival(one.pod, depth) == one

    def wait(seconds, hear):
        real(seconds, hear)
        check()

    made.executor.wait = wait
    with made.board:
        made.run()
        (digest,) = made.board.digests("live")[:1]
        with made.board.transaction():
            made.board.set_checkpoint(digest, "damaged")
        check()
        with suppress(ZeroDivisionError), made.board.transaction():
            made.board.set_pod(1, score=1e9)
            assert made.board.rivals(1)[0].pod == 1
            raise ZeroDivisionError
        check()
    assert max(seen) == 8
    assert any(not one.there for one in made.board.rivals(1))


def test_a_view_that_cannot_look_ends_and_not_the_tournament(tmp_path, caplog):
    class Blind:
        looks = 0

        def look(self, slots):
            self.looks += 1
            raise sqlite3.OperationalError("disk I/O error")

        def close(self):
            pass

    made, blind = toy_tournament(tmp_path), Blind()
    made._watchers = [blind]
    with made.board:
        made.run()
    check_whole(tmp_path)
    assert blind.looks == 1
    assert "a view of the tournament ends: disk I/O error" in caplog.text


def test_a_late_result_of_an_earlier_attempt_leaves_the_present_one_running(tmp_path):
    made = toy_tournament(tmp_path)
    started = []
    made.executor.start = started.append
    with made.board:
        made.recover()
        made._turn()
        (pod,) = made._running
        order = made._running[pod].order
        late = Result(pod=pod, attempt=order.attempt - 1, kind="lost")
        made._inbox.append(late)
        made._turn()
        assert made._running[pod].order == order
        assert len(started) == 1
