"""Scalars of a tournament: what they tell, and that no step is there twice."""

from __future__ import annotations

import statistics

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tournament_toys import Toy, play, rows, toy_tournament

from torchrl_elegant.runs.reporter import make_logger
from torchrl_elegant.tournament import orchestrator
from torchrl_elegant.tournament.store import Store
from torchrl_elegant.tournament.views.scalars import ScalarWriter, scalars
from torchrl_elegant.tournament.views.standings import Standings
from torchrl_elegant.tournament.views.watcher import Pace


class Kept:
    """Logger that keeps what it is given."""

    def __init__(self):
        self.steps, self.ended = {}, 0

    def log_metrics(self, metrics, step):
        assert step not in self.steps
        self.steps[step] = metrics

    def shutdown(self):
        self.ended += 1


class Killed(BaseException):
    """End of a process."""


def logged(folder, target, *, stop_at=None):
    """Run toys with a logger, until the pod ``stop_at``."""

    class Stopping(Toy):
        def __call__(self, order, link):
            if order.pod == stop_at:
                raise Killed
            return super().__call__(order, link)

    (folder / "checkpoints").mkdir(parents=True, exist_ok=True)
    made = toy_tournament(folder, work=Stopping(Store(folder / "checkpoints")))
    standings = Standings(folder)
    writer = ScalarWriter(standings, made.board, target)
    writer._pace = Pace(0.0, share=1e9)
    made._watchers = [writer]
    with made.board:
        try:
            made.run()
            writer.close()
        except Killed:
            pass
    standings.close()


@pytest.fixture
def often(monkeypatch):
    """An orchestrator that looks at every turn."""
    monkeypatch.setattr(orchestrator, "_LOOK", 0.0)


def test_a_tournament_that_goes_on_logs_no_step_twice(tmp_path, often):
    target = Kept()
    logged(tmp_path, target, stop_at=12)
    before = len(target.steps)
    assert 5 < before < 15
    assert target.ended == 0
    logged(tmp_path, target)
    assert sorted(target.steps) == list(target.steps)
    assert len(target.steps) > before
    assert max(target.steps) == 2_000
    assert target.ended == 1
    # Nothing is left to tell, and nothing is told.
    count = len(target.steps)
    logged(tmp_path, target)
    assert len(target.steps) == count


def test_scalars_are_those_of_the_leaderboard(tmp_path):
    play(tmp_path)
    standings = Standings(tmp_path)
    standings.look()
    found = scalars(standings, 3)
    newest = [
        score
        for (score,) in rows(
            tmp_path,
            "SELECT score FROM pod WHERE id IN (SELECT MAX(id) FROM pod WHERE member >= 0 "
            "GROUP BY member)",
        )
    ]
    first, middle, third = statistics.quantiles(newest, n=4, method="inclusive")
    assert found["score/mean"] == pytest.approx(statistics.fmean(newest))
    assert found["score/quartile_1"] == first
    assert found["score/median"] == middle
    assert found["score/quartile_3"] == third
    rates = [row.values["lr"] for row in standings.newest.values()]
    assert found["option/lr"] == statistics.median(rates)
    assert (found["pods/done"], found["pods/failed"], found["slots"]) == (20, 0, 3)
    assert found["score/best"] == standings.leader().score
    standings.close()


def test_tensorboard_reads_what_was_written_by_two_processes(tmp_path, often):
    for stop_at in (12, None):
        target = make_logger("tensorboard", tmp_path)
        logged(tmp_path, target, stop_at=stop_at)
        if stop_at:
            target.shutdown()
    (place,) = (tmp_path / "tensorboard").iterdir()
    read = EventAccumulator(str(place))
    read.Reload()
    assert {"score/best", "option/lr", "pods/done", "slots"} <= set(read.Tags()["scalars"])
    steps = [event.step for event in read.Scalars("score/best")]
    assert steps == sorted(set(steps))
    assert steps[-1] == 2_000
    done = [event.value for event in read.Scalars("pods/done")]
    assert done == sorted(done)


def test_a_disk_that_is_full_costs_the_scalars_alone(tmp_path, caplog):
    class Full(Kept):
        def log_metrics(self, metrics, step):
            raise OSError(28, "No space left on device")

        def shutdown(self):
            raise OSError(28, "No space left on device")

    logged(tmp_path, Full())
    assert "scalars could not be written at 2000: [Errno 28]" in caplog.text
    assert "the last scalars could not be written: [Errno 28]" in caplog.text
    assert rows(tmp_path, "SELECT COUNT(*) FROM pod WHERE operation = 'final'") == [(3,)]
