"""Whole runs that see: pictures and dict observations, from the environment to the policy file."""

from __future__ import annotations

import copy
from dataclasses import replace
from functools import partial
from pathlib import Path

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium import spaces
from pixel_toys import Film
from tensordict import TensorDict
from torchrl.data import LazyTensorStorage, TensorDictReplayBuffer
from torchrl.envs.utils import ExplorationType, set_exploration_type

from torchrl_elegant.algorithms import PPOConfig, SACConfig
from torchrl_elegant.collectors import AsyncCollector, SyncCollector
from torchrl_elegant.config.text import UsageError
from torchrl_elegant.envs import Pixels, make_env
from torchrl_elegant.modules import build_actor, build_stochastic_actor
from torchrl_elegant.runs.evaluate import evaluate, film
from torchrl_elegant.runs.policy import Policy
from torchrl_elegant.runs.train import resume, train

OFF = SACConfig(num_cells=(8,), batch_size=8, warmup=20, buffer_size=200)
ON = PPOConfig(num_cells=(8,), batch_size=8, epochs=2)


class Rooms(gymnasium.Env):
    """Everything that can be joined: nested vectors, a choice, a bare number."""

    observation_space = spaces.Dict(
        arm=spaces.Dict(angle=spaces.Box(-1, 1, (2,)), torque=spaces.Box(-1, 1, (2, 2))),
        room=spaces.Discrete(3),
        height=spaces.Box(-1, 1, ()),
    )
    action_space = spaces.Box(-1.0, 1.0, (1,), np.float32)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.number = 0
        return self._observe(), {}

    def step(self, action):
        self.number += 1
        return self._observe(), 0.0, False, self.number == 5, {}

    def _observe(self):
        draw = self.np_random.uniform
        arm = {"angle": np.float32(draw(-1, 1, 2)), "torque": np.float32(draw(-1, 1, (2, 2)))}
        return {"arm": arm, "room": self.np_random.integers(3), "height": np.float32(draw(-1, 1))}


KEYS = [("arm", "angle"), ("arm", "torque"), "room", "height"]


@pytest.fixture
def go(tmp_path: Path):
    def start(config, env, **run):
        settings = {
            "total_frames": 80,
            "num_envs": 2,
            "frames_per_batch": 20,
            "eval_episodes": 2,
            "eval_interval": 40,
            "checkpoint_interval": 40,
            "logger": "none",
            "progress": False,
            "folder": str(tmp_path / "run"),
        }
        return train(config, env, **{**settings, **run})

    return start


def best_action(policy: Policy, entries: dict) -> np.ndarray:
    """By hand: what the actor says of tensors in the form that collectors give it."""
    data = TensorDict()
    for key, value in entries.items():
        data.set(key, value)
    with torch.no_grad(), set_exploration_type(ExplorationType.DETERMINISTIC):
        return policy.actor(data)["action"].numpy()


@pytest.mark.parametrize(
    "collector", [{}, {"collector": "async", "num_workers": 1}], ids=["sync", "async"]
)
def test_sac_runs_on_picture_and_vector_and_goes_on(go, collector):
    options = {"entry": "eye", "shape": [8, 8, 3], "length": 7}
    result = go(
        OFF,
        "pixel_toys:Film",
        env_kwargs=options,
        **collector,
        pixels=Pixels(grayscale=True, frame_stack=2),
        total_frames=120,
    )
    assert int(result.history[-1]["frames"]) == 120
    assert result.policy.inputs.shapes == {"eye": (2, 8, 8), "clock": (2,)}
    if not collector:
        further = resume(result.folder, total_frames=160)
        assert int(further.history[-1]["frames"]) == 160
    evaluation = evaluate(result.folder, episodes=3)
    assert evaluation.lengths == (7, 7, 7)


def test_ppo_runs_on_what_is_drawn_and_goes_on(go):
    picture = Pixels(source="render", resize=6, grayscale=True, frame_stack=2)
    result = go(ON, "pixel_toys:Choices", env_kwargs={"length": 7}, pixels=picture)
    assert result.policy.inputs.shapes == {"observation": (2, 6, 6)}
    before = copy.deepcopy(result.policy.state_dict())
    further = resume(result.folder, total_frames=120)
    assert int(further.history[-1]["frames"]) == 120
    name = "inputs.encoders.0.convolutions.0.weight"
    assert not torch.equal(before[name], further.policy.state_dict()[name])
    told = r"`pixels` must stay .*frame_stack=2.* when a run goes on, got .*frame_stack=3"
    with pytest.raises(UsageError, match=told):
        resume(result.folder, total_frames=160, pixels=replace(picture, frame_stack=3))


