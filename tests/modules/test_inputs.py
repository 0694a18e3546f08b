"""Pictures and vectors as one vector."""

from __future__ import annotations

from copy import deepcopy

import pytest
import torch
from torch import nn

from torchrl_elegant.modules import (
    CategoricalActor,
    ConvEncoder,
    EnsembleCritic,
    GaussianActor,
    Inputs,
    SquashedGaussianActor,
    StateValue,
)
from torchrl_elegant.modules import inputs as encoder_module

BOTH = {"eye": (3, 12, 12), ("arm", "angle"): (2,)}


def pictures(*shape: int) -> torch.Tensor:
    return torch.randint(256, shape, dtype=torch.uint8)


def by_hand(encoder: ConvEncoder, x: torch.Tensor) -> torch.Tensor:
    """The same with modules, on numbers that have been scaled beforehand."""
    for layer in encoder.convolutions:
        x = nn.functional.relu(layer(x))
    return nn.functional.relu(encoder.linear(x.flatten(1)))


@pytest.mark.parametrize("shape", [(3, 84, 84), (4, 36, 40), (1, 16, 16), (2, 5, 3), (1, 1, 1)])
def test_bytes_are_numbers_up_to_one(shape):
    encoder, image = ConvEncoder(shape=shape), pictures(4, *shape)
    expected = by_hand(encoder, image.float() / 255)
    torch.testing.assert_close(encoder(image), expected)
    torch.testing.assert_close(encoder(image.float() / 255), expected)
    assert encoder.features == expected.shape[-1]


def test_the_nature_network_as_published():
    encoder = ConvEncoder(shape=(4, 84, 84))
    found = [(c.out_channels, c.kernel_size[0], c.stride[0]) for c in encoder.convolutions]
    assert found == [(32, 8, 4), (64, 4, 2), (64, 3, 1)]
    assert encoder.linear.weight.shape == (512, 7 * 7 * 64)
    assert len(ConvEncoder(shape=(4, 35, 84)).convolutions) == 2
    assert len(ConvEncoder(shape=(4, 36, 36)).convolutions) == 3


@pytest.mark.parametrize("side", [12, 40])
def test_channels_first_or_last_is_the_same_picture(side):
    first, last = ConvEncoder(shape=(3, side, side + 1)), ConvEncoder(shape=(side, side + 1, 3))
    last.load_state_dict(first.state_dict())
    image = pictures(5, 3, side, side + 1)
    torch.testing.assert_close(last(image.permute(0, 2, 3, 1)), first(image))
    torch.testing.assert_close(last(image.permute(0, 2, 3, 1).contiguous()), first(image))


@pytest.mark.parametrize("batch", [(), (1,), (7,), (2, 3), (0,)])
def test_batches_of_any_shape(batch):
    encoder, image = ConvEncoder(shape=(3, 12, 12)), pictures(*batch, 3, 12, 12)
    found = encoder(image)
    assert found.shape == (*batch, 128)
    torch.testing.assert_close(found.reshape(-1, 128), encoder(image.reshape(-1, 3, 12, 12)))


def test_many_pictures_are_encoded_in_parts_that_join_up(monkeypatch):
    encoder, image = ConvEncoder(shape=(3, 12, 12)), pictures(11, 3, 12, 12)
    whole, sizes, encode = encoder(image), [], encoder._encode
    monkeypatch.setattr(encoder_module, "_CHUNK", 4)
    monkeypatch.setattr(encoder, "_encode", lambda x: sizes.append(len(x)) or encode(x))
    with torch.no_grad():
        torch.testing.assert_close(encoder(image), whole)
    assert sizes == [4, 4, 3]
    # With a graph all activations are kept anyhow.
    assert encoder(image).requires_grad
    assert sizes[3:] == [11]


