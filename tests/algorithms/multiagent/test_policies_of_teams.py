"""MAPPO, IPPO, MASAC and ISAC from their configurations."""

from __future__ import annotations

import pytest
import torch

from torchrl_elegant.algorithms import IPPOConfig, ISACConfig, MAPPOConfig, MASACConfig
from torchrl_elegant.envs import make_env
from torchrl_elegant.runs.trial import Trial
from torchrl_elegant.trainers.learner import Learner
from torchrl_elegant.trainers.rollout_learner import RolloutLearner

ON = {"mappo": MAPPOConfig, "ippo": IPPOConfig}
OFF = {"masac": MASACConfig, "isac": ISACConfig}
SMALL = {"num_cells": (8,)}
WAYS = [{}, {"share_parameters": False}, {"agent_id": True}]
COUNT = 3


def env_of(actions="continuous"):
    options = {"n_agents": COUNT, "max_steps": 20, "actions": actions}
    return make_env("vmas/navigation", 4, env_kwargs=options)


@pytest.mark.parametrize("way", WAYS, ids=str)
@pytest.mark.parametrize("actions", ["continuous", "discrete"])
@pytest.mark.parametrize("name", ON)
def test_an_update_reaches_every_parameter(name, actions, way):
    env = env_of(actions)
    learner = RolloutLearner(ON[name](**SMALL, **way).assemble(env))
    before = [param.detach().clone() for param in learner.loss.parameters()]
    rollout = env.rollout(5, learner.policy, break_when_any_done=False).detach()
    rows = learner.rows(rollout)
    assert rows.shape == (20,)
    assert rows["agents", "advantage"].shape == (20, COUNT, 1)
    assert rows["agents", "action_log_prob"].shape == (20, COUNT)
    assert learner.loss._is_direct(rows)
    learner.update(rows)
    moved = [bool((a != b).any()) for a, b in zip(before, learner.loss.parameters(), strict=True)]
    assert all(moved)


@pytest.mark.parametrize("way", WAYS, ids=str)
@pytest.mark.parametrize("name", OFF)
def test_an_update_off_policy_reaches_every_parameter(name, way):
    env = env_of()
    learner = Learner(OFF[name](**SMALL, **way).assemble(env))
    before = [param.detach().clone() for param in learner.loss.parameters()]
    rows = env.rollout(5, learner.policy, break_when_any_done=False).detach().reshape(-1)
    learner.update(rows)
    assert rows["td_error"].shape == (20,)
    moved = [bool((a != b).any()) for a, b in zip(before, learner.loss.parameters(), strict=True)]
    assert all(moved)
    assert learner.loss.target_entropy == -2.0


@pytest.mark.parametrize(("name", "alone"), [("mappo", False), ("ippo", True)])
def test_a_value_depends_on_other_agents_or_not(name, alone):
    env = env_of()
    critic = ON[name](**SMALL).assemble(env).loss.critic_network
    data = env.reset()
    value = critic(data.clone())["agents", "state_value"]
    data["agents", "observation"][:, 1] += 1.0
    same = critic(data)["agents", "state_value"] == value
    assert bool(same[:, [0, 2]].all()) == alone
    assert not same[:, 1].any()


@pytest.mark.parametrize(("name", "alone"), [("masac", False), ("isac", True)])
def test_a_q_value_depends_on_other_agents_or_not(name, alone):
    env = env_of()
    critic = OFF[name](**SMALL).assemble(env).loss.qvalue_network
    seen = [env.reset()["agents", "observation"]]
    action = torch.zeros(4, COUNT, 2)
    value = critic.values(seen, action)
    action[:, 1] = 0.5
    same = critic.values(seen, action) == value
    assert bool(same[..., [0, 2]].all()) == alone
    assert not same[..., 1].any()


@pytest.mark.parametrize("decay", [None, 0.9])
def test_normalized_values_are_stored_with_the_learner(decay):
    options = {"n_agents": COUNT, "max_steps": 20}
    config = MAPPOConfig(value_norm=decay, epochs=1, batch_size=40, compile=False, **SMALL)
    run = {"num_envs": 4, "frames_per_batch": 80, "total_frames": 160, "env_kwargs": options}
    with Trial(config, "vmas/navigation", **run) as trial:
        trial.train(frames=80)
        state = trial.state_dict()
        names = [name for name in state["learner"]["loss"] if name.startswith("value_norm.")]
        assert bool(names) == (decay is not None)
        with Trial(config, "vmas/navigation", **run) as other:
            other.load_state_dict(state)
            for name in names:
                found = other.learner.loss.state_dict()[name]
                torch.testing.assert_close(found, state["learner"]["loss"][name])
        assert trial.evaluate(episodes=2).return_mean > -100.0


def test_a_rollout_is_a_hundred_steps_of_each_environment():
    frames = MAPPOConfig().frames_per_batch
    assert frames(total_frames=300_000, num_envs=120) == 12_000
    assert frames(total_frames=300_000, num_envs=4) == 2048
    assert frames(total_frames=6_000, num_envs=120) == 6_000


@pytest.mark.parametrize("config", [IPPOConfig, ISACConfig])
def test_a_critic_of_one_agent_is_no_choice(config):
    with pytest.raises(ValueError, match="`critic_sees` must stay own"):
        config(critic_sees="all")
