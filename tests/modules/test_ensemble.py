"""Perceptrons and their ensembles."""

from __future__ import annotations

import pytest
import torch
from tensordict import TensorDict
from torch import nn

from torchrl_elegant.modules import (
    ACTIVATIONS,
    MLP,
    EnsembleCritic,
    EnsembleMLP,
    FixedTemperature,
    LearnedTemperature,
)

REFERENCE = {
    "elu": nn.ELU(),
    "gelu": nn.GELU(),
    "leaky_relu": nn.LeakyReLU(),
    "relu": nn.ReLU(),
    "silu": nn.SiLU(),
    "tanh": nn.Tanh(),
}


def ensemble(members=3, cells=(8, 6), activation="relu", out=2):
    return EnsembleMLP(
        num_members=members, in_features=4, out_features=out, num_cells=cells, activation=activation
    )


@pytest.mark.parametrize("members", [1, 2, 5])
@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_each_member_is_a_perceptron(members, activation):
    net, x = ensemble(members, activation=activation).double(), torch.randn(7, 4).double()
    out = net(x)
    for i in range(members):
        y = x
        for layer in range(3):
            weight, bias = getattr(net, f"weight_{layer}")[i], getattr(net, f"bias_{layer}")[i]
            y = y @ weight + bias
            y = REFERENCE[activation](y) if layer < 2 else y
        torch.testing.assert_close(out[i], y)


@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("kind", ["single", "ensemble"])
def test_gradients(activation, kind):
    if kind == "single":
        net = MLP(in_features=4, out_features=2, num_cells=(8, 6), activation=activation)
    else:
        net = ensemble(activation=activation)
    x = torch.randn(3, 4, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(net.double(), (x,))


def test_members_are_orthogonal_and_differ():
    net = ensemble(4, cells=(8, 8))
    for layer, gain in ((0, 2.0), (1, 2.0), (2, 1.0)):
        weight = getattr(net, f"weight_{layer}")
        for member in weight:
            short = member if member.shape[0] <= member.shape[1] else member.T
            torch.testing.assert_close(
                short @ short.T, gain * torch.eye(len(short)), atol=1e-5, rtol=1e-5
            )
        pairs = [(i, j) for i in range(4) for j in range(i)]
        assert all((weight[i] - weight[j]).abs().max() > 0.1 for i, j in pairs)
        assert not getattr(net, f"bias_{layer}").any()


def test_frozen_reaches_the_input_alone():
    net, x = ensemble(), torch.randn(7, 4, requires_grad=True)
    assert torch.equal(net(x), net.forward_frozen(x))
    net.forward_frozen(x).sum().backward()
    assert x.grad.any()
    assert all(param.grad is None for param in net.parameters())


def test_no_hidden_layer():
    assert ensemble(cells=())(torch.zeros(5, 4)).shape == (3, 5, 2)
    assert MLP(in_features=4, out_features=2, num_cells=())(torch.zeros(5, 4)).shape == (5, 2)


@pytest.mark.parametrize("cells", [(0,), (8, -1), (2.5,)])
@pytest.mark.parametrize(
    "make", [lambda c: ensemble(cells=c), lambda c: MLP(in_features=1, out_features=1, num_cells=c)]
)
def test_sizes_must_be_positive(make, cells):
    with pytest.raises(ValueError, match="`num_cells` must hold positive integers, got"):
        make(cells)


def test_members_must_be_positive():
    with pytest.raises(ValueError, match="`num_members` must be at least 1, got `0`"):
        ensemble(0)


SHAPES = {("robot", "joints"): (4,), "map": (2, 3)}


def critic():
    return EnsembleCritic(observation=SHAPES, action_shape=(2, 2), num_critics=3, num_cells=(8,))


@pytest.mark.parametrize("shape", [(5,), (2, 5), (2, 3, 5)])
def test_critic_shapes(shape):
    data = TensorDict(
        {
            "robot": {"joints": torch.randn(*shape, 4)},
            "map": torch.randn(*shape, 2, 3),
            "action": torch.randn(*shape, 2, 2),
        },
        shape,
    )
    q = critic()
    written = q(data)["state_action_value"]
    assert written.shape == (*shape, 3)
    values = q.values([data["robot", "joints"], data["map"]], data["action"])
    assert values.shape == (3, *shape)
    assert torch.equal(written.movedim(-1, 0), values)
    flat = data.reshape(-1)
    again = q.values([flat["robot", "joints"], flat["map"]], flat["action"])
    torch.testing.assert_close(values.reshape(3, -1), again)


def test_frozen_values_reach_the_action_alone():
    q, action = critic(), torch.randn(5, 2, 2, requires_grad=True)
    observation = [torch.randn(5, 4), torch.randn(5, 2, 3)]
    q.frozen_values(observation, action).sum().backward()
    assert action.grad.any()
    assert all(param.grad is None for param in q.parameters())
    assert torch.equal(q.frozen_values(observation, action), q.values(observation, action))


@pytest.mark.parametrize("kind", [FixedTemperature, LearnedTemperature])
@pytest.mark.parametrize("alpha", [0.0, -1.0, float("nan")])
def test_temperature_must_be_positive(kind, alpha):
    with pytest.raises(ValueError, match="`alpha` must be positive, got"):
        kind(alpha=alpha)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"minimum": 2.0, "maximum": 1.0}, "`minimum` must not exceed `maximum`"),
        ({"maximum": 0.0}, "`maximum` must be positive"),
        ({"target_entropy": "automatic"}, "`target_entropy` must be a number or 'auto'"),
    ],
)
def test_temperature_refusals(options, message):
    with pytest.raises(ValueError, match=message):
        LearnedTemperature(**options)
