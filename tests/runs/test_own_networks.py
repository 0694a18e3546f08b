"""Runs with networks of one's own: trained, saved, resumed, and evaluated by other processes."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import foreign_cases as cases
import numpy as np
import pytest
import torch
from quiet_runs import QUIET, short_run
from torch import nn
from torchrl.modules import MLP

from torchrl_elegant.algorithms import (
    ALGORITHMS,
    A2CConfig,
    DDPGConfig,
    DiscreteSACConfig,
    DoubleDQNConfig,
    DQNConfig,
    HTermConfig,
    ModSACConfig,
    PPOConfig,
    REDQConfig,
    SACConfig,
    TD3Config,
    register,
)
from torchrl_elegant.config.text import UsageError
from torchrl_elegant.runs.evaluate import evaluate
from torchrl_elegant.runs.policy import Policy
from torchrl_elegant.runs.train import resume, stored_run
from torchrl_elegant.runs.trial import Trial

ROOT = Path(__file__).resolve().parents[2]
PENDULUM, CART = "Pendulum-v1", "CartPole-v1"
OFF = {"batch_size": 8, "warmup": 20}
ON = {"batch_size": 8, "epochs": 1}
TERM = HTermConfig(horizon=2, slices=2)
PAIR = {"actor": cases.stochastic, "critic": cases.critic}
PLAIN = {"actor": nn.Linear(3, 2), "critic": MLP(in_features=4, out_features=1, num_cells=[8])}
POLICY = {"actor": cases.with_log_prob, "critic": cases.value}
MEAN = {"actor": cases.deterministic, "critic": cases.critic}
CHOICE = {"actor": nn.Linear(4, 2), "critic": nn.Linear(4, 2)}

RUNS = {
    "sac": (SACConfig(**OFF, networks=PAIR), PENDULUM),
    "sac plain": (SACConfig(**OFF, networks=PLAIN), PENDULUM),
    "sac actor": (SACConfig(**OFF, num_cells=(8,), networks={"actor": PAIR["actor"]}), PENDULUM),
    "sac critic": (SACConfig(**OFF, num_cells=(8,), networks={"critic": PAIR["critic"]}), PENDULUM),
    "sac normalized": (
        SACConfig(**OFF, normalize_observation=True, n_steps=2, hterm=TERM, networks=PAIR),
        PENDULUM,
    ),
    "modsac": (ModSACConfig(**OFF, networks=PAIR), PENDULUM),
    "redq": (REDQConfig(**OFF, updates_per_frame=1, networks=PAIR), PENDULUM),
    "td3": (TD3Config(**OFF, networks=MEAN), PENDULUM),
    "td3 plain": (TD3Config(**OFF, networks=PLAIN | {"actor": nn.Linear(3, 1)}), PENDULUM),
    "ddpg": (DDPGConfig(**OFF, noise="ou", networks=MEAN), PENDULUM),
    "dqn": (DQNConfig(**OFF, networks={"critic": cases.q_values}), CART),
    "double dqn": (DoubleDQNConfig(**OFF, networks={"critic": nn.Linear(4, 2)}), CART),
    "discrete sac": (DiscreteSACConfig(**OFF, networks=CHOICE), CART),
    "ppo": (PPOConfig(**ON, networks=POLICY), PENDULUM),
    "ppo plain": (PPOConfig(**ON, networks=PLAIN | {"critic": nn.Linear(3, 1)}), PENDULUM),
    "ppo choices": (PPOConfig(**ON, networks=CHOICE | {"critic": nn.Linear(4, 1)}), CART),
    "ppo actor": (PPOConfig(**ON, hterm=TERM, networks={"actor": POLICY["actor"]}), PENDULUM),
    "a2c": (A2CConfig(batch_size=8, networks=POLICY), PENDULUM),
}
FEW = {"frames_per_batch": 16, "env_kwargs": {"max_episode_steps": 10}}


def act(policy, size):
    seen = np.random.default_rng(0).normal(size=(5, size)).astype(np.float32)
    return policy(seen)


@pytest.mark.parametrize("name", RUNS)
def test_networks_train_are_saved_and_go_on(name, tmp_path):
    config, env = RUNS[name]
    size = 3 if env == PENDULUM else 4
    first = short_run(config, env, tmp_path / "run", 64, **FEW)
    before = Policy.load(first.folder / "policy.pt")
    live = Policy(first.policy, before.metadata)
    np.testing.assert_allclose(act(before, size), act(live, size), rtol=1e-4, atol=1e-5)
    assert before.sample(np.zeros((7, size), np.float32)).shape[0] == 7
    result = resume(first.folder, networks=config.networks, total_frames=96, **QUIET)
    assert result.history[-1]["frames"] == 96
    weights = [p for p in first.policy.parameters() if p.requires_grad]
    later = [p for p in result.policy.parameters() if p.requires_grad]
    assert any(not torch.equal(one, two) for one, two in zip(weights, later, strict=True))
    assert len(evaluate(first.folder, episodes=2).returns) == 2


@pytest.mark.parametrize("name", ["sac normalized", "ppo choices"])
def test_worker_processes_collect_with_them(name, tmp_path):
    config, env = RUNS[name]
    result = short_run(config, env, tmp_path / "run", 64, **FEW, collector="async", num_workers=1)
    assert result.history[-1]["frames"] == 64
    assert result.history[-1]["updates"] > 0


def test_workers_in_step_collect_with_them(tmp_path):
    config, env = RUNS["ppo"]
    result = short_run(
        config, env, tmp_path / "run", 64, **FEW, collector="parallel", num_workers=1
    )
    assert result.history[-1]["frames"] == 64


def test_a_run_that_goes_on_needs_its_networks(tmp_path):
    config, env = RUNS["sac"]
    folder = short_run(config, env, tmp_path / "run", 64, **FEW).folder
    assert stored_run(folder)[2].networks == {"actor": None, "critic": None}
    with pytest.raises(UsageError, match=r"`networks` must hold the actor .* resume\(folder, netw"):
        resume(folder, total_frames=96, **QUIET)


@pytest.mark.parametrize("name", ["sac normalized", "dqn", "ppo"])
def test_a_state_is_taken_over(name):
    config, env = RUNS[name]
    actions = []
    with Trial(config, env, total_frames=256, **FEW) as one:
        one.train(frames=64)
        with Trial(config, env, total_frames=256, **FEW) as two:
            for when in ("before", "after"):
                if when == "after":
                    two.load_state_dict(one.state_dict())
                pair = [Policy(trial.learner.policy, trial.about()) for trial in (one, two)]
                seen = np.random.default_rng(0).normal(size=(50, 3 if env == PENDULUM else 4))
                actions.append([policy(seen) for policy in pair])
                weights = [list(trial.learner.policy.parameters()) for trial in (one, two)]
                same = [torch.equal(*both) for both in zip(*weights, strict=True)]
                assert all(same) if when == "after" else not all(same)
    np.testing.assert_array_equal(*actions[1])


def test_another_process_evaluates_them(tmp_path):
    config, env = RUNS["td3"]
    folder = short_run(config, env, tmp_path / "run", 64, **FEW).folder
    command = [sys.executable, str(ROOT / "scripts" / "evaluate.py"), str(folder), "episodes=2"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("2 episodes: return ")


def test_each_run_trains_a_copy_of_a_module(tmp_path):
    given = nn.Linear(3, 2)
    before = given.weight.detach().clone()
    config = SACConfig(**OFF, num_cells=(8,), networks={"actor": given})
    short_run(config, PENDULUM, tmp_path / "run", 64, **FEW)
    assert torch.equal(given.weight, before)


def test_a_subclass_builds_its_networks_itself(tmp_path, monkeypatch):
    @dataclass(frozen=True, kw_only=True)
    class Mine(SACConfig):
        def build_actor(self, env):
            return cases.stochastic(env)

        def build_critic(self, env):
            return cases.critic(env)

    monkeypatch.setitem(ALGORITHMS, "own_mine", Mine)
    config = register("own_mine")(Mine)(**OFF)
    folder = short_run(config, PENDULUM, tmp_path / "run", 64, **FEW).folder
    assert type(Policy.load(folder / "policy.pt").actor).__name__ == "ProgramActor"
