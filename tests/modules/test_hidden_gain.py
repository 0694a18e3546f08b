"""The scale of the hidden layers' first weights, an option of every algorithm."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor, nn

from torchrl_elegant.algorithms import ALGORITHMS, PPOConfig, SACConfig
from torchrl_elegant.envs import make_env
from torchrl_elegant.modules import MLP, build_actor

CRITICS = {
    **dict.fromkeys(("ppo", "a2c"), "critic_network"),
    **dict.fromkeys(("dqn", "double_dqn", "dueling_dqn", "d3qn", "ddpg"), "value_network"),
    **dict.fromkeys(("sac", "modsac", "redq", "td3", "discrete_sac"), "qvalue_network"),
}
# Behind two hidden layers: of a perceptron, of an ensemble, of the two streams of values.
LAST = {"layers.2.weight", "weight_2", "value.weight_0", "advantage.weight_0"}


def networks(name: str, **options: float | str) -> list[nn.Module]:
    kind = ALGORITHMS[name]
    loss = kind(num_cells=(8, 6), **options).build(make_env(kind.example)).loss
    critic = getattr(loss, CRITICS[name]).net
    return [loss.actor_network.net, critic] if kind.has_actor else [critic]


def weights(net: nn.Module) -> tuple[list[Tensor], list[Tensor]]:
    """Weights of the hidden layers, and those of the last."""
    found = {name: param for name, param in net.named_parameters() if "weight" in name}
    last = [param for name, param in found.items() if name in LAST]
    return [param for name, param in found.items() if name not in LAST], last


def assert_scaled(weight: Tensor, gain: float) -> None:
    """An orthogonal matrix times ``gain`` has no other singular value."""
    singular = torch.linalg.svdvals(weight.detach())
    torch.testing.assert_close(singular, torch.full_like(singular, gain))


@pytest.mark.parametrize("name", CRITICS)
def test_hidden_layers_alone_have_the_gain(name):
    torch.manual_seed(0)
    plain = networks(name)
    torch.manual_seed(0)
    for net, before in zip(networks(name, hidden_gain=1.25), plain, strict=True):
        hidden, last = weights(net)
        assert len(hidden) == 2
        assert last
        for weight in hidden:
            assert_scaled(weight, 1.25)
        for weight, same in zip(last, weights(before)[1], strict=True):
            assert torch.equal(weight, same)


@pytest.mark.parametrize(
    ("activation", "gain"), [("tanh", 5.0 / 3.0), ("relu", math.sqrt(2.0)), ("silu", 2.0**0.5)]
)
@pytest.mark.parametrize("norm", ["none", "all"])
@pytest.mark.parametrize("name", ["ppo", "sac", "d3qn"])
def test_without_the_option_the_activation_chooses(name, norm, activation, gain):
    found = []
    for options in ({}, {"hidden_gain": gain}):
        torch.manual_seed(0)
        found.append(networks(name, activation=activation, layer_norm=norm, **options))
    for net, same in zip(*found, strict=True):
        for weight in weights(net)[0]:
            assert_scaled(weight, gain)
        for param, other in zip(net.parameters(), same.parameters(), strict=True):
            assert torch.equal(param, other)


def test_a_builder_takes_it():
    actor = build_actor(make_env("Pendulum-v1"), num_cells=(8,), hidden_gain=0.5)
    assert_scaled(actor.net.layers[0].weight, 0.5)


@pytest.mark.parametrize("gain", [0.0, -1.0, math.inf, math.nan])
def test_no_scale_is_refused(gain):
    with pytest.raises(ValueError, match="`hidden_gain` must be a finite number above 0, or none"):
        PPOConfig(hidden_gain=gain)
    with pytest.raises(ValueError, match="`hidden_gain` must be a positive number, got"):
        MLP(in_features=3, out_features=2, hidden_gain=gain)


def test_it_is_refused_where_no_network_has_it():
    both = {"actor": nn.Linear(3, 2), "critic": nn.Linear(4, 1)}
    with pytest.raises(ValueError, match=r"`hidden_gain` must stay None with networks of its own"):
        SACConfig(hidden_gain=1.0, networks=both)
    SACConfig(hidden_gain=1.0, networks={"actor": both["actor"]})
