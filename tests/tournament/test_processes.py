"""Pods in worker processes: frozen, killed, ended for want of slots, and never left behind."""

from __future__ import annotations

import os
import signal
import threading
import time
from pathlib import Path

import pytest
from faults.runs import wait_until
from tournament_toys import Quick, Toy, check_whole, play, rows, toy_tournament

from torchrl_elegant.config.text import UsageError
from torchrl_elegant.tournament import TournamentConfig, orchestrator
from torchrl_elegant.tournament.executors import ProcessExecutor
from torchrl_elegant.tournament.executors import processes as workers
from torchrl_elegant.tournament.orchestrator import PodsFailedError
from torchrl_elegant.tournament.pod import Link, Order, Result, Stop, leave
from torchrl_elegant.tournament.store import Store


@pytest.fixture
def quick(monkeypatch):
    monkeypatch.setattr(workers, "_Forker", Quick)


class Uneven(Toy):
    """Toy whose pods take different times, so that they do not end together."""

    def __call__(self, order: Order, link: Link) -> Result:
        return Toy(self.store, self.seconds * (1 + order.pod % 4), self.diary)(order, link)


def processes(folder: Path, seconds: float, kind: type[Toy] = Toy, **options):
    diary = folder / "diary"
    diary.mkdir(parents=True)
    work = kind(Store(folder / "checkpoints"), seconds=seconds, diary=diary)
    return toy_tournament(folder, work=work, executor=ProcessExecutor, **options)


def pids(folder: Path) -> list[int]:
    return sorted(int(path.name) for path in (folder / "diary").iterdir())


