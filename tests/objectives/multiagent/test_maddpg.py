"""MADDPG and MATD3: by hand, against TorchRL, and who reaches whom."""

from __future__ import annotations

import pytest
import torch
from tensordict import TensorDict
from tensordict.nn import TensorDictModule, TensorDictSequential
from torch import nn
from torchrl import objectives
from torchrl.modules import MultiAgentMLP, TanhModule
from torchrl.objectives import SoftUpdate, ValueEstimators

from torchrl_elegant.objectives import MADDPGLoss, MATD3Loss

AGENTS, SEEN, SIZE, GAMMA = 3, 4, 2, 0.9
BOUNDS = (torch.full((SIZE,), -1.0), torch.full((SIZE,), 1.0))


class Judge(nn.Module):
    """A value for each agent, of all observations and actions."""

    def __init__(self, share_params: bool = False) -> None:
        super().__init__()
        self.net = MultiAgentMLP(
            n_agent_inputs=SEEN + SIZE,
            n_agent_outputs=1,
            n_agents=AGENTS,
            centralized=True,
            share_params=share_params,
            num_cells=8,
            depth=1,
        )

    def forward(self, seen, action):
        return self.net(torch.cat([seen, action], -1))


def actor_of(group="agents", share_params=False):
    options = {"centralized": False, "share_params": share_params, "num_cells": 8, "depth": 1}
    net = MultiAgentMLP(SEEN, SIZE, AGENTS, **options)
    raw, action = (group, "raw"), (group, "action")
    return TensorDictSequential(
        TensorDictModule(net, [(group, "observation")], [raw]),
        TanhModule(in_keys=[raw], out_keys=[action], low=-1.0, high=1.0),
    )


def critic_of(group="agents", share_params=False):
    keys = [(group, "observation"), (group, "action")]
    return TensorDictModule(Judge(share_params), keys, [(group, "state_action_value")])


def batch(*shape, group="agents", team_reward=False):
    def seen():
        return {"observation": torch.randn(*shape, AGENTS, SEEN)}

    terminated = torch.rand(*shape, 1) < 0.4
    done = terminated | (torch.rand(*shape, 1) < 0.3)
    reward = torch.randn(*shape, 1) if team_reward else torch.randn(*shape, AGENTS, 1)
    after = {group: seen(), "done": done, "terminated": terminated}
    data = TensorDict(
        {group: seen() | {"action": torch.rand(*shape, AGENTS, SIZE) * 2 - 1}, "next": after}, shape
    )
    return data.set(("next", "reward") if team_reward else ("next", group, "reward"), reward)


def maddpg(others="stored", **options):
    return made(MADDPGLoss(actor_of(), critic_of(), others=others, delay_actor=True, **options))


def matd3(others="stored", **options):
    return made(MATD3Loss(actor_of(), critic_of(), others=others, bounds=BOUNDS, **options))


def made(loss):
    loss.make_value_estimator(gamma=GAMMA)
    SoftUpdate(loss, tau=0.5)
    for name, params in loss.named_children():
        if name.startswith("target_"):
            randomize(params)
    return loss


def randomize(params):
    for target in params.values(True, True):
        if target.ndim:  # the bounds of the actor are no vectors
            target.data.normal_()


def acted(loss, params, row):
    with params.to_module(loss.actor_network):
        return loss.actor_network(row.select(("agents", "observation")))["agents", "action"]


def judged(loss, params, row, action):
    data = row.select(("agents", "observation")).set(("agents", "action"), action)
    with params.to_module(loss.value_network):
        return loss.value_network(data)["agents", "state_action_value"].squeeze(-1)


@pytest.mark.parametrize("team_reward", [False, True])
def test_the_critics_error_by_hand(team_reward):
    torch.manual_seed(0)
    # As many rows as agents: whatever is spread over the wrong dimension would not be noticed.
    data = batch(AGENTS, team_reward=team_reward)
    loss = maddpg()
    if team_reward:
        loss.set_keys(reward="reward")
    value = loss(data)["loss_value"]
    errors = []
    for row in data.unbind(0):
        after = row["next"]
        action = acted(loss, loss.target_actor_network_params, after)
        following = judged(loss, loss.target_value_network_params, after, action)
        reward = after["reward"] if team_reward else after["agents", "reward"].squeeze(-1)
        target = reward + GAMMA * following * (1.0 - after["terminated"].float())
        mine = judged(loss, loss.value_network_params, row, row["agents", "action"])
        errors.append((mine - target).detach())
    errors = torch.stack(errors)
    torch.testing.assert_close(value.detach(), errors.square().mean())
    torch.testing.assert_close(data["td_error"], errors.abs().amax(-1))
    assert data["next", "terminated"].any()
    assert not data["next", "terminated"].all()


@pytest.mark.parametrize("others", ["stored", "policy"])
def test_the_actors_loss_by_hand(others):
    torch.manual_seed(0)
    data, loss = batch(5), maddpg(others)
    values = []
    for row in data.unbind(0):
        action = acted(loss, loss.actor_network_params, row)
        for agent in range(AGENTS):
            shown = action.clone()
            for other in range(AGENTS):
                if other != agent and others == "stored":
                    shown[other] = row["agents", "action"][other]
            values.append(judged(loss, loss.value_network_params, row, shown)[agent])
    expected = -torch.stack(values).mean()
    torch.testing.assert_close(loss(data)["loss_actor"], expected)
    params = list(loss.actor_network_params.parameters())
    found = torch.autograd.grad(loss(data)["loss_actor"], params)
    wanted = torch.autograd.grad(expected, params)
    torch.testing.assert_close(found, wanted)


