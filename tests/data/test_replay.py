"""Buffers with and without priorities."""

from __future__ import annotations

import pytest
import torch
from tensordict import TensorDict
from torchrl.data.replay_buffers.samplers import RandomSampler

from torchrl_elegant.algorithms import SACConfig
from torchrl_elegant.data import PrioritizedSampler, Priority, make_buffer
from torchrl_elegant.envs import make_env


def rows(count):
    return TensorDict({"x": torch.arange(count)}, [count])


def test_uniform_by_default():
    buffer = make_buffer(size=10)
    buffer.extend(rows(4))
    assert isinstance(buffer.sampler, RandomSampler)
    assert "priority_weight" not in buffer.sample(6).keys()  # noqa: SIM118


def test_settings_reach_the_sampler():
    priority = Priority(
        alpha=0.7,
        beta=0.3,
        eps=1e-3,
        key="error",
        reduction="min",
        max_priority_within_buffer=True,
    )
    buffer = make_buffer(size=10, priority=priority)
    sampler = buffer.sampler
    assert isinstance(sampler, PrioritizedSampler)
    assert (sampler.alpha, sampler.beta, sampler._eps) == (0.7, 0.3, 1e-3)
    assert (sampler.reduction, sampler._max_priority_within_buffer) == ("min", True)
    assert sampler.max_size == buffer.storage.max_size == 10
    buffer.extend(rows(2))
    buffer.update_tensordict_priority(
        TensorDict({"index": torch.arange(2), "error": torch.tensor([[3.0, 5.0], [7.0, 6.0]])}, [2])
    )
    leaves = sampler._sum_tree[torch.arange(2)]
    torch.testing.assert_close(leaves, (torch.tensor([3.0, 6.0]) + 1e-3) ** 0.7)


@pytest.mark.parametrize("priority", [None, Priority()])
def test_no_buffer_of_no_size(priority):
    with pytest.raises(ValueError, match="`size` must be at least 1, got `0`"):
        make_buffer(size=0, priority=priority)


def test_on_a_device_nothing_waits():
    # On this device every look at a value is an error.
    buffer, rows = make_buffer(size=10, device="meta"), TensorDict({"x": torch.zeros(6, 2)}, [6])
    for _ in range(2):
        buffer.extend(rows.to("meta"))
    batch = buffer.sample(4)
    assert (len(buffer), batch.shape, batch["x"].device.type) == (10, (4,), "meta")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("alpha", -0.1),
        ("alpha", float("nan")),
        ("beta", -1.0),
        ("beta", float("inf")),
        ("eps", 0.0),
        ("reduction", "first"),
    ],
)
def test_faulty_settings_are_refused(name, value):
    with pytest.raises(ValueError, match=f"`{name}` must be .*, got `{value}`"):
        Priority(**{name: value})


def test_a_loss_reads_weights_and_files_priorities():
    env = make_env("Pendulum-v1", num_envs=4)
    loss = SACConfig(num_cells=(8,)).build(env).loss
    buffer = make_buffer(size=100, priority=Priority(alpha=1.0, beta=1.0))
    buffer.extend(env.rollout(20).reshape(-1))
    buffer.update_priority(torch.arange(80), torch.linspace(1, 3, 80))
    batch = buffer.sample(32)
    loss(batch)
    before = buffer.sampler._sum_tree[torch.arange(80)]
    buffer.update_tensordict_priority(batch)
    expected = before.clone()
    for index, error in zip(batch["index"], batch["td_error"], strict=True):
        expected[index] = error  # of a row drawn twice the last error, its noise being another
    torch.testing.assert_close(buffer.sampler._sum_tree[torch.arange(80)], expected)
    assert not torch.equal(before, expected)


def test_the_weights_weigh_the_loss_of_each_row():
    env = make_env("Pendulum-v1", num_envs=4)
    loss = SACConfig(num_cells=(8,)).build(env).loss
    loss.reduction = "none"
    buffer = make_buffer(size=100, priority=Priority(alpha=1.0, beta=1.0))
    buffer.extend(env.rollout(20).reshape(-1))
    buffer.update_priority(torch.arange(80), torch.linspace(1, 3, 80))
    batch = buffer.sample(32)
    torch.manual_seed(3)
    weighed = loss(batch)["loss_qvalue"]
    torch.manual_seed(3)
    plain = loss(batch.exclude("priority_weight"))["loss_qvalue"]
    torch.testing.assert_close(weighed, plain * batch["priority_weight"])
    assert (weighed < plain).any()