def test_a_film_shows_the_policy_what_it_was_trained_on(go):
    pixels = Pixels(source="render", resize=16, grayscale=True, frame_stack=2)
    result = go(ON, "CartPole-v1", pixels=pixels)
    assert film(result.folder).stat().st_size > 1_000


@pytest.mark.parametrize("shape", [(8, 8, 3), (3, 8, 8)], ids=["last", "first"])
def test_a_policy_takes_bytes_as_the_environment_gives_them(go, shape):
    result = go(OFF, "pixel_toys:Film", env_kwargs={"shape": list(shape)})
    policy = Policy.load(result.folder / "policy.pt")
    assert policy.metadata["pixels"] is None
    picture = np.random.default_rng(0).integers(256, size=shape, dtype=np.uint8)
    found = policy(picture)
    np.testing.assert_allclose(
        found, best_action(policy, {"observation": torch.from_numpy(picture)}), rtol=1e-5
    )
    # Numbers that are not scaled would be another picture.
    scaled = policy(picture.astype(np.float32) / 255)
    np.testing.assert_allclose(found, scaled, rtol=1e-3, atol=1e-5)
    several = policy(np.stack([picture, picture]))
    np.testing.assert_allclose(several, np.stack([found, found]), rtol=1e-4, atol=1e-6)


def test_the_policy_file_says_how_to_see(go):
    pixels = Pixels(source="render", resize=6, frame_stack=2)
    result = go(OFF, "pixel_toys:Film", pixels=pixels)
    policy = Policy.load(result.folder / "policy.pt")
    seen = Pixels(**policy.metadata["pixels"])
    assert seen == pixels
    env = seen.wrap(Film(render_mode="rgb_array"))
    observation, _ = env.reset()
    action = policy(observation)
    assert env.action_space.contains(action)
    assert env.step(action)[0].shape == (6, 6, 6)


@pytest.mark.parametrize("config", [OFF, ON], ids=["sac", "ppo"])
def test_entries_of_a_dict_are_joined_by_key(go, config):
    result = go(config, Rooms)
    assert result.policy.in_keys == KEYS
    policy, observation = Policy.load(result.folder / "policy.pt"), Rooms().reset(seed=3)[0]
    arm = {name: torch.from_numpy(value) for name, value in observation["arm"].items()}
    room = torch.nn.functional.one_hot(torch.tensor(observation["room"]), 3).float()
    height = torch.tensor([observation["height"]])
    entries = {KEYS[0]: arm["angle"], KEYS[1]: arm["torque"], "room": room, "height": height}
    expected = np.clip(best_action(policy, entries), -1, 1)
    np.testing.assert_allclose(policy(observation), expected, rtol=1e-5, atol=1e-6)
    # Entries are found by name, whatever their order.
    turned = dict(reversed([*observation.items()]))
    np.testing.assert_array_equal(policy(turned), policy(observation))


def test_rollouts_of_pictures_are_lean_and_hold_bytes():
    for build in (build_actor, build_stochastic_actor):
        env = make_env(partial(Film, entry="eye"), 2, pixels=Pixels(frame_stack=2))
        actor = build(env, num_cells=(8,))
        collector = SyncCollector(env, actor, frames_per_batch=8, total_frames=8)
        (batch,) = collector
        assert collector.is_lean
        # Called on tensors, without a TensorDict around them.
        assert collector._fast._direct is not None
        assert batch["eye"].dtype == batch["next", "eye"].dtype == torch.uint8


def test_workers_leave_bytes_and_the_buffer_keeps_them():
    storage = LazyTensorStorage(64)
    buffer = TensorDictReplayBuffer(storage=storage, batch_size=4)
    make = partial(make_env, partial(Film, entry="eye"), 2, pixels=Pixels(frame_stack=2))
    actor = build_actor(make(), num_cells=(8,))
    keys = ["eye", "clock", "action", ("next", "eye"), ("next", "reward")]
    with AsyncCollector(
        make,
        actor,
        num_workers=1,
        replay_buffer=buffer,
        frames_per_batch=8,
        total_frames=32,
        keys=keys,
    ) as collector:
        staged = collector._writer._rings._table
        assert staged["eye"].dtype == torch.uint8
        collector.start()
        assert collector.wait_for(32, timeout=60)
    rows = buffer[:]
    assert rows["eye"].dtype == rows["next", "eye"].dtype == torch.uint8
    assert storage._storage["eye"].element_size() == 1
    # Every plane of a frame is one number, and the next stack begins where this one ends.
    assert torch.equal(rows["eye"][:, 3:, 0, 0], rows["next", "eye"][:, :3, 0, 0])
