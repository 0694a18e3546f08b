"""MASAC and ISAC: by hand, against SAC of one agent, and who reaches whom."""

from __future__ import annotations

from copy import deepcopy

import pytest
import torch
from tensordict import TensorDict
from tensordict.nn import NormalParamExtractor, TensorDictModule
from torch import nn
from torchrl.data import Bounded, Composite
from torchrl.modules import MultiAgentMLP, ProbabilisticActor, TanhNormal
from torchrl.objectives import SoftUpdate

from torchrl_elegant.modules import EnsembleCritic, FixedTemperature, SquashedGaussianActor
from torchrl_elegant.objectives import ISACLoss, MASACLoss, SACLoss
from torchrl_elegant.objectives.common.update_loss import minimized
from torchrl_elegant.objectives.compiled.loss import CompiledLoss

AGENTS, SEEN, SIZE, GAMMA = 3, 4, 2, 0.9


class Judge(nn.Module):
    """A value for each agent, of all observations and actions."""

    def __init__(self, agents: int, *, centralized: bool) -> None:
        super().__init__()
        options = {"centralized": centralized, "share_params": False, "num_cells": 8, "depth": 1}
        self.net = MultiAgentMLP(SEEN + SIZE, 1, agents, **options)

    def forward(self, seen, action):
        return self.net(torch.cat([seen, action], -1))


def critic_of(group=("agents",), agents=AGENTS, *, centralized=True):
    keys = [(*group, "observation"), (*group, "action")]
    judge = Judge(agents, centralized=centralized)
    return TensorDictModule(judge, keys, [(*group, "state_action_value")])


def spec_of(group=("agents",), agents=AGENTS):
    action = Bounded(-torch.ones(agents, SIZE), torch.ones(agents, SIZE))
    spec = Composite(action=action, shape=(agents,))
    for name in reversed(group):
        spec = Composite({name: spec})
    return spec


def actor_of(group=("agents",), agents=AGENTS, *, share_params=True):
    options = {"centralized": False, "share_params": share_params, "num_cells": 8, "depth": 1}
    net = nn.Sequential(MultiAgentMLP(SEEN, 2 * SIZE, agents, **options), NormalParamExtractor())
    parts = [(*group, "loc"), (*group, "scale")]
    return ProbabilisticActor(
        TensorDictModule(net, [(*group, "observation")], parts),
        spec=spec_of(group, agents),
        in_keys=parts,
        out_keys=[(*group, "action")],
        distribution_class=TanhNormal,
        return_log_prob=True,
    )


def own_nets(group=("agents",)):
    """Networks of this package: one for all agents, each of which sees itself alone."""
    seen, action = {(*group, "observation"): (SEEN,)}, (*group, "action")
    bounds = {"low": [-1.0] * SIZE, "high": [1.0] * SIZE}
    cells = {"num_cells": (8,)}
    actor = SquashedGaussianActor(observation=seen, action_key=action, **bounds, **cells)
    return actor, EnsembleCritic(observation=seen, action_shape=(SIZE,), action_key=action, **cells)


def batch(*shape, group=("agents",), agents=AGENTS, team_reward=False):
    terminated = torch.rand(*shape, 1) < 0.4
    after = TensorDict({"terminated": terminated}, shape)
    after.set("done", terminated | (torch.rand(*shape, 1) < 0.3))
    after.set((*group, "observation"), torch.randn(*shape, agents, SEEN))
    reward = ("reward",) if team_reward else (*group, "reward")
    after.set(reward, torch.randn(*shape, *([1] if team_reward else [agents, 1])))
    data = TensorDict({"next": after}, shape)
    data.set((*group, "observation"), torch.randn(*shape, agents, SEEN))
    return data.set((*group, "action"), torch.rand(*shape, agents, SIZE) * 1.8 - 0.9)


def masac(others="stored", *, share_params=True, **options):
    actor = actor_of(share_params=share_params)
    return made(MASACLoss(actor, critic_of(), others=others, **options))


def isac(**options):
    return made(ISACLoss(*own_nets(), **options))


def made(loss):
    loss.make_value_estimator(gamma=GAMMA)
    SoftUpdate(loss, tau=0.5)
    for target in loss.target_qvalue_network_params.values(True, True):
        target.data.normal_(std=0.5)
    return loss


@pytest.fixture
def noise(monkeypatch):
    """Actions that the policy draws are its modes, moved by a fixed amount."""

    def same(size, *args, **kwargs):
        return torch.full(tuple(size), 0.3)

    monkeypatch.setattr(torch.distributions.normal, "_standard_normal", same)


def drawn(loss, row):
    """Action and log-probability of each agent, as the loss draws them."""
    with loss.actor_network_params.to_module(loss.actor_network):
        dist = loss.actor_network.get_dist(row.select(("agents", "observation")))
        action = dist.rsample()
        return action, dist.log_prob(action)


def judged(loss, params, row, action):
    """Values of both critics, ``[2, agents]``."""
    found = []
    for member in range(2):
        data = row.select(("agents", "observation")).set(("agents", "action"), action)
        with params[member].to_module(loss.qvalue_network):
            out = loss.qvalue_network(data)["agents", "state_action_value"]
        found.append(out.squeeze(-1))
    return torch.stack(found)


