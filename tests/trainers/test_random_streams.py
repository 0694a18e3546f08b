"""Random streams of a trial: apart from the process, and going on where other GPUs are."""

from __future__ import annotations

import random

import numpy as np
import pytest
import torch

from torchrl_elegant.trainers.random_streams import RandomStreams


def draw() -> tuple:
    return random.random(), float(np.random.rand()), float(torch.rand(()))  # noqa: NPY002


def drawn(streams: RandomStreams) -> tuple:
    with streams.active():
        return draw()


def test_streams_go_on():
    streams = RandomStreams(7)
    state = streams.state_dict()
    expected = drawn(streams)
    assert drawn(streams) != expected
    streams.load_state_dict(state)
    assert drawn(streams) == expected
    other = RandomStreams(8)
    other.load_state_dict(state)
    assert drawn(other) == expected
    with other.active():
        other.load_state_dict(state)
        assert draw() == expected


def test_a_state_taken_inside_goes_on_from_there():
    streams = RandomStreams(7)
    with streams.active():
        draw()
        state = streams.state_dict()
        expected = draw()
    streams.load_state_dict(state)
    assert drawn(streams) == expected


def test_the_seed_decides():
    streams = RandomStreams(7)
    first = drawn(streams)
    assert drawn(RandomStreams(7)) == first
    assert drawn(RandomStreams(8)) != first
    streams.seed(7)
    assert drawn(streams) == first


def test_the_callers_streams_are_left_alone():
    state = torch.get_rng_state(), np.random.get_state()[1].copy(), random.getstate()  # noqa: NPY002
    streams = RandomStreams(7)
    with streams.active(), streams.active():
        draw()
    with pytest.raises(KeyError), streams.active():
        raise KeyError(draw())
    assert torch.equal(torch.get_rng_state(), state[0])
    assert (np.random.get_state()[1] == state[1]).all()  # noqa: NPY002
    assert random.getstate() == state[2]


def test_two_at_work_by_turns_do_not_meet():
    alone, one, other = (RandomStreams(seed) for seed in (7, 7, 8))
    expected = [drawn(alone) for _ in range(3)]
    found = []
    for _ in range(3):
        found.append(drawn(one))
        draw()
        drawn(other)
    assert found == expected


@pytest.mark.parametrize("here", [0, 1, 3])
def test_other_gpus_are_left_as_they_are(monkeypatch, caplog, here):
    streams = RandomStreams(7)
    state = streams.state_dict()
    expected = drawn(streams)
    state["torch_cuda"] = [torch.get_rng_state()] * 2
    with monkeypatch.context() as patch:
        patch.setattr(torch.cuda, "is_available", lambda: here > 0)
        patch.setattr(torch.cuda, "device_count", lambda: here)
        streams.load_state_dict(state)
    assert drawn(streams) == expected
    assert f"streams of 2 devices (torch_cuda) are not restored: {here} are here" in caplog.text
    assert "torch_cuda" in state


def test_the_same_gpus_get_their_streams_back(monkeypatch, caplog):
    streams, given = RandomStreams(7), []
    state = streams.state_dict() | {"torch_cuda": [torch.get_rng_state()] * 2}
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch.cuda, "get_rng_state_all", list)
    monkeypatch.setattr(torch.cuda, "set_rng_state_all", given.extend)
    streams.load_state_dict(state)
    with streams.active():
        assert len(given) == 2
    assert "not restored" not in caplog.text
