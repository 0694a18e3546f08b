"""Networks of a group: one for all agents or one for each, told apart or not."""

from __future__ import annotations

import pytest
import torch
from tensordict import TensorDict

from torchrl_elegant.envs import make_env
from torchrl_elegant.modules import (
    build_actor,
    build_deterministic_actor,
    build_q_network,
    build_stochastic_actor,
)
from torchrl_elegant.modules.multiagent import Agents, SeparateMLP, groups_of
from torchrl_elegant.modules.multiagent.build import build_team_critic, build_team_value

ROWS, AGENTS, SEEN, SIZE = 5, 3, 18, 2
WAYS = [{}, {"agent_id": True}, {"share_parameters": False}]


@pytest.fixture(scope="module")
def env():
    return make_env("vmas/navigation", 2, seed=0, env_kwargs={"n_agents": AGENTS})


@pytest.fixture(scope="module")
def discrete():
    kwargs = {"n_agents": AGENTS, "actions": "discrete"}
    return make_env("vmas/navigation", 2, seed=0, env_kwargs=kwargs)


def group_in(env, **way):
    return groups_of(env)["agents"].with_agents(**way)


def same_for_all():
    """Observations that are the same for each agent of a row."""
    seen = torch.randn(ROWS, 1, SEEN)
    return seen.expand(ROWS, AGENTS, SEEN).clone()


@pytest.mark.parametrize("way", WAYS, ids=str)
@pytest.mark.parametrize("build", [build_actor, build_deterministic_actor, build_stochastic_actor])
def test_each_agent_acts_on_what_it_sees(env, way, build):
    actor = build(group_in(env, **way).one_agent, num_cells=(8,))
    seen = torch.randn(ROWS, AGENTS, SEEN)
    with torch.no_grad():
        first = output_of(actor, seen)
        seen[:, 1] += 1.0
        second = output_of(actor, seen)
    moved = (first != second).flatten(2).any(-1)
    assert moved.tolist() == [[False, True, False]] * ROWS


def output_of(actor, seen):
    if hasattr(actor, "parameters_of"):
        return actor.parameters_of([seen])[0]
    return actor.head([seen]).mode() if hasattr(actor, "head") else actor.act(seen)


@pytest.mark.parametrize(("way", "differ"), [(WAYS[0], False), (WAYS[1], True), (WAYS[2], True)])
def test_agents_with_equal_views_differ_where_they_are_told_apart(discrete, way, differ):
    network = build_q_network(group_in(discrete, **way).one_agent, num_cells=(8,))
    values = network.values([same_for_all()])
    assert values.shape[:3] == (1, ROWS, AGENTS)
    assert torch.allclose(values[0, :, 0], values[0, :, 1], atol=1e-5) != differ


def test_separate_networks_are_those_of_a_loop():
    net = SeparateMLP(agents=AGENTS, in_features=4, out_features=2, num_cells=(8,))
    x = torch.randn(2, ROWS, AGENTS, 4)
    layers = dict(net.net.named_parameters())
    for agent in range(AGENTS):
        hidden = x[..., agent, :] @ layers["weight_0"][agent] + layers["bias_0"][agent]
        expected = hidden.relu() @ layers["weight_1"][agent] + layers["bias_1"][agent]
        torch.testing.assert_close(net(x)[..., agent, :], expected)


@pytest.mark.parametrize("rows", [(ROWS,), (2, ROWS)], ids=str)
@pytest.mark.parametrize("way", WAYS, ids=str)
@pytest.mark.parametrize("sees", ["all", "own"])
def test_critics_value_each_agent(env, sees, way, rows):
    critic = build_team_critic(group_in(env, **way), sees=sees, num_critics=2, num_cells=(8,))
    seen, action = torch.randn(*rows, AGENTS, SEEN), torch.randn(*rows, AGENTS, SIZE)
    values = critic.values([seen], action)
    assert values.shape == (2, *rows, AGENTS)
    torch.testing.assert_close(critic.frozen_values([seen], action, 1), values[:1])
    one = torch.tensor([1])
    torch.testing.assert_close(critic.values([seen], action, one), values[1:])
    other = action.clone()
    other[..., 2, :] += 1.0
    moved = (critic.values([seen], other) != values).flatten(0, -2).any(0).tolist()
    assert moved == ([True] * AGENTS if sees == "all" else [False, False, True])


@pytest.mark.parametrize("way", WAYS, ids=str)
def test_a_critic_of_separate_networks_is_that_of_a_loop_over_rows(env, way):
    """A batch of one row at a time gives what the whole gives: no row meets another."""
    for sees in ("all", "own"):
        critic = build_team_critic(group_in(env, **way), sees=sees, num_critics=2, num_cells=(8,))
        seen, action = torch.randn(ROWS, AGENTS, SEEN), torch.randn(ROWS, AGENTS, SIZE)
        each = [critic.values([s[None]], a[None]) for s, a in zip(seen, action, strict=True)]
        torch.testing.assert_close(critic.values([seen], action), torch.cat(each, 1))


@pytest.mark.parametrize("way", WAYS, ids=str)
@pytest.mark.parametrize("sees", ["all", "own"])
def test_state_values_of_each_agent(env, sees, way):
    critic = build_team_value(group_in(env, **way), sees=sees, num_cells=(8,))
    seen = torch.randn(ROWS, AGENTS, SEEN)
    data = TensorDict({"agents": {"observation": seen}}, [ROWS])
    values = critic(data)["agents", "state_value"]
    assert values.shape == (ROWS, AGENTS, 1)
    other = seen.clone()
    other[:, 2] += 1.0
    moved = (critic.values([other]) != values).any(0).flatten().tolist()
    assert moved == ([True] * AGENTS if sees == "all" else [False, False, True])


def test_an_actor_is_built_again_from_its_plain_data(env):
    actor = build_deterministic_actor(group_in(env, agent_id=True).one_agent, num_cells=(8,))
    again = type(actor)(**actor.spec_dict())
    again.load_state_dict(actor.state_dict())
    seen = torch.randn(ROWS, AGENTS, SEEN)
    torch.testing.assert_close(again.act(seen), actor.act(seen))


def test_groups_see_their_own_entries_and_those_of_nobody():
    groups = groups_of(make_env("vmas/simple_tag", 2, seed=0))
    assert {name: group.agents.count for name, group in groups.items()} == {
        "adversary": 3,
        "agent": 1,
    }
    seen = groups["adversary"].observation_spec_unbatched.keys(True, True)
    assert {key for key in seen if isinstance(key, tuple)} == {
        ("adversary", "observation"),
        ("adversary", "episode_reward"),
    }


def test_an_environment_of_one_agent_has_no_groups():
    with pytest.raises(ValueError, match=r"`env` must have groups of agents, got the actions"):
        groups_of(make_env("Pendulum-v1"))


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"count": 0}, "`count` must be at least 1, got `0`"),
        ({"count": 2, "share_parameters": False, "agent_id": True}, "`agent_id` must be False"),
    ],
)
def test_impossible_agents_are_refused(options, told):
    with pytest.raises(ValueError, match=told):
        Agents(**options)
