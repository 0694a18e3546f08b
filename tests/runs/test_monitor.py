"""What watches a run."""

from __future__ import annotations

import math
from contextlib import nullcontext
from types import SimpleNamespace

import pytest
import torch
from tensordict import TensorDict

from torchrl_elegant.algorithms import SACConfig
from torchrl_elegant.envs import make_env
from torchrl_elegant.runs import callbacks
from torchrl_elegant.runs.callbacks import Callbacks, RunningRun
from torchrl_elegant.runs.monitor import (
    Averages,
    Follower,
    Monitor,
    Progress,
    StopSignals,
    _next_multiple,
)
from torchrl_elegant.trainers.clock import PACE_COLUMNS
from torchrl_elegant.trainers.evaluation import Evaluation
from torchrl_elegant.trainers.learner import DivergedError, Learner
from torchrl_elegant.trainers.ledger import Ledger
from torchrl_elegant.trainers.ranks import Ranks
from torchrl_elegant.trainers.run_config import RunConfig


def test_averages_are_over_the_updates_that_had_the_term():
    averages = Averages()
    loss = torch.tensor(1.0)
    averages.add({"loss": loss})
    loss.fill_(100.0)  # what was noted may be overwritten
    averages.add({"loss": torch.tensor(2.0), "loss_actor": torch.tensor(-4.0)})
    averages.add({"loss": torch.tensor(6.0), "loss_actor": torch.tensor(-2.0)})
    assert averages.take() == {"loss": 3.0, "loss_actor": -3.0}
    assert averages.take() == {}


def test_progress_is_stored_and_found_again():
    before, after = Progress(), Progress()
    before.seconds, before.evaluated_at = 1.5, 7
    after.load_state_dict(before.state_dict())
    assert vars(after) == vars(before)


def test_progress_that_lacks_something_is_complemented():
    progress = Progress()
    progress.load_state_dict({"seconds": 5.0})
    assert (progress.seconds, progress.evaluated_at) == (5.0, -1)


@pytest.mark.parametrize(
    ("frames", "interval", "due"), [(0, 10, 10), (9, 10, 10), (10, 10, 20), (25, 10, 30)]
)
def test_the_next_round_number_is_due(frames, interval, due):
    assert _next_multiple(frames, interval) == due


def test_a_follower_stops_when_it_is_asked_to():
    signals = StopSignals()
    follower = Follower(signals, Ranks())
    assert follower.after(None) is True
    assert follower.stopped_by is None
    signals.reason = "SIGTERM"
    assert follower.after(None) is False
    assert follower.stopped_by == "SIGTERM"


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_averages_know_whether_they_are_numbers(value):
    averages = Averages()
    assert averages.finite()
    averages.add({"loss": torch.tensor(1.0)})
    assert averages.finite()
    averages.add({"loss": torch.tensor(value), "other": torch.tensor(1.0)})
    averages.add({"loss": torch.tensor(1.0)})
    assert not averages.finite()
    averages.take()
    assert averages.finite()


class Silent:
    """Stands in for a reporter."""

    def __getattr__(self, name):
        return lambda *args: None

    def stop_requested(self):
        return False


class Saves(list):
    def save(self, frames, metadata):
        self.append((frames, metadata))


def viewed(folder, learner, evaluate, **run):
    """A run whose trial has an evaluation of the test's own."""
    trial = SimpleNamespace(
        run=RunConfig(total_frames=100, eval_interval=50, logger="none", **run),
        learner=learner,
        ledger=learner.ledger,
        ranks=Ranks(),
        evaluate=evaluate,
        about=lambda: {"env": "Pendulum-v1"},
    )
    return RunningRun(trial, folder)


@pytest.fixture
def watched(tmp_path):
    saves = Saves()
    learner = Learner(SACConfig(num_cells=(8,)).build(make_env("Pendulum-v1")))
    monitor = Monitor(
        viewed(
            tmp_path,
            learner,
            lambda should_stop: Evaluation(returns=(5.0,), lengths=(1,)),
            checkpoint_interval=10,
        ),
        progress=Progress(),
        reporter=Silent(),
        checkpoints=saves,
        callbacks=Callbacks(),
        signals=StopSignals(),
    )
    learner.ledger.frames = 10
    source = SimpleNamespace(pause=nullcontext, train_return=lambda: None)
    return monitor, source, saves, learner


