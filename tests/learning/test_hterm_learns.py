"""The H-term alone learns what pays, where the base loss moves no actor; turned around, to flee it.

So the term's gradient points uphill, for every kind of actor: on-policy in the form `ratio` against
a critic's values, from a replay buffer in the form `imitate` against the mean of rewards.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from quiet_runs import learnt

from torchrl_elegant.algorithms import HTermConfig, PPOConfig, TD3Config
from torchrl_elegant.algorithms.add_ons import HamiltonianAddOn


class Follow(gymnasium.Env):
    """Be where the goal is: 8 steps, minus the distance each, and a new goal after each.

    To sit still in the middle gives -4 on average, to flee as far as one can -12, the best play 0.
    """

    observation_space = spaces.Box(-1.0, 1.0, (1,), np.float32)
    action_space = spaces.Box(-1.0, 1.0, (1,), np.float32)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.steps = 0
        return self._turn(), {}

    def step(self, action):
        reward = -abs(self.goal - float(action[0]))
        self.steps += 1
        return self._turn(), reward, False, self.steps == 8, {}

    def _turn(self):
        self.goal = float(self.np_random.uniform(-1, 1))
        return np.array([self.goal], np.float32)


class Choose(Follow):
    """The same with three places to be: 1 for the nearest, 8/3 by chance, 8 for the best play."""

    action_space = spaces.Discrete(3)

    def step(self, action):
        nearest = int(np.digitize(self.goal, (-1 / 3, 1 / 3)))
        self.steps += 1
        return self._turn(), float(action == nearest), False, self.steps == 8, {}


# There is nothing that it could be bounded by: the base loss leaves the actor a gradient of 0.
TERM = HTermConfig(horizon=2, weight=1.0, slices=64, max_age=1_024, period=1, bound=None)
RATIO = replace(TERM, form="ratio", best=0.75)
ON = {"num_cells": (32,), "lr": 3e-3, "epochs": 4, "batch_size": 128, "hterm": RATIO}
OFF = {"num_cells": (32,), "batch_size": 16, "warmup": 200, "actor_lr": 3e-3}
RUNS = {
    "ppo": (PPOConfig(log_std=-0.5, **ON), Follow, 8_192),
    "ppo choices": (PPOConfig(**ON), Choose, 8_192),
    "td3": (TD3Config(noise_std=0.3, hterm=replace(TERM, sigma=0.3), **OFF), Follow, 1_600),
}


def final_return(name: str, folder: Path) -> float:
    config, env, frames = RUNS[name]
    return learnt(config, env, folder, frames, num_envs=8, eval_episodes=40)[-1]["return_mean"]


@pytest.fixture
def alone(monkeypatch):
    """What the base loss wants of the actor is forgotten, and what the term wants is taken times
    ``sign``. Critics learn: rewards are compared with what they expect."""

    backward = HamiltonianAddOn.backward

    def only(sign: float) -> None:
        def turned(self, batch, *, actor_updated):
            scale_gradients(self, 0.0)  # those of the base loss
            terms = backward(self, batch, actor_updated=actor_updated)
            scale_gradients(self, sign)
            return terms

        monkeypatch.setattr(HamiltonianAddOn, "backward", turned)

    return only


def scale_gradients(add_on: HamiltonianAddOn, scale: float) -> None:
    for param in add_on.term.loss.parameters():
        if param.grad is not None:
            param.grad.mul_(scale)


@pytest.mark.parametrize(("name", "least"), [("ppo", -1.0), ("ppo choices", 7.5), ("td3", -1.0)])
def test_the_term_alone_learns_what_pays(tmp_path, alone, name, least):
    alone(1.0)
    assert final_return(name, tmp_path / "run") >= least


@pytest.mark.parametrize(("name", "most"), [("ppo", -7.0), ("ppo choices", 0.5), ("td3", -6.0)])
def test_turned_around_it_learns_to_flee_it(tmp_path, alone, name, most):
    """From what went well also where that alone is looked at, as TD3's term does: it stays on the
    goal's side of what the actor does, so that to do less of it is to move away from there."""
    alone(-1.0)
    assert final_return(name, tmp_path / "run") <= most


@pytest.mark.parametrize(("name", "most"), [("ppo", -2.5), ("ppo choices", 6.5), ("td3", -2.5)])
def test_without_either_nothing_is_learnt(tmp_path, alone, name, most):
    alone(0.0)
    assert final_return(name, tmp_path / "run") <= most
