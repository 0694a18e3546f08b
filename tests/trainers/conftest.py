"""Lets the tests here set a run's clock."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from torchrl_elegant.trainers import clock


class Hand:
    """Turns the clocks of all runs; without it they stand still."""

    now = 100.0

    def turn(self, seconds: float) -> None:
        self.now += seconds


@pytest.fixture
def hand(monkeypatch: pytest.MonkeyPatch) -> Hand:
    hand = Hand()
    monkeypatch.setattr(clock, "time", SimpleNamespace(perf_counter=lambda: hand.now))
    return hand
