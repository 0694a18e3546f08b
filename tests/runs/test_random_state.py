"""Random streams that go on where other GPUs are."""

from __future__ import annotations

import random

import numpy as np
import pytest
import torch

from torchrl_elegant.runs.state import RandomState


def draw() -> tuple:
    return random.random(), float(np.random.rand()), float(torch.rand(()))  # noqa: NPY002


def test_streams_go_on():
    state = RandomState().state_dict()
    expected = draw()
    assert draw() != expected
    RandomState().load_state_dict(state)
    assert draw() == expected


@pytest.mark.parametrize("here", [0, 1, 3])
def test_other_gpus_are_left_as_they_are(monkeypatch, caplog, here):
    state = RandomState().state_dict()
    expected = draw()
    monkeypatch.setattr(torch.cuda, "is_available", lambda: here > 0)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: here)
    state["torch_cuda"] = [torch.get_rng_state()] * 2
    RandomState().load_state_dict(state)
    assert draw() == expected
    assert f"streams of 2 devices (torch_cuda) are not restored: {here} are here" in caplog.text
    assert "torch_cuda" in state


def test_the_same_gpus_get_their_streams_back(monkeypatch, caplog):
    given = []
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch.cuda, "set_rng_state_all", given.extend)
    state = RandomState().state_dict() | {"torch_cuda": [torch.get_rng_state()] * 2}
    RandomState().load_state_dict(state)
    assert len(given) == 2
    assert "not restored" not in caplog.text
