"""Memories of teams: one of each agent, or one of all; what unrolls them, and what is refused."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from tensordict import TensorDict
from torch import Tensor

from torchrl_elegant.algorithms import ALGORITHMS
from torchrl_elegant.collectors import SyncCollector
from torchrl_elegant.data import SequenceFold, cut_rollout
from torchrl_elegant.envs import RecallEnv, make_env
from torchrl_elegant.modules import Memory

AGENTS, STEPS, SIZE = 3, 12, 4
SMALL = {"recurrent": True, "hidden_size": SIZE, "num_cells": (8,), "sequence_length": 4}
REPLAY = {**SMALL, "batch_size": 16}


def collected(name: str, **options: Any) -> tuple[Any, TensorDict]:
    """Parts, and two rows of steps in which several episodes end."""
    discrete = name in ("qmix", "vdn")
    env = RecallEnv(num_envs=2, delay=2, agents=AGENTS, discrete=discrete, seed=0)
    parts = ALGORITHMS[name](**(SMALL if name == "mappo" else REPLAY) | options).assemble(env)
    frames = {"frames_per_batch": 2 * STEPS, "total_frames": 2 * STEPS}
    (batch,) = SyncCollector(env, parts.policy, **frames, auto_register_policy_transforms=False)
    return parts, batch


def states(memory: Memory, batch: TensorDict) -> Tensor:
    """States after each step by a loop over single steps, ``[2, STEPS, ..., H]``."""
    seen, done = batch["agents", "observation"], batch["next", "done"].squeeze(-1)
    state, found = torch.zeros(batch[memory.state_key][:, 0].shape), []
    for t in range(STEPS):
        state = memory.gru.step(memory.inputs.join([seen[:, t]]), state)
        found.append(state)
        state = state * (~done[:, t]).view(-1, *[1] * (state.ndim - 1))
    return torch.stack(found, 1)


@pytest.mark.parametrize("options", [{}, {"agent_id": True}], ids=["alike", "ids"])
@pytest.mark.parametrize("name", ["qmix", "vdn"])
def test_each_agent_has_a_state_of_its_own(name, options) -> None:
    parts, batch = collected(name, **options)
    assert batch["recurrent_state"].shape == (2, STEPS, AGENTS, SIZE)
    (memory,) = parts.loss.memories()
    rows = SequenceFold(length=4, state_keys=parts.loss.state_keys)(batch)
    flat = parts.loss.rows_of(rows)
    expected = states(memory, batch).flatten(0, 1)
    torch.testing.assert_close(flat["critic_memory"], expected, rtol=1e-4, atol=1e-6)
    parts.loss.update_terms(rows)["loss"].backward()
    assert all(
        param.grad.any() for param in parts.loss.loss.local_value_network_params.parameters()
    )


@pytest.mark.parametrize("name", ["matd3", "mappo"])
@pytest.mark.parametrize("sees", ["all", "own"])
def test_a_critic_of_the_team_remembers_what_it_sees(name, sees) -> None:
    parts, batch = collected(name, critic_sees=sees)
    actor, critic = parts.loss.memories()
    of_agents = (2, STEPS, AGENTS, SIZE)
    assert batch[actor.state_key].shape == of_agents
    assert batch[critic.state_key].shape == ((2, STEPS, SIZE) if sees == "all" else of_agents)
    keys = parts.loss.state_keys
    if name == "mappo":
        rows = parts.loss.rows(parts.loss.estimate(batch))
    else:
        rows = SequenceFold(length=4, state_keys=keys)(batch)
    flat = parts.loss.rows_of(rows)
    for memory, key in ((actor, "actor_memory"), (critic, "critic_memory")):
        expected = states(memory, batch).flatten(0, 1)
        torch.testing.assert_close(flat[key], expected, rtol=1e-4, atol=1e-6)
    terms = parts.loss.update_terms(rows)
    sum(value for key, value in terms.items() if key.startswith("loss")).backward()
    assert all(
        param.grad is not None for memory in (actor, critic) for param in memory.parameters()
    )


def test_a_team_that_has_not_moved_has_ratios_of_one() -> None:
    parts, batch = collected("mappo")
    estimated = parts.loss.estimate(batch)
    rows = parts.loss.rows(estimated)
    assert rows.shape == (2 * STEPS // 4,)
    assert abs(parts.loss.divergence(rows).item()) < 1e-6
    whole = cut_rollout(
        estimated.select(*parts.loss.row_keys), STEPS, state_keys=parts.loss.state_keys
    )
    a, b = (parts.loss.update_terms(each)["loss_critic"] for each in (rows, whole))
    torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-6)


def test_options_that_cannot_go_together_are_refused() -> None:
    with pytest.raises(ValueError, match="`share_parameters` must be true with recurrent=true"):
        ALGORITHMS["qmix"](**REPLAY, share_parameters=False)
    pytest.importorskip("vmas")
    env = make_env("vmas/simple_tag", 2)
    with pytest.raises(ValueError, match="`recurrent` must be false with several groups of agents"):
        ALGORITHMS["maddpg"](**REPLAY).assemble(env)
