"""The squashed Gaussian actor."""

from __future__ import annotations

import pickle
from copy import deepcopy

import pytest
import torch
from tensordict import TensorDict
from torchrl.envs.utils import ExplorationType, set_exploration_type
from torchrl.modules import TanhNormal

from torchrl_elegant.modules import ACTIVATIONS, SquashedGaussianActor


def make_actor(observation=None, low=(-2.0, -1.0), high=(1.0, 3.0), **options):
    return SquashedGaussianActor(
        observation=observation or {"observation": (3,)},
        low=low,
        high=high,
        num_cells=(8,),
        **options,
    )


def state(*shape):
    return TensorDict({"observation": torch.randn(*shape, 3)}, shape)


BOUNDS = pytest.mark.parametrize(
    ("low", "high"),
    [((-1.0, -1.0), (1.0, 1.0)), ((-2.0, -1.0), (1.0, 3.0)), ((0.0, 0.0), (9.0, 1.0))],
)


@BOUNDS
def test_density_is_torchrls(low, high):
    actor, data = make_actor(low=low, high=high).double(), state(64).double()
    action, log_prob = actor.sample([data["observation"]])
    assert ((action > actor.low) & (action < actor.high)).all()
    torch.testing.assert_close(actor.get_dist(data).log_prob(action), log_prob)
    loc, log_std = actor.parameters_of([data["observation"]])
    other = TanhNormal(loc, log_std.exp(), low=torch.tensor(low), high=torch.tensor(high))
    torch.testing.assert_close(other.log_prob(action), log_prob)


@BOUNDS
def test_same_noise_same_action_as_torchrl(low, high):
    actor, data = make_actor(low=low, high=high), state(64)
    torch.manual_seed(0)
    action, log_prob = actor.sample([data["observation"]])
    torch.manual_seed(0)
    with set_exploration_type(ExplorationType.RANDOM):
        acted = actor(data.clone())["action"]
    torch.manual_seed(0)
    expected = actor.get_dist(data).rsample()
    torch.testing.assert_close(action, expected)
    torch.testing.assert_close(acted, expected)
    torch.testing.assert_close(
        actor.get_dist(data).log_prob(expected), log_prob, atol=1e-4, rtol=1e-4
    )


@BOUNDS
@pytest.mark.parametrize("kind", ["DETERMINISTIC", "MODE", "MEAN"])
def test_mode(low, high, kind):
    actor, data = make_actor(low=low, high=high), state(5)
    with set_exploration_type(ExplorationType[kind]):
        action = actor(data)["action"]
        assert torch.equal(action, actor(data.clone())["action"])
    torch.testing.assert_close(action, actor.get_dist(data).deterministic_sample)


@pytest.mark.parametrize("kind", [None, ExplorationType.RANDOM])
def test_samples_where_nothing_else_is_said(kind):
    actor, data = make_actor(), state(5)
    with set_exploration_type(kind):
        assert not torch.equal(actor(data)["action"], actor(data.clone())["action"])


@pytest.mark.parametrize("shape", [(), (5,), (4, 5), (2, 4, 5)])
def test_batch_dimensions(shape):
    actor = make_actor()
    assert actor(state(*shape))["action"].shape == (*shape, 2)
    action, log_prob = actor.sample([torch.randn(*shape, 3)])
    assert action.shape == (*shape, 2)
    assert log_prob.shape == shape
    assert actor.act(torch.randn(*shape, 3)).shape == (*shape, 2)


def test_nested_and_image_like_observations():
    shapes = {("robot", "joints"): (4,), "map": (2, 3), ("robot", "speed"): (1,)}
    actor = make_actor(shapes, action_key=("robot", "move"))
    data = TensorDict(
        {
            "robot": {"joints": torch.randn(5, 4), "speed": torch.randn(5, 1)},
            "map": torch.randn(5, 2, 3),
        },
        [5],
    )
    assert actor(data)["robot", "move"].shape == (5, 2)
    assert actor.in_keys == list(shapes)
    parts = [data["robot", "joints"], data["map"].flatten(1), data["robot", "speed"]]
    loc = actor.net(torch.cat(parts, -1))[:, :2]
    torch.testing.assert_close(actor.get_dist(data).loc, loc)


def test_actions_of_several_dimensions():
    actor = make_actor(low=-torch.ones(2, 3), high=2 * torch.ones(2, 3))
    action, log_prob = actor.sample([torch.randn(5, 3)])
    assert action.shape == (5, 2, 3)
    assert log_prob.shape == (5,)


def test_log_std_is_held():
    actor = make_actor()
    for value in (-1e3, 1e3):
        actor.net.layers[-1].bias.data[2:] = value
        action, log_prob = actor.sample([torch.randn(5, 3)])
        assert torch.isfinite(action).all()
        assert torch.isfinite(log_prob).all()


def test_starts_near_the_middle():
    with set_exploration_type(ExplorationType.MODE):
        action = make_actor()(state(100))["action"]
    assert (action - torch.tensor([-0.5, 1.0])).abs().max() < 0.1


def test_built_again_from_its_spec():
    actor = make_actor(
        {"observation": (3,), ("a", "b"): (2, 2)}, activation="tanh", action_key="move"
    )
    other = SquashedGaussianActor(**actor.spec_dict())
    other.load_state_dict(actor.state_dict())
    assert other.spec_dict() == actor.spec_dict()
    observation = [torch.randn(5, 3), torch.randn(5, 2, 2)]
    torch.testing.assert_close(other.parameters_of(observation), actor.parameters_of(observation))


@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("copy", [deepcopy, lambda actor: pickle.loads(pickle.dumps(actor))])
def test_copies_act_alike(activation, copy):
    actor, data = make_actor(activation=activation), state(5)
    actions = []
    for each in (actor, copy(actor)):
        torch.manual_seed(0)
        actions.append(each(data.clone())["action"])
    assert torch.equal(*actions)


@pytest.mark.parametrize(
    ("low", "high"), [([-1.0], [float("inf")]), ([1.0], [1.0]), ([float("nan")], [1.0])]
)
def test_bounds_must_be_bounds(low, high):
    with pytest.raises(ValueError, match="bounded action space"):
        make_actor(low=low, high=high)


def test_unknown_activation():
    with pytest.raises(ValueError, match=r"`activation` must be one of .*, got `swash`"):
        make_actor(activation="swash")