def test_gradients():
    encoder = ConvEncoder(shape=(2, 5, 5)).double()
    image = torch.rand(2, 2, 5, 5, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(encoder, (image,))


def test_gradients_of_weights_that_are_scaled():
    encoder, image = ConvEncoder(shape=(3, 12, 12)), pictures(4, 3, 12, 12)
    encoder(image).square().sum().backward()
    found = [param.grad.clone() for param in encoder.parameters()]
    encoder.zero_grad()
    by_hand(encoder, image.float() / 255).square().sum().backward()
    torch.testing.assert_close(found, [param.grad for param in encoder.parameters()])


def test_layers_are_orthogonal():
    encoder = ConvEncoder(shape=(3, 40, 40))
    for layer in (*encoder.convolutions, encoder.linear):
        weight = layer.weight.flatten(1)
        short = weight if weight.shape[0] <= weight.shape[1] else weight.T
        torch.testing.assert_close(short @ short.T, 2 * torch.eye(len(short)), atol=1e-4, rtol=1e-4)
        assert not layer.bias.any()


def test_a_shape_that_is_no_picture():
    with pytest.raises(ValueError, match=r"`shape` must hold three positive sizes, got `\(3, 0, 4"):
        ConvEncoder(shape=(3, 0, 4))


def test_pictures_and_vectors_are_joined_by_key():
    inputs = Inputs({"place": (), **BOTH, "map": (2, 2), "back": (8, 9, 3)})
    data = [torch.rand(5), pictures(5, 3, 12, 12), torch.rand(5, 2), torch.rand(5, 2, 2)]
    data += [pictures(5, 8, 9, 3)]
    front, back = inputs.encoders
    parts = [data[0].unsqueeze(-1), front(data[1]), data[2], data[3].flatten(1), back(data[4])]
    torch.testing.assert_close(inputs.join(data), torch.cat(parts, -1))
    assert inputs.features == 1 + 128 + 2 + 4 + 128
    assert inputs.spec_dict()["eye"] == [3, 12, 12]


def networks(observation):
    shapes = {"observation": observation, "num_cells": (8,)}
    return [
        SquashedGaussianActor(low=[-1.0], high=[1.0], **shapes),
        EnsembleCritic(action_shape=(1,), num_critics=3, **shapes),
        GaussianActor(action_shape=(1,), **shapes),
        CategoricalActor(choices=2, **shapes),
        StateValue(**shapes),
    ]


def test_networks_of_vectors_store_what_they_always_stored():
    for network in networks({"observation": (3,), "goal": (2, 2)}):
        assert all(
            name.split(".")[0] in ("net", "low", "high", "log_std") for name in network.state_dict()
        )
        assert list(network.inputs.parameters()) == []


def test_networks_of_pictures_have_one_encoder_each():
    names = {f"inputs.encoders.0.{name}" for name in ConvEncoder(shape=(3, 12, 12)).state_dict()}
    for network in networks(BOTH):
        seen = {name for name in network.state_dict() if name.startswith("inputs")}
        assert seen == names


def test_frozen_values_reach_the_action_and_no_encoder():
    critic = networks(BOTH)[1]
    seen, action = [pictures(4, 3, 12, 12), torch.rand(4, 2)], torch.rand(4, 1, requires_grad=True)
    found = critic.frozen_values(seen, action)
    torch.testing.assert_close(found, critic.values(seen, action))
    found.sum().backward()
    assert action.grad.any()
    assert all(param.grad is None for param in critic.parameters())
    critic.values(seen, action).sum().backward()
    assert all(param.grad is not None and param.grad.any() for param in critic.parameters())


def test_frozen_values_of_vectors_still_reach_the_observation():
    critic = networks({"observation": (3,)})[1]
    seen = torch.rand(4, 3, requires_grad=True)
    critic.frozen_values([seen], torch.rand(4, 1)).sum().backward()
    assert seen.grad.any()


def test_members_share_the_encoder_and_nothing_else():
    critic = networks(BOTH)[1]
    seen, action = [pictures(4, 3, 12, 12), torch.rand(4, 2)], torch.rand(4, 1)
    x = torch.cat([critic.inputs.join(seen), action], -1)
    torch.testing.assert_close(critic.values(seen, action), critic.net(x).squeeze(-1))
    assert len(critic.inputs.encoders) == 1


def test_copies_are_independent_and_casts_hold():
    inputs, data = Inputs(BOTH), [pictures(4, 3, 12, 12), torch.rand(4, 2)]
    before, copy = inputs.join(data), deepcopy(inputs)
    with torch.no_grad():
        copy.encoders[0].linear.weight.zero_()
    torch.testing.assert_close(inputs.join(data), before)
    wide = deepcopy(inputs).double().join([data[0], data[1].double()])
    torch.testing.assert_close(wide.float(), before)
