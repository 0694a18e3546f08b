"""Runs over environments that raise where a forbidden action is taken."""

from __future__ import annotations

import masked_toys
import pytest
from torch import nn

from torchrl_elegant import Policy, Trial, resume, train
from torchrl_elegant.algorithms import (
    ALGORITHMS,
    A2CConfig,
    D3QNConfig,
    DiscreteSACConfig,
    DQNConfig,
    HTermConfig,
    PPOConfig,
)
from torchrl_elegant.collectors import SyncCollector
from torchrl_elegant.envs import make_env

DOORS, TWO = "masked_toys:Doors", "masked_toys:TwoDoors"
SMALL = {"num_cells": (8,), "batch_size": 16}
OFF = {**SMALL, "warmup": 60}
ON = {**SMALL}
EVERYTHING = {"n_steps": 3, "priority_alpha": 0.6, "long_return_weight": 0.1}


@pytest.mark.parametrize(
    ("config", "env"),
    [
        (DQNConfig(**OFF), DOORS),
        (D3QNConfig(**OFF, twin=True, **EVERYTHING, normalize_observation=True), DOORS),
        (DiscreteSACConfig(**OFF, n_steps=2), DOORS),
        (PPOConfig(**ON, normalize_observation=True, entropy_coeff=0.01), DOORS),
        (A2CConfig(**ON, advantage="vtrace"), DOORS),
        (PPOConfig(**ON, epochs=2), TWO),
        (DQNConfig(**OFF), "masked_toys:of_torchrl"),
        (DQNConfig(**OFF), "masked_toys:nested"),
        (DQNConfig(**OFF), "masked_toys:NestedDoors"),
    ],
    ids=[
        "dqn",
        "d3qn",
        "discrete_sac",
        "ppo",
        "a2c",
        "ppo, two choices",
        "torchrl",
        "nested",
        "nested gymnasium",
    ],
)
@pytest.mark.parametrize("num_envs", [1, 3])
def test_no_forbidden_action_is_taken(config, env, num_envs):
    with Trial(config, env, num_envs=num_envs, total_frames=240) as trial:
        trial.train(frames=240)
        assert trial.evaluate().return_mean >= 0.0


QUIET = {"progress": False, "logger": "none", "eval_episodes": 2, "eval_interval": 160}


@pytest.mark.parametrize("name", ["dqn", "discrete_sac", "ppo"])
def test_a_resumed_run_and_its_policy_file_take_allowed_actions(name, tmp_path):
    config = ALGORITHMS[name](**(ON if name == "ppo" else OFF))
    result = train(config, DOORS, total_frames=160, **QUIET, folder=str(tmp_path / "run"))
    resume(result.folder, total_frames=240)
    played(Policy.load(result.folder / "policy.pt"))


def played(policy: Policy) -> None:
    """Play some games, in which a forbidden action raises."""
    env = masked_toys.Doors()
    for seed in range(20):
        observation, _ = env.reset(seed=seed)
        over = False
        while not over:
            observation, _, over, _, _ = env.step(policy(observation))


@pytest.mark.parametrize(
    ("kind", "options"),
    [(DQNConfig, {"batch_size": 16, "warmup": 60}), (DiscreteSACConfig, OFF)],
    ids=["dqn", "discrete_sac"],
)
def test_a_critic_of_ones_own_takes_allowed_actions(kind, options, tmp_path):
    networks = {"critic": nn.Linear(2, 4)}
    config = kind(**options, n_steps=2, networks=networks)
    settings = {"total_frames": 160, **QUIET, "folder": str(tmp_path / "run")}
    result = train(config, DOORS, **settings)
    resume(result.folder, total_frames=240, networks=networks)
    played(Policy.load(result.folder / "policy.pt"))


def test_workers_take_allowed_actions(tmp_path):
    """The random ones at the start, too: a forbidden one ends a worker."""
    settings = {"collector": "async", "num_workers": 1, "total_frames": 160}
    result = train(DQNConfig(**OFF), DOORS, **settings, **QUIET, folder=str(tmp_path / "run"))
    assert result.history[-1]["frames"] == 160


def test_the_hamiltonian_term_reads_the_mask():
    config = PPOConfig(**ON, hterm=HTermConfig(horizon=4, slices=2, period=1))
    with Trial(config, DOORS, num_envs=2, total_frames=240, frames_per_batch=60) as trial:
        trial.train(frames=240)
        (add_on,) = trial.learner.add_ons.values()
        assert add_on.term.backward() is not None


@pytest.mark.parametrize(
    "make",
    [
        lambda: make_env(DOORS, 2, backend="parallel"),
        lambda: make_env(masked_toys.of_torchrl, 2),
        lambda: make_env(DOORS),
    ],
    ids=["processes", "torchrl", "single"],
)
def test_random_frames_of_any_environment_are_allowed(make):
    env = make()
    for _ in range(5):
        data = env.reset()
        for _ in range(4):
            data = env.rand_action(data)
            mask, action = data["action_mask"].bool(), data["action"].bool()
            assert (action & mask).any(-1).all()
            data = env.step(data)["next"].exclude("reward")
    env.close()


def test_the_lean_rollout_draws_allowed_actions_at_first():
    env = make_env(DOORS, 2, seed=0)
    policy = DQNConfig(**SMALL).build(env).policy
    collector = SyncCollector(
        env, policy, frames_per_batch=40, total_frames=80, init_random_frames=40
    )
    assert collector.is_lean
    for batch in collector:
        assert (batch["action"].bool() & batch["action_mask"].bool()).any(-1).all()


def test_the_best_allowed_door_is_learned():
    config = D3QNConfig(num_cells=(32,), batch_size=64, warmup=100, twin=True, gamma=0.0, n_steps=1)
    with Trial(config, DOORS, num_envs=2, total_frames=1_000, seed=1) as trial:
        trial.train(frames=1_000)
        # Rewards 1 for the last open door: a policy that draws evenly gets about half of them.
        assert trial.evaluate(episodes=20).return_mean > 4.5
