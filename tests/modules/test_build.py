"""Networks from specs, and what is said where none can be built."""

from __future__ import annotations

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium import spaces
from tensordict import unravel_key
from torchrl.envs import GymWrapper

from torchrl_elegant.envs import make_env
from torchrl_elegant.modules import (
    NormalizedActor,
    ObservationNorm,
    build_actor,
    build_categorical_actor,
    build_critic,
    build_deterministic_actor,
    build_q_network,
    build_stochastic_actor,
    build_value,
    normalizable,
    observation_shapes,
)

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


ROOM = spaces.Dict({"a": BOX, "b": spaces.Dict({"c": spaces.Box(-1.0, 1.0, (2, 2))})})


@pytest.mark.parametrize(
    ("build", "actions"),
    [
        (build_actor, BOX),
        (build_critic, BOX),
        (build_deterministic_actor, BOX),
        (build_stochastic_actor, BOX),
        (build_value, BOX),
        (build_stochastic_actor, spaces.Discrete(3)),
        (build_categorical_actor, spaces.Discrete(3)),
        (build_q_network, spaces.Discrete(3)),
    ],
)
def test_networks_read_the_observations_that_are_asked_for(build, actions):
    env = toy(2, observation_space=ROOM, action_space=actions)
    data = env.rollout(3)
    for in_keys in ([("b", "c")], [("b", "c"), "a"], [("a",)]):
        network = build(env, num_cells=(8,), in_keys=in_keys)
        read = [key for key in network.in_keys if key != "action"]
        assert read == [unravel_key(key) for key in in_keys]
        network(data.select(*network.in_keys))
    assert {*build(env, num_cells=(8,)).in_keys} >= {"a", ("b", "c")}
    with pytest.raises(ValueError, match=r"`in_keys` must be among .*, got \('b', 'd'\)"):
        build(env, in_keys=[("b", "d")])


def test_what_a_critic_reads_beside_the_actor_is_normalized_for_it_alone():
    env = toy(2, observation_space=ROOM)
    actor, critic = build_actor(env, in_keys=["a"]), build_value(env, in_keys=["a", ("b", "c")])
    keys = [*actor.in_keys, *critic.in_keys]
    # A matrix is no vector, and so keeps its units.
    assert normalizable(env, keys) == {"a": (2,)}
    norm = ObservationNorm({"a": (2,), ("b", "c"): (2, 2)})
    norm.fit(("b", "c"), torch.ones(2, 2), torch.ones(2, 2))
    norm.fit("a", torch.ones(2), torch.full((2,), 4.0))
    policy = NormalizedActor(actor, norm)
    data = env.reset()
    # The policy is shown what it reads, and needs nothing else.
    torch.manual_seed(0)
    acted = policy(data.select("a"))["action"]
    torch.manual_seed(0)
    torch.testing.assert_close(acted, actor.act((data["a"] - 1.0) / 2.0))


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