@pytest.mark.parametrize("make", [maddpg, matd3])
@pytest.mark.parametrize("others", ["stored", "policy"])
def test_a_policy_follows_the_values_of_its_own_agent_alone(make, others):
    """The values of agent 0 are made flat in everything: its policy then stays as it is."""
    torch.manual_seed(0)
    loss, data = make(others), batch(6)
    critic = loss.tensor_keys.state_action_value
    params = getattr(loss, f"{loss.critic_name}_params")
    for value in params.values(True, True):
        # With networks of their own the agents stand in the first dimension but copies.
        value.data.select(0 if make is maddpg else 1, 0).zero_()
    loss(data)["loss_actor"].backward()
    moved = [p.grad.abs().flatten(1).sum(1) for p in loss.actor_network_params.parameters()]
    first = torch.stack(moved)[:, 0].sum()
    rest = torch.stack(moved)[:, 1:].sum()
    assert critic == ("agents", "state_action_value")
    assert rest > 0
    assert (first == 0) if others == "stored" else (first > 0)


@pytest.mark.parametrize("make", [maddpg, matd3])
def test_each_term_reaches_its_own_networks(make):
    loss, data = make(), batch(6)
    terms = loss(data)
    for name, network in (("loss_actor", "actor_network"), (loss.critic_term, loss.critic_name)):
        loss.zero_grad()
        terms[name].backward(retain_graph=True)
        reached = {n.split("_params")[0] for n, p in loss.named_parameters() if p.grad is not None}
        assert reached == {network}


@pytest.mark.parametrize("share_params", [False, True])
def test_with_all_policies_it_is_torchrls_loss(share_params):
    torch.manual_seed(0)
    actor, critic = actor_of(share_params=share_params), critic_of(share_params=share_params)
    ours = MADDPGLoss(actor, critic, others="policy", delay_actor=True)
    theirs = objectives.DDPGLoss(actor, critic, delay_actor=True)
    group = {name: ("agents", name) for name in ("state_action_value", "reward")}
    flags = {name: ("agents", name) for name in ("done", "terminated")}
    theirs.set_keys(**group, **flags)
    data = batch(7)
    spread = data.clone()
    for name in ("done", "terminated"):
        flag = data["next", name].unsqueeze(-2).expand(7, AGENTS, 1).clone()
        spread.set(("next", "agents", name), flag)
    found = []
    for loss, shown in ((ours, data), (theirs, spread)):
        loss.make_value_estimator(ValueEstimators.TD0, gamma=GAMMA)
        torch.manual_seed(1)
        for name in ("target_actor_network_params", "target_value_network_params"):
            randomize(getattr(loss, name))
        terms = loss(shown)
        actor.zero_grad(), critic.zero_grad()
        (terms["loss_actor"] + terms["loss_value"]).backward()
        grads = [p.grad.clone() for p in loss.parameters() if p.grad is not None]
        found.append((terms["loss_actor"].detach(), terms["loss_value"].detach(), grads))
    torch.testing.assert_close(*found)


def test_matd3_takes_the_smaller_of_two_values_for_each_agent():
    torch.manual_seed(0)
    loss, data = matd3(policy_noise=0.0, reduction="none", loss_function="l2"), batch(AGENTS)
    rows = loss(data)["loss_qvalue"]
    assert rows.shape == (AGENTS,)
    after, keys = data["next"], [("agents", "observation")]
    with loss.target_actor_network_params.to_module(loss.actor_network):
        action = loss.actor_network(after.select(*keys))["agents", "action"]

    def values(params, shown, action):
        found = []
        for member in range(2):
            with params[member].to_module(loss.qvalue_network):
                given = shown.select(*keys).set(("agents", "action"), action)
                found.append(loss.qvalue_network(given)["agents", "state_action_value"].squeeze(-1))
        return torch.stack(found)

    following = values(loss.target_qvalue_network_params, after, action).amin(0)
    alive = 1.0 - after["terminated"].float()
    target = after["agents", "reward"].squeeze(-1) + GAMMA * alive * following
    mine = values(loss.qvalue_network_params, data, data["agents", "action"])
    expected = (mine - target).square().sum(0).mean(-1)
    torch.testing.assert_close(rows, expected)


def test_noise_of_targets_stays_within_the_bounds():
    loss = matd3(policy_noise=5.0, noise_clip=5.0)
    action = loss._smoothed(torch.zeros(50, AGENTS, SIZE))
    assert action.abs().max() == 1.0
    assert action.std() > 0.5


@pytest.mark.parametrize("make", [maddpg, matd3])
def test_other_names_and_weights(make):
    torch.manual_seed(0)
    loss = make(reduction="none")
    data = batch(6)
    rows = loss(data.clone())[loss.critic_term]
    mean = make()
    mean.load_state_dict(loss.state_dict())
    weight = torch.rand(6)
    found = mean(data.clone().set("priority_weight", weight))
    if make is maddpg:  # MATD3 draws noise
        expected = (rows * weight).sum() / weight.sum()
        torch.testing.assert_close(found[loss.critic_term], expected)
    assert rows.shape == (6,)


@pytest.mark.parametrize("make", [maddpg, matd3])
def test_mistakes_are_told(make):
    with pytest.raises(ValueError, match="`others` must be 'stored' or 'policy', got `all`"):
        make("all")
