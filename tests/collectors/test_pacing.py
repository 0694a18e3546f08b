"""The ledger: both sides bounded, totals exact, nobody waiting for ever."""

from __future__ import annotations

import threading
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from torchrl_elegant.collectors.workers.pacing import Pacer, Ticket


def test_tickets_number_the_frames_and_the_last_is_cut_to_fit():
    pacer = Pacer(workers=2, total_frames=10)
    tickets = [pacer.gate(i % 2).acquire(4) for i in range(3)]
    assert tickets == [Ticket(0, 4), Ticket(4, 4), Ticket(8, 2)]
    pacer.stop()
    assert pacer.gate(0).acquire(4) is None
    assert pacer.frames_ticketed == 10


def test_updates_due_counts_whole_updates_after_the_warmup():
    pacer = Pacer(workers=1, updates_per_frame=0.1, warmup_frames=100)
    assert [pacer.updates_due(n) for n in (0, 100, 109, 110, 130)] == [0, 0, 0, 1, 3]
    pacer.note_updates(2)
    assert (pacer.updates_due(130), pacer.updates_due(110)) == (1, 0)


def test_updates_due_lose_no_rounding():
    assert 0.29 * 100 < 29
    pacer = Pacer(workers=1, updates_per_frame=0.29, warmup_frames=50)
    assert pacer.updates_due(150) == 29


def test_without_a_ratio_nothing_is_due_and_nothing_is_refused():
    pacer = Pacer(workers=1)
    assert pacer.updates_due(10**9) == 0
    assert pacer.gate(0).acquire(10**9) == Ticket(0, 10**9)


def test_resumed_counters_are_where_the_ledger_goes_on():
    pacer = Pacer(
        workers=1,
        updates_per_frame=1.0,
        warmup_frames=10,
        slack_frames=4,
        frames_done=50,
        updates_done=40,
    )
    assert pacer.gate(0).acquire(4) == Ticket(50, 4)
    assert pacer.updates_due(54) == 4
    pacer.restore(frames=70, updates=60)
    assert pacer.gate(0).acquire(4) == Ticket(70, 4)


@settings(deadline=None, max_examples=60)
@given(
    rate=st.floats(1e-3, 20.0),
    warmup=st.integers(0, 50),
    batch=st.integers(1, 20),
    workers=st.integers(1, 4),
    total=st.integers(1, 100),
)
def test_neither_side_runs_away_and_neither_starves(rate, warmup, batch, workers, total):
    slack = 2 * workers * batch
    pacer = Pacer(
        workers=workers,
        updates_per_frame=rate,
        warmup_frames=warmup,
        total_frames=total,
        slack_frames=slack,
    )
    frames = 0
    for _ in range(int((rate + 2) * total) + 10):
        ticket = pacer._grant(batch)
        if ticket is not None:
            frames += ticket.frames
            ahead = rate * (frames - warmup) - pacer.updates_done
            assert ahead <= rate * slack + 1 + 1e-6
        else:
            due = pacer.updates_due(frames)
            if frames == total and not due:
                break
            assert due > 0, "worker and learner wait for each other"
            pacer.note_updates(1)
        assert pacer.updates_done <= max(0.0, rate * (frames - warmup)) + 1e-3
    assert frames == total
    assert abs(pacer.updates_done - max(0.0, rate * (total - warmup))) < 1 + 1e-3


def test_a_blocked_worker_wakes_as_soon_as_the_learner_moves():
    pacer = Pacer(workers=1, updates_per_frame=1.0, slack_frames=1)
    gate = pacer.gate(0)
    assert gate.acquire(2) is not None
    woken = []

    def wait() -> None:
        gate.acquire(1)
        woken.append(time.monotonic())

    thread = threading.Thread(target=wait)
    thread.start()
    time.sleep(0.1)
    assert not woken
    rung = time.monotonic()
    pacer.note_updates(1)
    thread.join(timeout=5)
    assert woken[0] - rung < 0.5


@pytest.mark.parametrize("call", ["stop", "interrupt"])
def test_a_blocked_worker_is_called_out_of_the_gate(call):
    pacer = Pacer(workers=1, total_frames=1)
    gate = pacer.gate(0)
    assert gate.acquire(1) == Ticket(0, 1)
    answers = []
    thread = threading.Thread(target=lambda: answers.append(gate.acquire(1)))
    thread.start()
    pacer.stop() if call == "stop" else pacer.interrupt(1)
    thread.join(timeout=5)
    assert answers == [None]
    assert pacer.stopped is (call == "stop")


def test_hold_refuses_until_release():
    pacer = Pacer(workers=1)
    pacer.hold(lambda: None)
    assert pacer._grant(1) is None
    pacer.release()
    assert pacer._grant(1) == Ticket(0, 1)


def test_hold_does_not_wait_for_a_dead_worker():
    pacer = Pacer(workers=1)
    pacer._lock.acquire()  # as a worker killed in the gate leaves it

    def alive() -> None:
        raise RuntimeError("worker 0 died")

    with pytest.raises(RuntimeError, match="worker 0 died"):
        pacer.hold(alive)
    assert pacer.updates_due(10) == 0
    pacer.note_updates(1)  # the learner goes on without that lock
    assert pacer.updates_done == 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"workers": 0}, "`workers` must be at least 1, got 0"),
        ({"updates_per_frame": 0.0}, "`updates_per_frame` must be a positive number"),
        ({"updates_per_frame": float("nan")}, "`updates_per_frame` must be a positive number"),
        ({"warmup_frames": -1}, "`warmup_frames` must be zero or more, got -1"),
        ({"slack_frames": -1}, "`slack_frames` must be zero or more, got -1"),
        ({"frames_done": 5, "total_frames": 4}, "`total_frames` must be at least `frames_done`"),
    ],
)
def test_wrong_arguments_are_named(arguments, message):
    with pytest.raises(ValueError, match=message):
        Pacer(**{"workers": 1, **arguments})


def test_a_gate_belongs_to_a_worker():
    with pytest.raises(ValueError, match=r"`worker` must lie in \[0, 2\), got 2"):
        Pacer(workers=2).gate(2)
