"""Evaluation of a policy, and the statistics of what it found."""

from __future__ import annotations

import math
from functools import partial

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium import spaces
from tensordict.nn import TensorDictModuleBase
from torch import nn
from torchrl.envs import GymWrapper
from torchrl.envs.utils import ExplorationType, exploration_type

from torchrl_elegant.envs import make_env
from torchrl_elegant.modules import build_stochastic_actor
from torchrl_elegant.trainers import evaluation as play
from torchrl_elegant.trainers.evaluation import (
    Evaluation,
    PolicyEvaluator,
    student_t95,
)


class Counting(gymnasium.Env):
    """Episodes of 2, 5, 2, 5, ... steps; the reward of a step is the action.

    Every other episode is cut off instead of ending.
    """

    def __init__(self):
        self.observation_space = spaces.Box(-1.0, 1.0, (1,))
        self.action_space = spaces.Box(-1.0, 1.0, (1,))
        self.episode = 0

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.episode, self.left = self.episode + 1, 2 if self.episode % 2 == 0 else 5
        return np.zeros(1, np.float32), {}

    def step(self, action):
        self.left -= 1
        over, odd = self.left == 0, self.episode % 2 == 1
        return np.zeros(1, np.float32), float(action[0]), over and odd, over and not odd, {}


class Policy(TensorDictModuleBase):
    def __init__(self):
        super().__init__()
        self.in_keys, self.out_keys = ["observation"], ["action"]
        self.level = nn.Parameter(torch.tensor(0.5))
        self.kinds = []

    def forward(self, tensordict):
        self.kinds.append(exploration_type())
        action = self.level.expand(*tensordict.shape, 1)
        return tensordict.set("action", action.detach().clone())


@pytest.fixture(params=[None, 1])
def evaluator(request):
    policy = Policy()
    env = make_env(Counting, request.param)
    yield PolicyEvaluator(env, policy, episodes=4), policy
    env.close()


def test_every_episode_counts_once(evaluator):
    evaluator, policy = evaluator
    result = evaluator.evaluate()
    assert sorted(result.lengths) == [2, 2, 5, 5]
    assert sorted(result.returns) == pytest.approx([1.0, 1.0, 2.5, 2.5])
    policy.kinds.clear()  # of the collector's own trial call
    evaluator.evaluate()
    assert set(policy.kinds) == {ExplorationType.DETERMINISTIC}


def test_present_weights_count_and_nothing_is_left_over(evaluator):
    evaluator, policy = evaluator
    evaluator.evaluate()
    for level in (-0.25, 1.0):
        policy.level.data.fill_(level)
        result = evaluator.evaluate()
        assert len(result.returns) == 4
        assert [
            r / n for r, n in zip(result.returns, result.lengths, strict=True)
        ] == pytest.approx([level] * 4)


def test_learning_goes_on_as_if_not_evaluated(evaluator):
    evaluator, policy = evaluator
    mode = policy.training
    evaluator.evaluate()
    assert policy.training is mode
    assert policy.level.requires_grad


def endless(count=2):
    return make_env(partial(gymnasium.make, "Pendulum-v1", max_episode_steps=10**9), count)


def test_episodes_without_an_end_are_left_when_somebody_asks():
    env = endless()
    evaluator = PolicyEvaluator(env, build_stochastic_actor(env), episodes=2)
    asked = []

    def stop():
        asked.append(None)
        return len(asked) == 4

    with pytest.raises(play.PlayStopped):
        evaluator.evaluate(stop)


def wrapped():
    """The same as an environment of TorchRL's."""
    return GymWrapper(Counting())


@pytest.mark.parametrize("factory", [Counting, wrapped])
@pytest.mark.parametrize(("envs", "episodes"), [(2, 4), (3, 4), (4, 3), (1, 3)])
def test_side_by_side_each_environment_plays_its_share(factory, envs, episodes):
    # Every environment plays 2, 5, 2, 5, ... steps: the first to finish are not the ones counted.
    env = make_env(factory, envs)
    evaluator = PolicyEvaluator(env, Policy(), episodes=episodes)
    result = evaluator.evaluate()
    assert sorted(result.lengths) == expected_lengths(envs, episodes)
    assert list(result.returns) == pytest.approx([0.5 * length for length in result.lengths])
    assert len(evaluator.evaluate().lengths) == episodes
    env.close()


