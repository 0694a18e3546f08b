"""Networks from specs, and what is said where none can be built."""

from __future__ import annotations

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium import spaces
from torchrl.envs import GymWrapper

from torchrl_elegant.envs import make_env
from torchrl_elegant.modules import build_actor, build_critic, observation_shapes

BOX = spaces.Box(-1.0, 1.0, (2,))


class Toy(gymnasium.Env):
    def __init__(self, observation_space=BOX, action_space=BOX):
        self.observation_space, self.action_space = observation_space, action_space

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return self.observation_space.sample(), {}

    def step(self, action):
        return self.observation_space.sample(), 0.0, False, False, {}


def toy(num_envs=None, **space):
    return make_env(lambda: Toy(**space), num_envs)


@pytest.mark.parametrize("num_envs", [None, 1, 3])
@pytest.mark.parametrize(
    "space",
    [
        BOX,
        spaces.Box(-np.inf, np.inf, (2, 3)),
        spaces.Dict({"a": BOX, "b": spaces.Dict({"c": spaces.Box(-1.0, 1.0, (2, 2))})}),
        spaces.Discrete(4),
        spaces.Box(0, 255, (6,), dtype=np.uint8),
        spaces.Box(0, 255, (8, 8, 3), dtype=np.uint8),
        spaces.Dict({"eye": spaces.Box(0, 255, (1, 40, 36), dtype=np.uint8), "arm": BOX}),
    ],
    ids=["vector", "matrix", "dict", "discrete", "bytes", "picture", "picture and vector"],
)
def test_networks_fit_the_environment(space, num_envs):
    env = toy(num_envs, observation_space=space)
    actor, critic = build_actor(env, num_cells=(8,)), build_critic(env, num_cells=(8,))
    data = env.rollout(3, actor)
    data = critic(data)
    assert data["state_action_value"].shape == (*data.shape, 2)
    assert not {"step_count", "episode_reward"} & set(actor.in_keys)


def test_shapes_leave_the_bookkeeping_out():
    assert observation_shapes(toy(3)) == {"observation": (2,)}


def test_bounds_are_the_environments():
    space = spaces.Box(np.array([-2.0, 0.0], "f4"), np.array([1.0, 5.0], "f4"))
    actor = build_actor(GymWrapper(Toy(action_space=space)), num_cells=(8,))
    assert actor.low.tolist() == [-2.0, 0.0]
    assert actor.high.tolist() == [1.0, 5.0]


@pytest.mark.parametrize("build", [build_actor, build_critic])
@pytest.mark.parametrize(
    ("space", "message"),
    [
        (spaces.Discrete(4), "continuous action space, got `.*` with 4 choices"),
        (spaces.Box(-np.inf, np.inf, (2,)), "bounded action space, got `Unbounded.*RescaleAction"),
        (spaces.Box(-1.0, np.inf, (2,)), "bounded action space"),
    ],
)
def test_action_spaces_that_cannot_be(build, space, message):
    with pytest.raises(ValueError, match=message):
        build(toy(action_space=space))


@pytest.mark.parametrize("build", [build_actor, build_critic])
@pytest.mark.parametrize("shape", [(8, 8), (2, 8, 8, 3)])
def test_whole_numbers_that_are_neither_vector_nor_picture(build, shape):
    pixels = spaces.Box(0, 255, shape, dtype=np.uint8)
    with pytest.raises(ValueError, match="must be a vector or a picture with its channels, got sh"):
        build(toy(observation_space=pixels))


def test_initialisation_follows_the_seed():
    env, built = toy(), []
    for _ in range(2):
        torch.manual_seed(3)
        built.append(build_critic(env, num_cells=(8,)).state_dict())
    torch.testing.assert_close(*built, atol=0.0, rtol=0.0)