def test_a_stop_at_a_checkpoint_still_stores_the_best_return(watched):
    monitor, source, saves, _ = watched
    monitor.after(source)
    monitor.finish(source)
    assert saves == [(10, {}), (10, {"return_mean": 5.0})]


@pytest.mark.parametrize("where", ["term", "weight"])
def test_nothing_is_saved_once_a_number_is_lost(watched, where):
    # As on a GPU, where no update looks at its own loss.
    monitor, source, saves, learner = watched
    if where == "term":
        monitor.note(TensorDict({"loss_qvalue": torch.tensor(math.nan)}, []))
    else:
        next(learner.policy.parameters()).data.fill_(math.nan)
    with pytest.raises(DivergedError, match="`loss_qvalue`" if where == "term" else "`actor_net"):
        monitor.after(source)
    assert saves == []


class Timed:
    """Reporter, evaluation, checkpoints and source, of which each call takes its seconds."""

    def __init__(self, hand):
        self.hand, self.rows, self.end, self.view = hand, [], None, None
        self.returns = 1.0

    def row(self, row):
        self.rows.append(row)
        with self.view.storing("metrics.csv"):
            self.hand.turn(10)

    def policy(self, *args):
        with self.view.storing("policy.pt"):
            self.hand.turn(100)

    def evaluate(self, should_stop=None):
        self.hand.turn(1)
        self.returns -= 1.0
        return Evaluation(returns=(self.returns,), lengths=(1,))

    def save(self, frames, metadata):
        self.hand.turn(10_000)

    def finish(self, pace, newest):
        self.end = pace

    def advance(self, frames):
        self.hand.turn(100_000)

    def stop_requested(self):
        return False

    def train_return(self):
        return None

    def pause(self):
        return nullcontext()


def test_rows_and_the_end_say_where_the_time_went(hand, tmp_path, monkeypatch):
    monkeypatch.setattr(callbacks, "save_policy", lambda *args: hand.turn(1_000))
    parts = Timed(hand)
    progress = Progress()
    progress.seconds = 7.0  # a run that goes on
    ledger = Ledger(total_frames=100, frames=40, updates=20)
    learner = Learner(SACConfig(num_cells=(8,)).build(make_env("Pendulum-v1")), ledger=ledger)
    parts.view = viewed(tmp_path, learner, parts.evaluate, checkpoint_interval=100)
    monitor = Monitor(
        parts.view,
        progress=progress,
        reporter=parts,
        checkpoints=parts,
        callbacks=Callbacks(),
        signals=StopSignals(),
    )
    ledger.frames, ledger.updates = 50, 25
    monitor.after(parts)
    ledger.frames, ledger.updates = 100, 65
    monitor.finish(parts)
    first, second = parts.rows
    spent = 100_000 + 1  # the bar, the first evaluation
    assert [first[name] for name in PACE_COLUMNS if first[name]] == pytest.approx(
        [10 / spent, 5 / spent, 1 / spent, 100_000 / spent]
    )
    assert (first["seconds"], second["seconds"]) == (7.0 + spent, 7.0 + spent + 11_110 + 1)
    # What was written after the first row counts towards the second.
    spent = 10 + 1_000 + 10_000 + 100 + 1
    assert [second[name] for name in PACE_COLUMNS if second[name]] == pytest.approx(
        [50 / spent, 40 / spent, 1 / spent, 11_110 / spent]
    )
    assert parts.end == "time: evaluate 0 %, save 18 %, other 82 % | 0 frames/s, 0 updates/s"


def test_a_follower_has_a_clock_for_the_loop_to_tell():
    assert Follower(StopSignals(), Ranks()).clock.seconds()["learn"] == 0.0
