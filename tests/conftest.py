"""What every test starts from: one thread, fixed seeds, no window."""

from __future__ import annotations

import os
import random
import signal
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torchrl.envs.utils import exploration_type, set_exploration_type

from torchrl_elegant.objectives.compiled import loss as compiled_loss
from torchrl_elegant.objectives.compiled.recording import Recording
from torchrl_elegant.trainers import clock

# For the processes that tests start; this one's threads are set below.
for _name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
    os.environ.setdefault(_name, "1")
os.environ.setdefault("MPLBACKEND", "Agg")
os.environ.setdefault("SDL_VIDEODRIVER", "dummy")
# Compiled updates are kept for a session, and not among the user's.
_CACHE = tempfile.TemporaryDirectory()
os.environ["XDG_CACHE_HOME"] = _CACHE.name
# A shell has its background jobs ignore Ctrl-C, and so would every process that tests interrupt.
signal.signal(signal.SIGINT, signal.default_int_handler)


# What several folders share is imported by its bare name.
sys.path.insert(0, str(Path(__file__).parent))


@pytest.fixture(autouse=True)
def one_thread_and_fixed_seeds() -> None:
    # Per test and not once: TorchRL's environments set the thread count when they start.
    torch.set_num_threads(1)
    torch.manual_seed(0)
    np.random.seed(0)  # noqa: NPY002 (libraries draw from it)
    random.seed(0)


@pytest.fixture(autouse=True)
def exploration_is_left_as_it_was() -> Iterator[None]:
    """TorchRL keeps it for the whole process: left behind, it would change the tests to come."""
    before = exploration_type()
    yield
    after = exploration_type()
    set_exploration_type(before).__enter__()
    assert after is before


@pytest.fixture
def graphs(monkeypatch: pytest.MonkeyPatch) -> list[Recording]:
    """Recordings of updates, which run as they are: a compiler takes seconds for each."""
    made: list[Recording] = []

    def as_recorded(recording: Recording, given: object) -> Callable[..., list[torch.Tensor]]:
        made.append(recording)
        return lambda given: recording.graph(*recording.arguments(given))

    monkeypatch.setattr(compiled_loss, "compile_recording", as_recorded)
    return made


class Hand:
    """Hands of the clocks of all runs; they stand still until a test turns them."""

    now = 100.0

    def turn(self, seconds: float) -> None:
        self.now += seconds


@pytest.fixture
def hand(monkeypatch: pytest.MonkeyPatch) -> Hand:
    hand = Hand()
    monkeypatch.setattr(clock, "time", SimpleNamespace(perf_counter=lambda: hand.now))
    return hand
