"""Pictures: rendered, in grayscale, smaller, in stacks that no two episodes share."""

from __future__ import annotations

import pickle
from functools import partial

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium import spaces
from pixel_toys import Film
from torchrl.collectors import Collector
from torchrl.envs import GymEnv

from torchrl_elegant.collectors import SyncCollector
from torchrl_elegant.envs import Pixels, make_env
from torchrl_elegant.functional import area_weights


class Still(gymnasium.Env):
    """One picture, always."""

    action_space = spaces.Box(-1.0, 1.0, (1,), np.float32)

    def __init__(self, picture: np.ndarray) -> None:
        self.picture = picture
        most = 255 if picture.dtype == np.uint8 else 1.0
        self.observation_space = spaces.Box(0, most, picture.shape, picture.dtype)

    def reset(self, *, seed=None, options=None):
        return self.picture, {}

    def step(self, action):
        return self.picture, 0.0, False, False, {}


def seen(picture: np.ndarray, **options) -> np.ndarray:
    env = Pixels(**options).wrap(Still(picture))
    observation, _ = env.reset()
    assert env.observation_space.contains(observation)
    return observation


def noise(*shape: int) -> np.ndarray:
    return np.random.default_rng(0).integers(256, size=shape, dtype=np.uint8)


def stacks(data: torch.Tensor) -> list[list[int]]:
    """Of pictures `[*B, frames, h, w]` of one number each, the numbers."""
    assert (data == data[..., :1, :1]).all()
    return data[..., 0, 0].reshape(-1, data.shape[-3]).tolist()


def test_pictures_leave_with_their_channels_first():
    picture = noise(6, 5, 3)
    np.testing.assert_array_equal(seen(picture, frame_stack=1), picture.transpose(2, 0, 1))
    np.testing.assert_array_equal(seen(picture.transpose(2, 0, 1)), picture.transpose(2, 0, 1))
    # A matrix of bytes has one channel.
    np.testing.assert_array_equal(seen(picture[..., 0], frame_stack=1), picture[None, ..., 0])


def test_grey_is_brightness():
    picture = noise(6, 5, 3)
    expected = np.rint(picture.astype(np.float64) @ [0.299, 0.587, 0.114])
    found = seen(picture, grayscale=True)
    assert found.shape == (1, 6, 5)
    assert found.dtype == np.uint8
    assert np.abs(found[0] - expected).max() <= 1
    white = np.full((6, 5, 3), 255, np.uint8)
    assert (seen(white, grayscale=True, resize=4) == 255).all()
    one = noise(6, 5, 1)
    np.testing.assert_array_equal(seen(one, grayscale=True), one.transpose(2, 0, 1))


def test_a_whole_fraction_of_the_size_is_the_mean_of_blocks():
    picture = noise(12, 8, 3)
    blocks = picture.reshape(4, 3, 4, 2, 3).mean((1, 3)).transpose(2, 0, 1)
    assert np.abs(seen(picture, resize=4) - blocks).max() <= 0.5 + 1e-4


@pytest.mark.parametrize("channels_first", [False, True])
@pytest.mark.parametrize(("height", "width"), [(7, 5), (3, 11), (4, 4)])
def test_any_size_is_the_mean_of_what_lies_under_a_pixel(height, width, channels_first):
    picture = np.random.default_rng(0).random((height, width, 2)).astype(np.float32)
    fine = picture.repeat(4, 0).repeat(
        4, 1
    )  # each pixel by 4x4: 4 new ones a side are whole blocks
    expected = fine.reshape(4, height, 4, width, 2).mean((1, 3)).transpose(2, 0, 1)
    given = picture.transpose(2, 0, 1) if channels_first else picture
    np.testing.assert_allclose(seen(given, resize=4), expected, rtol=1e-5)


def test_weights_of_an_area_add_up():
    for size, wanted in [(400, 84), (600, 84), (3, 7), (5, 5)]:
        weights = area_weights(size, wanted)
        np.testing.assert_allclose(weights.sum(1), 1.0, rtol=1e-5)
        np.testing.assert_allclose(weights.sum(0), wanted / size, rtol=1e-4)


def test_the_stack_is_oldest_first_and_memory_of_its_own():
    env = Pixels(frame_stack=3).wrap(Film(length=10))
    shown = [env.reset()[0]] + [env.step(np.zeros(1))[0] for _ in range(3)]
    # Three channels a picture, so every third plane.
    assert [list(x[::3, 0, 0]) for x in shown] == [
        [10] * 3,
        [10, 10, 11],
        [10, 11, 12],
        [11, 12, 13],
    ]
    assert shown[0].shape == (9, 6, 5)


