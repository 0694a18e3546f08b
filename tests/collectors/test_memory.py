"""States of an actor's memory in collected batches: zero where an episode begins, else carried."""

from __future__ import annotations

import pytest
import torch
from tensordict import TensorDictBase
from torchrl.envs import EnvBase

from torchrl_elegant.algorithms import DQNConfig, SACConfig
from torchrl_elegant.collectors import SyncCollector
from torchrl_elegant.collectors.rollout.policy_calls import direct_call
from torchrl_elegant.envs import make_env
from torchrl_elegant.modules import DeterministicActor, GaussianNoise, NoisyActor, memory_of
from torchrl_elegant.modules.multiagent.actors import GroupActors

SMALL = {"num_cells": (8,), "hidden_size": 4, "recurrent": True}


def simulators() -> EnvBase:
    return make_env("CartPole-v1", 3, seed=0, env_kwargs={"max_episode_steps": 7})


def tensors() -> EnvBase:
    return make_env("elegant/recall", 3, seed=0, env_kwargs={"discrete": True, "delay": 6})


def states_one_by_one(policy: torch.nn.Module, batch: TensorDictBase) -> torch.Tensor:
    memory = memory_of(policy)
    state, states = torch.zeros(len(batch), memory.hidden_size), []
    for t in range(batch.shape[1]):
        states.append(state)
        state = memory.gru.step(batch["observation"][:, t], state)
        state = state.masked_fill(batch["next", "done"][:, t], 0.0)
    return torch.stack(states, 1).detach()


@pytest.mark.parametrize("make", [simulators, tensors])
@pytest.mark.parametrize("random", [0, 24], ids=["acts", "random"])
def test_a_row_begins_anew_where_its_episode_ended(make, random) -> None:
    env = make()
    policy = DQNConfig(**SMALL).assemble(env).policy
    options = {"frames_per_batch": 12, "total_frames": 60, "init_random_frames": random}
    collector = SyncCollector(env, policy, **options)
    assert collector.is_lean
    batch = torch.cat(list(collector), 1)
    assert batch["next", "done"].any()
    found = states_one_by_one(policy, batch)
    torch.testing.assert_close(batch["recurrent_state"], found, rtol=1e-4, atol=1e-6)


def test_actors_carry_the_states_of_critics_as_well() -> None:
    env = make_env("Pendulum-v1", 2, env_kwargs={"max_episode_steps": 5})
    parts = SACConfig(**SMALL).assemble(env)
    (batch,) = SyncCollector(env, parts.policy, frames_per_batch=16, total_frames=16)
    found = states_one_by_one(parts.loss.loss.qvalue_network, batch)
    torch.testing.assert_close(batch["critic_recurrent_state"], found, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("make", [simulators, tensors])
def test_a_reset_from_outside_begins_anew(make) -> None:
    env = make()
    policy = DQNConfig(**SMALL).assemble(env).policy
    collector = SyncCollector(env, policy, frames_per_batch=6, total_frames=-1)
    batches = iter(collector)
    next(batches)
    collector.reset()
    batch = next(batches)
    assert not batch["recurrent_state"][:, 0].any()
    assert batch["recurrent_state"][:, 1].any(-1).all()


def test_several_actions_are_no_states() -> None:
    """A policy that carries no states is not called where actions are random."""
    actors = {}
    for name in ("red", "blue"):
        seen, key = {(name, "observation"): (3,)}, (name, "action")
        still = DeterministicActor(observation=seen, low=[-1.0], high=[1.0], action_key=key)
        actors[name] = NoisyActor(still, GaussianNoise())
    policy = GroupActors(actors)
    found = direct_call(policy, policy.in_keys, policy.out_keys)
    assert found is not None
    assert found.restart is not None
    assert not found.carries
    env = make_env("CartPole-v1")
    found = direct_call(DQNConfig(**SMALL).assemble(env).policy, ["observation"])
    assert found is not None
    assert found.carries