def lives(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"


def test_slots_that_come_and_go_lose_nothing(tmp_path, quick):
    phases = [(0, 2), (5, 1), (9, 4), (16, 0), (16, 2)]
    seen: list[tuple[int, int]] = []
    began = dict[int, float]()

    def slots() -> int:
        done = made.board.states().get("done", 0)
        turn = max(number for number, (count, _) in enumerate(phases) if done >= count)
        if turn == 4 and time.monotonic() < began.setdefault(4, time.monotonic() + 1.0):
            turn = 3
        staying = sum(one.stopped is None for one in made._running.values())
        seen.append((phases[turn][1], staying))
        return phases[turn][1]

    made = processes(tmp_path, 0.05, Uneven, slots=slots)
    with made.board:
        made.run()
    check_whole(tmp_path)
    assert {count for count, _ in seen} == {0, 1, 2, 4}
    assert max(staying for _, staying in seen) == 4
    assert (0, 0) in seen
    assert (1, 1) in seen
    assert rows(tmp_path, "SELECT SUM(amount) FROM pod") == [(2_000.0,)]
    # Whoever was ended for want of a slot went on later.
    assert rows(tmp_path, "SELECT COUNT(*) FROM pod WHERE attempt > 1 AND crashes = 0")[0][0] >= 1
    wait_until(lambda: not any(map(lives, pids(tmp_path))))


def test_the_low_performers_are_ended_first(tmp_path):
    play(tmp_path, budget=400)
    made = toy_tournament(tmp_path)
    with made.board:
        query = "SELECT id, score FROM pod WHERE depth = 1 AND member >= 0"
        scores = dict(rows(tmp_path, query))
        best, worst = max(scores, key=scores.get), min(scores, key=scores.get)
        with made.board.transaction():
            for parent in (best, worst):
                made.generator._child(0, made.board.pod(parent), "continue", {"lr": 1e-3}, {}, 9)
        (*_, above, below) = made.board.pods("operation = 'continue'")
        assert made._standing(below.id) < made._standing(above.id)
        assert made._standing(1) == -1.0


def test_frozen_and_killed_pods_lose_a_quantum_at_most(tmp_path, quick):
    made = processes(tmp_path, 0.03, slots=lambda: 2, lease=1.0, retries=20)
    over = threading.Event()

    def attack() -> None:
        turn = 0
        while not over.wait(0.5):
            alive = [pid for pid in pids(tmp_path) if lives(pid)]
            if alive and turn < 6:
                os.kill(alive[turn % len(alive)], (signal.SIGKILL, signal.SIGSTOP)[turn % 2])
                turn += 1

    attacker = threading.Thread(target=attack)
    attacker.start()
    try:
        with made.board:
            made.run()
    finally:
        over.set()
        attacker.join()
    check_whole(tmp_path)
    assert rows(tmp_path, "SELECT SUM(amount) FROM pod") == [(2_000.0,)]
    assert rows(tmp_path, "SELECT SUM(crashes) FROM pod")[0][0] >= 3
    wait_until(lambda: not any(map(lives, pids(tmp_path))))


def test_a_pod_that_kills_its_process_each_time_fails_after_its_retries(tmp_path, quick):
    class Deadly(Toy):
        def __call__(self, order, link):
            if order.pod == 2:
                os.kill(os.getpid(), signal.SIGKILL)
            return super().__call__(order, link)

    work = Deadly(Store(tmp_path / "checkpoints"))
    made = toy_tournament(tmp_path, work=work, executor=ProcessExecutor, slots=lambda: 1, retries=2)
    with made.board:
        made.run()
    check_whole(tmp_path)
    failed = rows(tmp_path, "SELECT id, attempt, crashes, error FROM pod WHERE state = 'failed'")
    assert failed == [(2, 3, 2, "its process died")]


def test_no_process_outlives_a_killed_orchestrator(tmp_path):
    child = os.fork()
    if child == 0:
        try:
            made = processes(tmp_path, 0.5, slots=lambda: 2)
            made.run()
        finally:
            os._exit(1)
    wait_until(lambda: (tmp_path / "diary").is_dir() and len(pids(tmp_path)) == 2)
    at_work = pids(tmp_path)
    assert all(map(lives, at_work))
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    wait_until(lambda: not any(map(lives, at_work)))
    # Attempts of before are over, and nothing was done.
    play(tmp_path)
    check_whole(tmp_path)
    assert rows(tmp_path, "SELECT SUM(amount) FROM pod") == [(2_000.0,)]
    assert rows(tmp_path, "SELECT COUNT(*) FROM pod WHERE attempt = 2") == [(2,)]


def test_sigterm_to_a_worker_has_it_leave_what_it_has(tmp_path, quick):
    made = processes(tmp_path, 0.3, slots=lambda: 1)
    sent = []

    def once() -> None:
        wait_until(lambda: len(pids(tmp_path)) == 1)
        time.sleep(0.4)
        os.kill(pids(tmp_path)[0], signal.SIGTERM)
        sent.append(pids(tmp_path)[0])
        wait_until(lambda: len(pids(tmp_path)) == 2)
        (tmp_path / "stop").touch()

    thread = threading.Thread(target=once)
    thread.start()
    with made.board:
        made.run()
    thread.join()
    ((attempt, amount, start),) = rows(
        tmp_path, "SELECT attempt, amount, start FROM pod WHERE id = 1"
    )
    assert attempt >= 2
    assert amount >= 25.0
    assert start


def test_hopeless_pods_are_told_while_they_run(tmp_path, quick):
    made = processes(
        tmp_path, 0.1, slots=lambda: 2, rungs=1, population=6, budget=1_200, recheck=False
    )
    with made.board:
        made.run()
    check_whole(tmp_path)
    ended = rows(tmp_path, "SELECT amount FROM pod WHERE state = 'ended'")
    assert ended
    assert {amount for (amount,) in ended} <= {50.0, 75.0}


class Lingering(Toy):
    """Toy that does not come to an end once it is told that it is hopeless."""

    def __call__(self, order: Order, link: Link) -> Result:
        assert order.attempt == 1, "it was hopeless already"
        return super().__call__(order, _Lingering(link))


class _Lingering:
    def __init__(self, link: Link) -> None:
        self.link, self.report = link, link.report

    def beat(self) -> Stop | None:
        reason = self.link.beat()
        if reason == "hopeless":
            time.sleep(60)
        return reason


def test_a_hopeless_pod_that_does_not_end_by_itself_is_not_trained_again(
    tmp_path, quick, monkeypatch
):
    monkeypatch.setattr(orchestrator, "_GRACE", 0.1)
    plan = {"rungs": 1, "population": 6, "budget": 1_200, "recheck": False}
    made = processes(tmp_path, 0.1, Lingering, slots=lambda: 2, **plan)
    with made.board:
        made.run()
    check_whole(tmp_path)
    found = rows(tmp_path, "SELECT state, amount, attempt FROM pod WHERE state != 'done'")
    assert found
    assert {*found} == {("ended", 50.0, 1)}


def test_late_results_are_refused(tmp_path):
    made = toy_tournament(tmp_path)
    with made.board:
        with made.board.transaction():
            (order,) = made._orders(1)
        early = made.executor._work(order, _Deaf())
        board, updater = made.board, made.updater
        with board.transaction():
            board.set_pod(order.pod, attempt=2)
            assert not updater.take(early)
            assert board.pod(order.pod).state == "running"
            late = type(early)(**{**vars(early), "attempt": 2})
            assert updater.take(late)
            # Twice, and of a pod that nobody knows.
            assert not updater.take(late)
            assert not updater.take(type(early)(**{**vars(early), "pod": 77}))
        assert updater.refused == 3
        assert board.pod(order.pod).score == early.score


class _Deaf:
    def beat(self):
        return None

    def report(self, rung, score, frames):
        pass


def test_a_process_that_forks_workers_and_dies_is_replaced(tmp_path):
    made = processes(tmp_path, 0.05, slots=lambda: 1, budget=800)
    killed = []

    real = made.executor.start

    def start(text):
        if not killed and made.board.states().get("done", 0) >= 2:
            # The next worker has to be forked anew.
            killed.append(made.executor._forker._process.pid)
            os.kill(killed[-1], signal.SIGKILL)
            made.executor._forker._process.wait()
            for worker in list(made.executor._workers):
                made.executor._drop(worker)
        real(text)

    made.executor.start = start
    with made.board:
        made.run()
    check_whole(tmp_path)
    assert len(killed) == 1
    assert len(pids(tmp_path)) == 2
    assert rows(tmp_path, "SELECT SUM(crashes) FROM pod") == [(0,)]


def test_work_that_cannot_be_loaded_is_told(tmp_path, capfd):
    class Unloadable:
        def __reduce__(self):
            return (int, ("no number",))

    made = toy_tournament(tmp_path, work=Unloadable(), executor=ProcessExecutor, retries=0)
    with made.board, pytest.raises(PodsFailedError, match="its process died"):
        made.run()
    assert "invalid literal for int() with base 10: 'no number'" in capfd.readouterr().err


def test_work_that_was_done_before_its_process_died_counts(tmp_path, quick):
    class Dying(Toy):
        def __call__(self, order, link):
            result = super().__call__(order, link)
            if order.pod == 2:
                leave(result, self.diary.parent / "results")
                os.kill(os.getpid(), signal.SIGKILL)
            if order.pod == 3 and order.attempt == 1:
                # Published, and nobody was told.
                os.kill(os.getpid(), signal.SIGKILL)
            return result

    made = processes(tmp_path, 0.0, Dying, slots=lambda: 1, recheck=False)
    with made.board:
        made.run()
    check_whole(tmp_path)
    found = rows(tmp_path, "SELECT id, attempt, crashes FROM pod WHERE id IN (2, 3)")
    assert found == [(2, 1, 0), (3, 2, 1)]


@pytest.mark.parametrize(
    ("gpus", "there", "most", "used"),
    [(0.5, "01", 4, {"0", "1"}), (1.0, "01", 2, {"0", "1"}), (2.0, "01234", 2, {"0,1", "2,3"})],
)
def test_each_pod_sees_the_gpus_that_it_is_given(
    tmp_path, monkeypatch, quick, gpus, there, most, used
):
    class Seeing(Toy):
        def __call__(self, order, link):
            (self.diary / f"{order.pod} {os.environ['CUDA_VISIBLE_DEVICES']}").touch()
            return super().__call__(order, link)

    monkeypatch.setattr(workers, "visible_gpus", lambda: tuple(there))
    (tmp_path / "diary").mkdir()
    made = toy_tournament(
        tmp_path,
        work=Seeing(Store(tmp_path / "checkpoints"), diary=tmp_path / "diary", seconds=0.01),
        executor=lambda work, results: ProcessExecutor(work, results, gpus=gpus),
        slots=lambda: 100,
        recheck=False,
    )
    assert made._slots() == most
    with made.board:
        made.run()
    check_whole(tmp_path)
    seen = {path.name.partition(" ")[2] for path in (tmp_path / "diary").glob("* *")}
    assert seen == used


def test_a_gpu_that_goes_takes_its_slots_with_it(tmp_path, monkeypatch, quick):
    there = ["0", "1"]
    monkeypatch.setattr(workers, "visible_gpus", lambda: tuple(there))
    executor = ProcessExecutor(Toy(Store(tmp_path)), tmp_path, gpus=0.5)
    try:
        assert (executor.most, executor._shares()) == (4, {"0": 0, "1": 0})
        executor._fork("0")
        there.remove("0")
        assert (executor.most, executor._shares()) == (2, {"1": 0})
    finally:
        executor.close()


def test_pods_that_want_a_gpu_where_there_is_none_are_told(tmp_path, monkeypatch):
    monkeypatch.setattr(workers, "visible_gpus", tuple)
    with pytest.raises(UsageError, match="`gpus` must be 0 on a machine without GPUs, got 1;"):
        ProcessExecutor(Toy(Store(tmp_path)), tmp_path, gpus=1.0)
    with pytest.raises(ValueError, match="`gpus` must be a part of one, or a whole number"):
        TournamentConfig(gpus=1.5)
    with pytest.raises(ValueError, match="`cpus` must stay None with executor=inline"):
        TournamentConfig(cpus=2, executor="inline")