def expected_lengths(envs, episodes):
    shares = [episodes // envs + (row < episodes % envs) for row in range(envs)]
    return sorted(2 if number % 2 == 0 else 5 for share in shares for number in range(share))


def test_statistics():
    found = Evaluation(returns=(1.0, 2.0, 4.0, 5.0), lengths=(1, 2, 3, 6))
    assert found.return_mean == 3.0
    assert found.return_std == pytest.approx(np.std([1, 2, 4, 5], ddof=1))
    assert found.return_ci95 == pytest.approx(3.182 * found.return_std / 2, rel=0.01)
    assert found.length_mean == 3.0


def test_a_single_episode_says_nothing_of_the_spread():
    found = Evaluation(returns=(1.0,), lengths=(1,))
    assert found.return_std == 0.0
    assert found.return_ci95 == math.inf


@pytest.mark.parametrize(
    ("freedom", "quantile"),
    [(1, 12.706), (2, 4.303), (3, 3.182), (4, 2.776), (9, 2.262), (30, 2.042), (10**6, 1.960)],
)
def test_quantiles_of_students_t(freedom, quantile):
    assert student_t95(freedom) == pytest.approx(quantile, rel=0.01)


def endless_chase(count=4):
    return make_env("elegant/chasing", count, seed=0, env_kwargs={"max_steps": 10**9})


def endless_wrapped(count=2):
    return make_env(
        lambda: GymWrapper(gymnasium.make("Pendulum-v1", max_episode_steps=10**9)), count
    )


@pytest.mark.parametrize(
    ("make", "name"),
    [(endless, "Pendulum-v1"), (endless_chase, "ChasingEnv"), (endless_wrapped, "SteadySerialEnv")],
)
@pytest.mark.parametrize("episodes", [1, 6])
def test_an_episode_without_an_end_counts_with_what_it_has(caplog, make, name, episodes):
    env = make()
    evaluator = PolicyEvaluator(env, build_stochastic_actor(env), episodes=episodes, max_steps=7)
    with caplog.at_level("WARNING"):
        result = evaluator.evaluate()
    assert result.lengths == (7,) * episodes
    # Each episode began anew, and none carries the return of the one before.
    assert len(set(result.returns)) == episodes
    (said,) = [record.getMessage() for record in caplog.records if "no end" in record.getMessage()]
    assert f"of {name} had no end after 7 steps" in said
    assert "max_eval_steps" in said
    env.close()


@pytest.mark.parametrize("factory", [Counting, wrapped])
def test_an_episode_that_ends_at_the_cap_ends_by_itself(caplog, factory):
    env = make_env(factory, 2)
    result = PolicyEvaluator(env, Policy(), episodes=4, max_steps=5).evaluate()
    assert sorted(result.lengths) == [2, 2, 5, 5]
    assert not caplog.records


class Sick(Counting):
    """Returns `value` in place of a reward or an observation, at the fourth step of all."""

    def __init__(self, where, value=np.nan):
        super().__init__()
        self.where, self.value, self.steps = where, value, 0

    def reset(self, **kwargs):
        observation, info = super().reset(**kwargs)
        return observation * (self.value if self.where == "reset" and self.steps else 1), info

    def step(self, action):
        assert np.isfinite(action).all(), "a NaN action reached the simulator"
        observation, reward, *rest = super().step(action)
        self.steps += 1
        if self.steps == 4 and self.where == "reward":
            reward = self.value
        if self.steps == 4 and self.where == "observation":
            observation = observation + self.value
        return observation, reward, *rest


@pytest.mark.parametrize("wrap", [lambda env: env, GymWrapper], ids=["gymnasium", "torchrl"])
@pytest.mark.parametrize(
    ("where", "value", "named"),
    [
        ("reward", np.nan, "`reward` must be finite, got `nan` from sub environment 1"),
        ("reward", np.inf, "`reward` must be finite, got `inf` from sub environment 1"),
        ("observation", np.nan, "`observation` must be finite, got `nan` from sub environment 1"),
        ("reset", np.nan, "`observation` must be finite, got `nan` from sub environment 1"),
    ],
)
def test_a_value_that_is_not_finite_is_named(where, value, named, wrap):
    made = iter([Counting(), Sick(where, value)])
    env = make_env(lambda: wrap(next(made)), 2)
    with pytest.raises(FloatingPointError, match=named) as error:
        PolicyEvaluator(env, build_stochastic_actor(env), episodes=8).evaluate()
    at = {"reset": 2}.get(where, 4)
    assert f"at step {at} of an evaluation; mend the simulator" in str(error.value)


@pytest.mark.parametrize("wrap", [lambda env: env, GymWrapper], ids=["gymnasium", "torchrl"])
def test_an_action_that_is_not_finite_never_reaches_the_simulator(wrap):
    policy = Policy()
    policy.level.data.fill_(torch.nan)
    env = make_env(lambda: wrap(Sick("nowhere")), 2)
    with pytest.raises(FloatingPointError, match="`action` must be finite, got `nan`"):
        PolicyEvaluator(env, policy, episodes=2).evaluate()


class Rich(Counting):
    def step(self, action):
        observation, _, *rest = super().step(action)
        return observation, 3e38, *rest


def test_a_sum_of_rewards_beyond_all_numbers_is_named():
    env = make_env(Rich, 1)
    with pytest.raises(FloatingPointError, match="`return` must be finite, got `inf` from Rich"):
        PolicyEvaluator(env, Policy(), episodes=1).evaluate()
