"""A policy over the steps of one rollout is the policy."""

from __future__ import annotations

import math

import pytest
import torch
from tensordict import TensorDict
from torch import nn
from torchrl.envs.utils import ExplorationType, set_exploration_type

from torchrl_elegant.modules import CategoricalActor, GaussianActor

SHAPES = {"observation": (3,), "goal": (2, 2)}
FRAMES, COUNT = 6, 5


def observations():
    generator = torch.Generator().manual_seed(1)
    shapes = SHAPES.values()
    return [torch.randn(FRAMES, COUNT, *shape, generator=generator) for shape in shapes]


def actors():
    torch.manual_seed(0)
    made = [
        GaussianActor(observation=SHAPES, action_shape=(2,), log_std=-0.3),
        GaussianActor(observation=SHAPES, action_shape=(2, 2), activation="gelu"),
        CategoricalActor(observation=SHAPES, choices=4),
        CategoricalActor(observation=SHAPES, choices=4, form="categorical", num_cells=(8,)),
    ]
    for actor in made:
        for param in actor.parameters():
            nn.init.normal_(param, std=0.5)
    return made


def play(actor):
    """The rollout's outputs by key, and what each step gave."""
    seen = observations()
    rollout = actor.rollout(frames=FRAMES, count=COUNT)
    with torch.inference_mode():
        given = [rollout.act(t, *(x[t] for x in seen)).clone() for t in range(FRAMES)]
    data = TensorDict(dict(zip(SHAPES, seen, strict=True)), [FRAMES, COUNT])
    for key, value in zip(actor.out_keys, rollout.outputs(), strict=True):
        data.set(key, value)
    return data, torch.stack(given)


@pytest.mark.parametrize("actor", actors(), ids=lambda actor: type(actor).__name__)
def test_log_probabilities_are_those_of_the_actions_taken(actor):
    data, given = play(actor)
    assert torch.equal(data["action"], given)
    dist = actor.get_dist(data)
    torch.testing.assert_close(data["action_log_prob"], dist.log_prob(data["action"]))
    step = actor(data[0].clone())
    assert step["action"].shape == data["action"][0].shape
    assert step["action"].dtype == data["action"].dtype
    assert not any(value.requires_grad for value in data.values())


def test_gaussian_actions_have_the_actor_s_mean_and_spread():
    actor = actors()[0]
    rollout = actor.rollout(frames=1, count=20_000)
    x = [torch.randn(1, *shape).expand(20_000, *shape) for shape in SHAPES.values()]
    action = rollout.act(0, *x)
    head = actor.head(x)
    tolerance = 4 * head.log_std.exp() / math.sqrt(20_000)
    assert ((action.mean(0) - head.loc[0]).abs() < tolerance).all()
    torch.testing.assert_close(action.std(0), head.log_std.exp(), rtol=0.03, atol=0)


def test_choices_are_as_frequent_as_the_actor_has_them():
    actor = actors()[3]
    rollout = actor.rollout(frames=1, count=20_000)
    x = [torch.randn(1, *shape).expand(20_000, *shape) for shape in SHAPES.values()]
    found = rollout.act(0, *x).bincount(minlength=4) / 20_000
    torch.testing.assert_close(found, actor.head(x).log_probs[0].exp(), rtol=0, atol=0.015)


@pytest.mark.parametrize("actor", actors(), ids=lambda actor: type(actor).__name__)
def test_every_step_environment_and_rollout_has_noise_of_its_own(actor):
    for param in actor.parameters():
        nn.init.zeros_(param)
    first, second = play(actor)[0]["action"].float(), play(actor)[0]["action"].float()
    assert not torch.equal(first, second)
    assert len({tuple(step.flatten().tolist()) for step in first}) > 1
    assert len({tuple(env.flatten().tolist()) for env in first.unbind(1)}) > 1


def test_there_is_none_where_the_mode_is_wanted_or_the_network_is_another():
    actor = actors()[0]
    with set_exploration_type(ExplorationType.DETERMINISTIC):
        assert actor.rollout(frames=2, count=2) is None
    actor.net = nn.Sequential(actor.net)
    assert actor.rollout(frames=2, count=2) is None
