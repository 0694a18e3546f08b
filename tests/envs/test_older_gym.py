"""Environments with Gym's older interface are refused, with the way out."""

from __future__ import annotations

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from toys import Counter

from torchrl_elegant.collectors import SyncCollector
from torchrl_elegant.config.text import UsageError
from torchrl_elegant.envs import Pixels, make_env
from torchrl_elegant.envs.gymnasium import Simulators


class Bare(Counter):
    """`reset` returns an observation of two entries alone, as (observation, info) looks."""

    observation_space = spaces.Box(-np.inf, np.inf, (2,), np.float64)

    def _observe(self):
        return super()._observe()[:2]

    def reset(self, **kwargs):
        return super().reset(**kwargs)[0]


class Pair(Bare):
    def reset(self, **kwargs):
        return tuple(super().reset(**kwargs))


class Unseeded(Counter):
    def reset(self):
        return super().reset()[0]


class Four(Counter):
    def step(self, action):
        observation, reward, terminated, truncated, info = super().step(action)
        return observation, reward, terminated or truncated, info


class Six(Counter):
    def step(self, action):
        return *super().step(action), "more"


class Nothing(Counter):
    def step(self, action):
        return None


class Unpacks(Counter):
    """Takes something apart itself, and fails."""

    def step(self, action):
        a, b, c, d, e = range(4)
        return a, b, c, d, e


class Options(Counter):
    """Has an error of its own that looks like ours."""

    def reset(self, *, seed=None, options=None):
        return self.inner_reset(seed=seed)

    def inner_reset(self):
        return None


@pytest.mark.parametrize("wrap", [lambda env: env, gymnasium.wrappers.OrderEnforcing])
@pytest.mark.parametrize("kind", [Bare, Pair])
def test_a_reset_without_info_is_refused(kind, wrap):
    with pytest.raises(UsageError, match=rf"`reset` of {kind.__name__} must return .*shimmy"):
        make_env(lambda: wrap(kind())).reset()


def test_a_reset_without_a_seed_is_refused():
    with pytest.raises(UsageError, match=r"`reset` of Unseeded must take seed .*shimmy"):
        make_env(Unseeded).reset()


def test_pictures_are_no_way_around():
    class Drawn(Bare):
        observation_space = spaces.Box(0, 255, (4, 4, 3), np.uint8)

        def _observe(self):
            return np.zeros((4, 4, 3), np.uint8)

    with pytest.raises(UsageError, match="`reset` of Drawn must return"):
        make_env(Drawn, pixels=Pixels(grayscale=True)).reset()


@pytest.mark.parametrize(
    ("kind", "got"), [(Four, "got 4 values"), (Six, "more than five"), (Nothing, "non-iterable")]
)
@pytest.mark.parametrize("how", ["step", "collect"])
def test_a_step_of_other_than_five_values_is_refused(kind, got, how):
    env = make_env(kind, 2)
    collector = SyncCollector(env, frames_per_batch=4, total_frames=4)
    act = {"step": lambda: env.rollout(1), "collect": lambda: next(iter(collector))}[how]
    with pytest.raises(UsageError, match=rf"`step` of {kind.__name__} must return .*{got}"):
        act()


def test_errors_inside_an_environment_stay_its_own():
    with pytest.raises(ValueError, match="expected 5, got 4") as error:
        make_env(Unpacks, 1).rollout(1)
    assert not isinstance(error.value, UsageError)
    with pytest.raises(TypeError, match="unexpected keyword argument 'seed'") as refused:
        make_env(Options, 1).reset()
    assert not isinstance(refused.value, UsageError)


def test_an_environment_of_the_package_gym_is_refused():
    old = type("Old", (), {"__module__": "gym.envs.classic"})
    with pytest.raises(TypeError, match="of the older package gym; return shimmy"):
        Simulators(factories=[old], seeds=[0], discrete_actions="one_hot")
