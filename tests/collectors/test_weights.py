"""Shared weights: everything arrives, nothing is torn, no reader can hang the writer."""

from __future__ import annotations

import threading

import pytest
import torch
from tensordict import TensorDict
from torch import nn
from torchrl._utils import _get_mp_ctx

from torchrl_elegant.collectors.workers.weights import SharedWeights


class Mixed(nn.Module):
    """Parameters and buffers of several dtypes, one of them not in the state_dict."""

    def __init__(self, value: float = 0.0) -> None:
        super().__init__()
        self.inner = nn.Linear(3, 2)
        self.norm = nn.BatchNorm1d(3)
        self.low = nn.Parameter(torch.zeros(5, dtype=torch.float16))
        self.register_buffer("transient", torch.zeros(1), persistent=False)
        for tensor in [*self.parameters(), *self.buffers()]:
            tensor.detach().fill_(value)


def tensors(module: nn.Module) -> dict[str, torch.Tensor]:
    return {**dict(module.named_parameters()), **dict(module.named_buffers())}


def all_equal(module: nn.Module, value: float) -> bool:
    return all(bool((tensor == value).all()) for tensor in tensors(module).values())


def test_pull_brings_parameters_and_buffers_once():
    source, target = Mixed(3.0), Mixed()
    weights = SharedWeights(source)
    assert weights.pull(target) is True
    assert all_equal(target, 3.0)
    assert weights.pull(target) is False


def test_the_learner_is_not_shared_with_the_readers():
    source, target = Mixed(1.0), Mixed()
    weights = SharedWeights(source)
    weights.pull(target)
    with torch.no_grad():
        source.inner.weight.fill_(9.0)
    assert weights.pull(target) is False
    assert all_equal(target, 1.0)
    assert not source.inner.weight.is_shared()
    assert not target.inner.weight.is_shared()


@pytest.mark.parametrize("form", ["module", "tensordict", "state_dict"])
def test_every_form_of_weights_is_taken(form):
    weights, source, target = SharedWeights(Mixed()), Mixed(2.0), Mixed()
    forms = {
        "module": source,
        "tensordict": TensorDict.from_module(source),
        "state_dict": source.state_dict(),
    }
    assert weights.publish(forms[form]) == 2
    weights.pull(target)
    target.transient.fill_(2.0)  # a state_dict has none to give
    assert all_equal(target, 2.0)


def test_a_source_on_another_dtype_is_cast():
    weights, target = SharedWeights(Mixed()), Mixed()
    weights.publish(Mixed(4.0).double())
    weights.pull(target)
    assert target.inner.weight.dtype == torch.float32
    assert all_equal(target, 4.0)


def test_missing_and_misshapen_weights_are_named():
    weights = SharedWeights(Mixed())
    partial = {name: value for name, value in Mixed().state_dict().items() if name != "low"}
    with pytest.raises(KeyError, match="low"):
        weights.publish(partial)
    with pytest.raises(ValueError, match=r"`low` must have shape \(5,\), got \(6,\)"):
        weights.publish({**partial, "low": torch.zeros(6)})
    assert weights.version == 1


def test_a_policy_without_weights_is_refused():
    with pytest.raises(TypeError, match=r"`policy` must be a torch\.nn\.Module"):
        SharedWeights(lambda td: td)


def read_forever(weights: SharedWeights, stop, torn) -> None:
    target = Mixed()
    while not stop.is_set():
        if weights.pull(target):
            values = {
                float(tensor.detach().flatten()[i])
                for tensor in tensors(target).values()
                for i in (0, -1)
            }
            torn.value += len(values) != 1


def test_no_read_is_torn():
    weights, torn = SharedWeights(Mixed()), _get_mp_ctx().RawValue("i", 0)
    stop = threading.Event()
    readers = [
        threading.Thread(target=read_forever, args=(_other_end(weights), stop, torn))
        for _ in range(2)
    ]
    for reader in readers:
        reader.start()
    source = Mixed()
    for version in range(300):
        for tensor in tensors(source).values():
            tensor.detach().fill_(version % 100)
        weights.publish(source)
    stop.set()
    for reader in readers:
        reader.join(timeout=10)
    assert torn.value == 0


def _other_end(weights: SharedWeights) -> SharedWeights:
    # What a worker holds: the same block and lock, its own record of what it has seen.
    other = object.__new__(SharedWeights)
    other.__dict__.update(weights.__getstate__())
    return other


def test_a_reader_killed_inside_cannot_hang_the_writer():
    weights = SharedWeights(Mixed())
    weights._lock.acquire()

    def alive() -> None:
        raise RuntimeError("worker 1 died")

    with pytest.raises(RuntimeError, match="worker 1 died"):
        weights.publish(Mixed(1.0), alive=alive)


def test_a_writer_killed_inside_leaves_the_reader_with_what_it_has():
    weights, target = SharedWeights(Mixed(1.0)), Mixed()
    weights._lock.acquire()
    assert weights.pull(target) is False
    assert all_equal(target, 0.0)