@pytest.mark.parametrize("team_reward", [False, True])
def test_the_critics_loss_by_hand(noise, team_reward):
    # As many rows as agents: whatever is spread over the wrong dimension would not be noticed.
    data = batch(AGENTS, team_reward=team_reward)
    loss = masac(loss_function="l2", alpha_init=0.5)
    if team_reward:
        loss.set_keys(reward="reward")
    value = loss(data)["loss_qvalue"]
    errors = []
    for row in data.unbind(0):
        after = row["next"]
        action, log_prob = drawn(loss, after)
        following = judged(loss, loss.target_qvalue_network_params, after, action).amin(0)
        reward = after["reward"] if team_reward else after["agents", "reward"].squeeze(-1)
        alive = 1.0 - after["terminated"].float()
        target = reward + GAMMA * alive * (following - 0.5 * log_prob)
        mine = judged(loss, loss.qvalue_network_params, row, row["agents", "action"])
        errors.append((mine - target).detach())
    errors = torch.stack(errors)  # [rows, 2, agents]
    torch.testing.assert_close(value.detach(), errors.square().sum(1).mean())
    torch.testing.assert_close(data["td_error"], errors.abs().amax((1, 2)))
    assert data["next", "terminated"].any()
    assert not data["next", "terminated"].all()


@pytest.mark.parametrize("others", ["stored", "policy"])
def test_the_actors_and_the_temperatures_loss_by_hand(noise, others):
    data, loss = batch(5), masac(others, alpha_init=0.5)
    gains, log_probs = [], []
    for row in data.unbind(0):
        action, log_prob = drawn(loss, row)
        log_probs.append(log_prob)
        for agent in range(AGENTS):
            shown = action.clone()
            for other in range(AGENTS):
                if other != agent and others == "stored":
                    shown[other] = row["agents", "action"][other]
            value = judged(loss, loss.qvalue_network_params, row, shown)[:, agent].amin()
            gains.append(0.5 * log_prob[agent] - value)
    expected = torch.stack(gains).mean()
    log_prob = torch.stack(log_probs).detach()
    terms = loss(data)
    torch.testing.assert_close(terms["loss_actor"], expected)
    # One agent's action has two numbers, whatever the number of agents.
    by_hand = -loss.log_alpha * (log_prob - SIZE).mean()
    torch.testing.assert_close(terms["loss_alpha"], by_hand)
    torch.testing.assert_close(terms["entropy"], -log_prob.mean())
    params = list(loss.actor_network_params.parameters())
    found = torch.autograd.grad(terms["loss_actor"], params)
    torch.testing.assert_close(found, torch.autograd.grad(expected, params))


@pytest.mark.parametrize("others", ["stored", "policy"])
def test_a_policy_follows_the_values_of_its_own_agent_alone(others):
    """The values of agent 0 are made flat in everything: its policy then stays as it is."""
    loss, data = (
        masac(others, share_params=False, temperature=FixedTemperature(alpha=1e-9)),
        batch(6),
    )
    for value in loss.qvalue_network_params.values(True, True):
        value.data[:, 0].zero_()
    loss(data)["loss_actor"].backward()
    moved = [p.grad.abs().flatten(1).sum(1) for p in loss.actor_network_params.parameters()]
    moved = torch.stack(moved).sum(1 if len(moved) == AGENTS else 0)
    first, rest = moved[0], moved[1:].min()
    assert rest > 1e-6
    assert (first < 1e-7) if others == "stored" else (first > 1e-6)


@pytest.mark.parametrize("make", [masac, isac])
def test_each_term_reaches_its_own_networks(make):
    loss, data = make(), batch(6)
    terms = loss(data)
    for name, part in (
        ("loss_actor", "actor_network"),
        ("loss_qvalue", "qvalue_network"),
        ("loss_alpha", "log_alpha"),
    ):
        loss.zero_grad()
        terms[name].backward(retain_graph=True)
        reached = {n.split("_params")[0] for n, p in loss.named_parameters() if p.grad is not None}
        assert reached == {part}


@pytest.mark.parametrize("others", ["stored", "policy"])
def test_a_team_of_one_is_sac(others):
    actor, critic = actor_of(agents=1), critic_of(agents=1)
    team = MASACLoss(actor, critic, others=others)
    single = SACLoss(actor, critic)
    single.set_keys(state_action_value=("agents", "state_action_value"))
    group = {name: ("agents", name) for name in ("reward", "done", "terminated")}
    single.set_keys(**group, value=("agents", "state_value"))
    data = batch(7, agents=1)
    spread = data.clone()
    for name in ("done", "terminated"):
        spread.set(("next", "agents", name), data["next", name].unsqueeze(-2))
    found = []
    single.load_state_dict(made(team).state_dict())
    single.make_value_estimator(gamma=GAMMA)
    for loss, shown in ((team, data), (single, spread)):
        torch.manual_seed(1)
        terms = loss(shown)
        loss.zero_grad()
        minimized(dict(terms.items())).backward()
        grads = [p.grad.clone() for p in loss.parameters()]
        found.append((dict(terms.detach().items()), grads, shown["td_error"].reshape(7)))
    torch.testing.assert_close(*found)


