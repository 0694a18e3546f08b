"""Stop flags from signals."""

from __future__ import annotations

import os
import signal
import threading

import pytest

from torchrl_elegant.runs.monitor import StopSignals


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_first_signal_is_a_flag(number):
    with StopSignals() as stop:
        assert not stop.requested
        assert stop.reason is None
        os.kill(os.getpid(), number)
        assert stop.requested
        assert stop.reason == number.name


@pytest.mark.parametrize("first", [signal.SIGINT, signal.SIGTERM])
def test_interrupt_after_a_first_signal_interrupts(first):
    with StopSignals() as stop:
        os.kill(os.getpid(), first)
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)
        assert stop.reason == first.name


def test_second_sigterm_stays_a_flag():
    with StopSignals() as stop:
        os.kill(os.getpid(), signal.SIGTERM)
        os.kill(os.getpid(), signal.SIGTERM)
        assert stop.reason == "SIGTERM"


def test_old_handlers_come_back_also_after_an_error():
    numbers = (signal.SIGINT, signal.SIGTERM)
    before = [signal.getsignal(number) for number in numbers]

    def fail():
        with StopSignals():
            inside.extend(signal.getsignal(number) for number in numbers)
            raise ZeroDivisionError

    inside = []
    with pytest.raises(ZeroDivisionError):
        fail()
    assert [signal.getsignal(number) for number in numbers] == before
    assert not set(inside) & set(before)


def test_harmless_outside_the_main_thread():
    before = signal.getsignal(signal.SIGINT)
    seen = []

    def work():
        with StopSignals() as stop:
            seen.append((stop.requested, signal.getsignal(signal.SIGINT)))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert seen == [(False, before)]
