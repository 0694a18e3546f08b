"""Ledger of a run: what is owed, before and after a run goes on."""

from __future__ import annotations

import pytest

from torchrl_elegant.trainers.ledger import Ledger


@pytest.mark.parametrize(
    ("rate", "state", "refill", "free"),
    [
        (1.0, {}, 0, 100),
        (0.5, {"frames": 50}, 0, 100),
        (1.0, {"frames": 300, "updates": 200}, 0, 100),
        (1.0, {"frames": 300, "updates": 150, "owed": 50}, 0, 100),  # stopped with updates undone
        (2.0, {"frames": 300, "updates": 100}, 0, 250),  # the rate was raised
        (0.5, {"frames": 300, "updates": 200}, 0, -100),  # the rate was lowered
        (1.0, {"frames": 300, "updates": 200}, 200, 300),
        (1.0, {"frames": 90}, 90, 180),
        (1.0, {"frames": 20}, 20, 100),  # the warm-up is longer than the refill
    ],
)
def test_a_run_owes_what_it_owed_before(rate, state, refill, free):
    state = {"frames": 0, "updates": 0, "owed": 0.0, **state}
    ledger = Ledger(total_frames=1_000, updates_per_frame=rate)
    ledger.load_state_dict(state)
    ledger.go_on(warmup=100, refill=refill)
    assert ledger.free_frames == free
    if ledger.updates:
        assert ledger.owed == state["owed"] - rate * refill


def test_counts_are_stored_with_what_is_owed():
    ledger = Ledger(total_frames=100, updates_per_frame=0.5, free_frames=10, frames=30, updates=3)
    assert ledger.state_dict() == {"frames": 30, "updates": 3, "owed": 7.0}
    other = Ledger(total_frames=100, updates_per_frame=0.5)
    other.load_state_dict(ledger.state_dict())
    other.go_on(warmup=10)
    assert (other.frames, other.updates, other.owed) == (30, 3, 7.0)


def test_nothing_is_owed_without_a_rate():
    ledger = Ledger(total_frames=100, frames=50)
    assert (ledger.owed, ledger.due) == (0.0, 0)


def test_what_is_due_is_whole_and_never_below_zero():
    ledger = Ledger(total_frames=100, updates_per_frame=0.29, free_frames=10)
    assert (ledger.owed, ledger.due) == (pytest.approx(-2.9), 0)
    ledger.free_frames, ledger.frames = 0, 100
    assert 0.29 * 100 < 29
    assert ledger.due == 29
    assert (ledger.progress, ledger.is_full) == (1.0, True)
