"""What watches a run."""

from __future__ import annotations

import math

import pytest
import torch

from torchrl_elegant.trainers.distributed import Ranks
from torchrl_elegant.trainers.monitor import Averages, Follower, Progress, _next_multiple
from torchrl_elegant.trainers.signals import StopSignals


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
    assert before.best_return == -math.inf
    before.frames, before.debt, before.best_return = 7, 1.5, -3.0
    after.load_state_dict(before.state_dict())
    assert vars(after) == vars(before)


def test_progress_of_an_older_checkpoint_is_complemented():
    progress = Progress()
    progress.load_state_dict({"frames": 5})
    assert (progress.frames, progress.debt) == (5, 0.0)


@pytest.mark.parametrize(
    ("frames", "interval", "due"), [(0, 10, 10), (9, 10, 10), (10, 10, 20), (25, 10, 30)]
)
def test_the_next_round_number_is_due(frames, interval, due):
    assert _next_multiple(frames, interval) == due


def test_a_follower_stops_when_it_is_asked_to():
    class Source:
        frames = 12

    signals = StopSignals()
    follower = Follower(Progress(), signals, Ranks())
    assert follower.after(Source()) is True
    assert follower.progress.frames == 12
    signals.reason = "SIGTERM"
    assert follower.after(Source()) is False