def test_critics_of_one_agent_ask_nothing_of_the_others():
    """With such critics, stored actions and policies of the others are the same."""
    actor, critic = actor_of(), critic_of(centralized=False)
    data, found = batch(6), []
    for make in (ISACLoss, MASACLoss):
        torch.manual_seed(1)
        loss = made(make(actor, critic))
        terms = loss(data.clone())
        loss.zero_grad()
        minimized(dict(terms.items())).backward()
        found.append((dict(terms.detach().items()), [p.grad.clone() for p in loss.parameters()]))
    torch.testing.assert_close(*found)


def test_networks_of_this_package_give_what_agents_one_by_one_give():
    team, data = isac(reduction="none"), batch(5)
    single = SACLoss(team.actor_network, team.qvalue_network, reduction="none")
    single.load_state_dict(team.state_dict())
    single.set_keys(action=("agents", "action"), reward=("agents", "reward"))
    single.make_value_estimator(gamma=GAMMA)
    rows = data.unsqueeze(-1).expand(5, AGENTS).clone()
    rows["agents"] = data["agents"].clone().auto_batch_size_(2)
    rows["next", "agents"] = data["next", "agents"].clone().auto_batch_size_(2)
    found = []
    for loss, shown in ((team, data), (single, rows)):
        torch.manual_seed(1)
        terms = loss(shown)
        found.append([terms[name] for name in ("loss_actor", "loss_qvalue", "loss_alpha")])
    found[1] = [term.mean(-1) for term in found[1]]
    torch.testing.assert_close(*found)
    assert found[0][0].shape == (5,)


@pytest.mark.parametrize("group", [("red",), ("teams", "red")])
def test_other_groups_and_a_stored_state_give_the_same_numbers(group):
    usual = masac()
    other = made(MASACLoss(actor_of(group), critic_of(group)))
    names = {name: (*group, name) for name in ("reward", "state_action_value")}
    other.set_keys(**names, value=(*group, "state_value"))
    other.load_state_dict(usual.state_dict())
    data, found = batch(6), []
    renamed = TensorDict({"next": data["next"].select("done", "terminated")}, [6])
    for name in ("observation", "action"):
        renamed.set((*group, name), data["agents", name])
    for name in ("observation", "reward"):
        renamed.set(("next", *group, name), data["next", "agents", name])
    keys = set(renamed.keys(True, True))
    for loss, shown in ((usual, data), (other, renamed)):
        torch.manual_seed(1)
        found.append((dict(loss(shown).items()), shown["td_error"]))
    torch.testing.assert_close(*found)
    assert set(other.in_keys) == keys


def test_weights_of_rows():
    loss, data = masac(), batch(6)
    rows = masac(reduction="none")
    rows.load_state_dict(loss.state_dict())
    weight, found = torch.rand(6), []
    for each, shown in ((rows, data), (loss, data.clone().set("priority_weight", weight))):
        torch.manual_seed(1)
        found.append(each(shown)["loss_qvalue"])
    assert found[0].shape == (6,)
    torch.testing.assert_close((found[0] * weight).sum() / weight.sum(), found[1])


@pytest.mark.parametrize("make", [masac, isac])
def test_a_recorded_update_is_the_plain_one(make, graphs):
    loss, data = make(), batch(5)
    found = []
    for form in (loss, CompiledLoss(loss)):
        loss.zero_grad(set_to_none=True)
        torch.manual_seed(2)
        terms = form.backward_terms(data.clone())
        found.append((terms, [p.grad.clone() for p in loss.parameters()]))
    torch.testing.assert_close(*found)
    assert len(graphs) == 1


def test_the_target_entropy_is_that_of_one_agent():
    assert masac().target_entropy == -SIZE
    assert isac().target_entropy == -SIZE
    assert masac(target_entropy=-0.5).target_entropy == -0.5
    leaf = spec_of()["agents", "action"]
    bare = actor_of()
    bare = ProbabilisticActor(
        deepcopy(bare[0]),
        in_keys=[("agents", "loc"), ("agents", "scale")],
        out_keys=[("agents", "action")],
        distribution_class=TanhNormal,
        return_log_prob=True,
    )
    assert MASACLoss(bare, critic_of(), action_spec=leaf).target_entropy == -SIZE
    flat = Composite({("agents", "action"): leaf})
    assert MASACLoss(bare, critic_of(), action_spec=flat).target_entropy == -SIZE


def test_mistakes_are_told():
    with pytest.raises(ValueError, match="`others` must be 'stored' or 'policy', got `all`"):
        masac("all")
    with pytest.raises(ValueError, match="`others` must be left out of ISACLoss"):
        isac(others="stored")
    with pytest.raises(ValueError, match="`skip_done_states` must be False for a team"):
        masac(skip_done_states=True)