@pytest.mark.parametrize("ends", ["terminated", "truncated"])
@pytest.mark.parametrize("collector", [SyncCollector, Collector])
def test_no_stack_joins_two_episodes(ends, collector):
    make = partial(Film, shape=(4, 4, 1), length=3, ends=ends)
    env = make_env(make, 2, pixels=Pixels(frame_stack=2))
    frames = collector(env, frames_per_batch=14, total_frames=14)
    assert not isinstance(frames, SyncCollector) or frames.is_lean
    (batch,) = frames
    # Whoever resets before the first frame has begun another episode.
    first = batch["observation"][0, 0, 0, 0, 0].item()
    k, m, n = first, first + 10, first + 20
    before = [[k, k], [k, k + 1], [k + 1, k + 2], [m, m], [m, m + 1], [m + 1, m + 2], [n, n]]
    after = [[k, k + 1], [k + 1, k + 2], [k + 2, k + 3], [m, m + 1], [m + 1, m + 2]]
    after += [[m + 2, m + 3], [n, n + 1]]
    assert stacks(batch["observation"][0]) == before
    assert stacks(batch["next", "observation"][0]) == after
    assert batch["next", ends][0].flatten().tolist() == [False, False, True] * 2 + [False]
    assert batch["observation"].dtype == torch.uint8


def test_drawn_pictures_take_the_place_of_observations():
    env = make_env(Film, 2, pixels=Pixels(source="render", grayscale=True, frame_stack=2, resize=4))
    data = env.rollout(2)
    assert data["observation"].shape == (2, 2, 2, 4, 4)
    base = data["observation"][0, 0, 0, 0, 0].item()
    assert stacks(data["next", "observation"][0]) == [[base, base + 1], [base + 1, base + 2]]


def test_a_known_simulator_is_drawn():
    pixels = Pixels(source="render", grayscale=True, resize=32, frame_stack=2)
    env = make_env("CartPole-v1", 2, seed=0, pixels=pixels)
    data = env.rollout(3)
    assert data["observation"].shape == (2, 3, 2, 32, 32)
    assert data["observation"].dtype == torch.uint8
    first = data["observation"][:, 0]
    assert torch.equal(first[:, 0], first[:, 1])
    assert not torch.equal(data["observation"][:, 2, 0], data["observation"][:, 2, 1])
    assert data["observation"].float().std() > 5
    env.close()


def test_the_picture_in_a_dict_is_treated_alone():
    env = make_env(partial(Film, entry="eye"), 1, pixels=Pixels(grayscale=True, frame_stack=2))
    data = env.rollout(3)
    assert data["eye"].shape == (1, 3, 2, 6, 5)
    assert data["clock"].shape == (1, 3, 2)
    assert data["next", "clock"][0, :, 1].tolist() == [1, 2, 3]


def test_both_backends_show_the_same():
    shown = []
    for backend in ("vector", "parallel"):
        make = partial(Film, shape=(4, 4, 1), length=3)
        env = make_env(make, 2, seed=0, backend=backend, pixels=Pixels(frame_stack=2))
        env.reset()
        shown.append(env.rollout(2)["next", "observation"])
        env.close()
    offset = shown[0][0, 0, 0, 0, 0].int() - shown[1][0, 0, 0, 0, 0].int()
    assert torch.equal(shown[0].int() - offset, shown[1].int())


def test_it_can_be_pickled():
    pixels = Pixels(source="render", resize=84)
    assert pickle.loads(pickle.dumps(pixels)) == pixels


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"source": "film"}, "`source` must be one of observed, render, got `film`"),
        ({"frame_stack": 0}, "`frame_stack` must be an integer of 1 or more, got `0`"),
        ({"frame_stack": None}, "`frame_stack` must be an integer of 1 or more, got `None`"),
        ({"resize": 84.0}, "`resize` must be an integer of 1 or more, or none, got `84.0`"),
        ({"resize": True}, "`resize` must be an integer"),
        ({"grayscale": 1}, "`grayscale` must be true or false, got `1`"),
    ],
)
def test_wrong_options_are_named(options, message):
    with pytest.raises(ValueError, match=message):
        Pixels(**options)


@pytest.mark.parametrize(
    ("make", "pixels", "message"),
    [
        (
            "CartPole-v1",
            Pixels(frame_stack=4),
            "`pixels` must be None for CartPole-v1, .* pixels.source=re",
        ),
        (partial(GymEnv, "CartPole-v1"), Pixels(frame_stack=4), "append TorchRL's transforms"),
        (
            partial(Film, shape=(8, 8, 2)),
            Pixels(grayscale=True),
            "`grayscale` must be false for Film, .* 2 ch",
        ),
    ],
    ids=["no picture", "torchrl", "two colours"],
)
def test_environments_that_cannot_be_seen(make, pixels, message):
    with pytest.raises(ValueError, match=message):
        make_env(make, 1, pixels=pixels)


def test_an_environment_that_does_not_draw():
    with pytest.raises(
        ValueError, match=r"`render_mode` of Film must be rgb_array to .* got `None`"
    ):
        Pixels(source="render").wrap(Film())
