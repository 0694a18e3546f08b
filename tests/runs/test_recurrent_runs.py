"""Runs of networks with a memory: resume, workers, policy files, evaluation, refused options."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from quiet_runs import QUIET, short_run

from torchrl_elegant.algorithms import ALGORITHMS, OffPolicyConfig
from torchrl_elegant.config.text import UsageError
from torchrl_elegant.envs import make_env
from torchrl_elegant.modules import RecurrentActor
from torchrl_elegant.runs import Policy, resume, train
from torchrl_elegant.runs.evaluate import evaluate
from torchrl_elegant.runs.exported.ensemble import EnsembleActor
from torchrl_elegant.trainers.evaluation import play, play_rows
from torchrl_elegant.trainers.population import MEMBERS

ASKS = {"env_kwargs": {"delay": 3}, "threads": 1}
CHOICE = {"env_kwargs": {"delay": 3, "discrete": True}, "threads": 1}


def config(name: str, **options: Any) -> Any:
    kind = ALGORITHMS[name]
    small = {"recurrent": True, "hidden_size": 8, "num_cells": (8,), "sequence_length": 4}
    small |= {"batch_size": 16}
    if issubclass(kind, OffPolicyConfig):
        small |= {"warmup": 40, "updates_per_frame": 0.1, "burn_in": 2, "buffer_size": 1_000}
    else:
        small |= {"epochs": 2}
    return kind(**(small | options))


def settings(name: str) -> dict[str, Any]:
    run = ASKS if "continuous" in ALGORITHMS[name].actions else CHOICE
    if ALGORITHMS[name].teams:
        run = {**run, "env_kwargs": {**run["env_kwargs"], "agents": 2}}
    more = {} if issubclass(ALGORITHMS[name], OffPolicyConfig) else {"frames_per_batch": 64}
    return {**run, **more, "num_envs": 4}


@pytest.mark.parametrize("name", sorted(ALGORITHMS))
def test_every_algorithm_learns_with_a_memory(name, tmp_path) -> None:
    folder = tmp_path / "run"
    result = short_run(config(name), "elegant/recall", folder, 128, **settings(name))
    assert result.history[-1]["updates"] > 0
    assert isinstance(Policy.load(folder / "policy.pt").actor, RecurrentActor)


@pytest.mark.parametrize("name", ["dqn", "sac", "ppo"])
def test_a_run_goes_on_as_if_it_had_not_ended(name, tmp_path) -> None:
    for folder, frames in (("whole", 256), ("halves", 128)):
        short_run(config(name), "elegant/recall", tmp_path / folder, frames, **settings(name))
    found = resume(str(tmp_path / "halves"), total_frames=256, progress=False).history[-1]
    whole = [Policy.load(tmp_path / f / "policy.pt").actor for f in ("whole", "halves")]
    assert found["frames"] == 256
    assert whole[0].state_dict().keys() == whole[1].state_dict().keys()


@pytest.mark.parametrize("name", ["sac", "ppo"])
def test_workers_collect_states(name, tmp_path) -> None:
    options = settings(name) | {"collector": "async", "num_workers": 1}
    row = short_run(config(name), "elegant/recall", tmp_path / "run", 256, **options).history[-1]
    assert row["frames"] == 256
    assert row["updates"] > 0


def test_observations_can_be_normalized(tmp_path) -> None:
    options = {"normalize_observation": True, "normalize_value": True}
    run = settings("sac")
    short_run(config("sac", **options), "elegant/recall", tmp_path / "run", 128, **run)
    assert evaluate(tmp_path / "run", episodes=3).length_mean == 4


def test_a_policy_file_acts_as_the_run_did(tmp_path) -> None:
    run = {**settings("ppo"), "env_kwargs": {"max_episode_steps": 9}}
    short_run(config("ppo"), "CartPole-v1", tmp_path / "run", 128, **run)
    policy = Policy.load(tmp_path / "run" / "policy.pt")
    rng = np.random.default_rng(0)
    seen = rng.normal(size=(6, 4)).astype(np.float32) * 3
    first = [policy(x) for x in seen]
    policy.reset()
    logits = []
    for x in seen:
        logits.append(policy(x))
    assert first == logits
    actor = policy.actor
    states = actor.actor.memory.gru.unroll(torch.from_numpy(seen)[None], torch.zeros(1, 8))
    expected = actor.actor.head([states[0]]).mode().argmax(-1)
    assert [int(action) for action in first] == expected.tolist()


def test_evaluation_leaves_the_states_of_training_alone() -> None:
    policy = config("dqn").assemble(make_env("CartPole-v1", 2)).policy
    policy.act(torch.ones(2, 4))
    before = policy._states[0].clone()
    limited = {"max_episode_steps": 6}
    played = play(make_env("CartPole-v1", 2, seed=0, env_kwargs=limited), policy, 4)
    assert len(played) == 4
    torch.testing.assert_close(policy._states[0], before)


class Counter(torch.nn.Module):
    """Stands in for a GRU: its state counts the steps."""

    hidden_size = 1

    def step(self, x: torch.Tensor, state: torch.Tensor) -> torch.Tensor:
        return state + 1


@pytest.mark.parametrize("backend", ["simulators", "tensors"])
def test_each_episode_of_an_evaluation_begins_anew(backend) -> None:
    """The answer is the number of steps that the memory has seen: only the last of 4 counts."""
    if backend == "tensors":
        env = make_env("elegant/recall", 2, env_kwargs={"delay": 3}, seed=0)
        shares = [3, 3]
    else:
        env, shares = make_env("Pendulum-v1", 2, env_kwargs={"max_episode_steps": 4}), 6
    policy = config("sac").assemble(env).policy
    memory, seen = policy._memories[0], []
    memory.gru, memory.hidden_size = Counter(), 1

    def act(*features: torch.Tensor) -> torch.Tensor:
        seen.append(features[0].flatten().tolist())
        return torch.zeros(2, 1)

    policy.actor.act = act
    (play_rows if backend == "tensors" else play)(env, policy, shares)
    assert seen == [[step, step] for step in (1.0, 2.0, 3.0, 4.0)] * 3


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"batch_size": 10}, "`batch_size` must be a multiple of sequence_length"),
        ({"priority_alpha": 0.6}, "`priority_alpha` must be none with recurrent=true"),
        ({"long_return_weight": 0.1}, "`long_return_weight` must be 0 with recurrent=true"),
        ({"compile": True}, "`compile` must be false with recurrent=true"),
        ({"recurrent": False, "sequence_length": 16, "burn_in": 0}, "`hidden_size` .*recurrent"),
        ({"recurrent": False, "sequence_length": 16, "hidden_size": 64}, "`burn_in` .*recurrent"),
    ],
)
def test_options_that_cannot_go_together_are_refused(options, message) -> None:
    with pytest.raises(ValueError, match=message):
        config("dqn", **options)


def test_own_networks_are_refused() -> None:
    own = {"networks": {"critic": torch.nn.Linear(4, 2)}}
    with pytest.raises(ValueError, match="`networks` must be None with recurrent=true"):
        ALGORITHMS["dqn"](recurrent=True, **own)


def test_rollouts_shorter_than_a_sequence_are_refused(tmp_path) -> None:
    options = {**settings("ppo"), "frames_per_batch": 32, "num_envs": 16, **QUIET}
    with pytest.raises(UsageError, match="`sequence_length` must be at most the 2 steps"):
        train(config("ppo"), "elegant/recall", total_frames=64, folder=str(tmp_path), **options)


def test_others_that_cannot_carry_states_are_refused(tmp_path) -> None:
    one = config("dqn")
    policy = one.assemble(make_env("CartPole-v1")).policy
    whole = Policy(policy, {"observation": {"observation": [[4], "float32"]}})
    with pytest.raises(UsageError, match="`policy` must have no memory to be written"):
        whole.export(tmp_path / "a.pt2")
    member = ("RecurrentActor", policy.spec_dict(), policy)
    with pytest.raises(UsageError, match="`members` must have no memory, got RecurrentActor"):
        EnsembleActor([member, member], form="one_hot")
    with pytest.raises(ValueError, match="`recurrent` must be false in a vectorized population"):
        MEMBERS["off_policy"].require_alike([one, replace(one, lr=1e-4)])
