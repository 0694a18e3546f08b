"""MAPPO and IPPO: by hand, against TorchRL, and normalized values."""

from __future__ import annotations

from copy import deepcopy

import pytest
import torch
from ppo_cases import assert_equal_losses, make_actor, make_value
from tensordict import TensorDict
from tensordict.nn import NormalParamExtractor, TensorDictModule
from torch import nn
from torchrl import objectives
from torchrl.modules import (
    MultiAgentMLP,
    PopArtValueNorm,
    ProbabilisticActor,
    RunningValueNorm,
    TanhNormal,
)
from torchrl.objectives import ValueEstimators

from torchrl_elegant.objectives import IPPOLoss, MAPPOLoss, RolloutLoss
from torchrl_elegant.objectives.common.update_loss import minimized
from torchrl_elegant.objectives.compiled.loss import CompiledLoss

AGENTS, SEEN, SIZE, GAMMA, LMBDA = 3, 4, 3, 0.9, 0.8
OURS, THEIRS = "ours", "theirs"
NORMS = {"popart": lambda: PopArtValueNorm(beta=0.9), "running": RunningValueNorm}


def critic_of(group="agents", *, centralized=True):
    options = {"centralized": centralized, "share_params": False, "num_cells": 8, "depth": 1}
    net = MultiAgentMLP(SEEN, 1, AGENTS, **options)
    return TensorDictModule(net, [(group, "observation")], [(group, "state_value")])


def torchrl_actor(group="agents"):
    options = {"centralized": False, "share_params": True, "num_cells": 8, "depth": 1}
    net = nn.Sequential(MultiAgentMLP(SEEN, 2 * SIZE, AGENTS, **options), NormalParamExtractor())
    parts = [(group, "loc"), (group, "scale")]
    return ProbabilisticActor(
        TensorDictModule(net, [(group, "observation")], parts),
        in_keys=parts,
        out_keys=[(group, "action")],
        distribution_class=TanhNormal,
        return_log_prob=True,
        log_prob_key=(group, "action_log_prob"),
    )


def nets_of(kind, group="agents", actor="gaussian"):
    """Actor and critic: the actor's parameters are shared, and a critic of ours sees one agent."""
    if kind == THEIRS:
        return torchrl_actor(group), critic_of(group)
    seen = {(*path(group), "observation"): (SEEN,)}
    key = (*path(group), "action")
    critic = make_value(seen, value_key=(*path(group), "state_value"))
    return make_actor(actor, seen, action_key=key), critic


def path(group):
    return (group,) if isinstance(group, str) else group


@torch.no_grad()
def rollout_of(actor, *shape, group="agents", team_reward=False):
    """Random steps of ``actor``; some end, and some are cut short."""
    key = path(group)

    def seen():
        return TensorDict({}, shape).set((*key, "observation"), torch.randn(*shape, AGENTS, SEEN))

    terminated = torch.rand(*shape, 1) < 0.2
    after = seen().set("terminated", terminated)
    after.set("done", terminated | (torch.rand(*shape, 1) < 0.2))
    reward = "reward" if team_reward else (*key, "reward")
    after.set(reward, 3.0 + torch.randn(*shape, *([1] if team_reward else [AGENTS, 1])))
    return actor(seen()).set("next", after)


@torch.no_grad()
def rows_of(actor, count=20, group="agents"):
    """Rows of an older policy, so that ratios lie on both sides of every bound."""
    rows = rollout_of(actor, count, group=group)
    drawn = rows.get((*path(group), "action_log_prob"))
    rows.set((*path(group), "action_log_prob"), drawn + 0.3 * torch.randn_like(drawn))
    for name in ("advantage", "value_target"):
        rows.set(name, torch.randn(count, AGENTS, 1))
    return rows.set((*path(group), "state_value"), torch.randn(count, AGENTS, 1))


def twins(kind, loss, actor="gaussian", **options):
    """TorchRL's loss and ours over equal networks."""
    nets = nets_of(kind, actor=actor)
    theirs = getattr(objectives, loss.__name__)(*deepcopy(nets), **options)
    theirs.set_keys(value=("agents", "state_value"))
    return theirs, loss(*nets, **options)


@pytest.mark.parametrize("kind", [OURS, THEIRS])
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"normalize_advantage_exclude_dims": (-2,)},
        {"normalize_advantage": False, "clip_value": 0.3, "loss_critic_type": "l2"},
        {"reduction": "sum", "entropy_bonus": False},
    ],
)
@pytest.mark.filterwarnings("ignore:.*reparameterized.*")
def test_it_is_torchrls_loss(kind, options):
    torch.manual_seed(0)
    theirs, ours = twins(kind, MAPPOLoss, **({"normalize_advantage_exclude_dims": ()} | options))
    if kind == THEIRS:  # its entropy is estimated from draws
        theirs.entropy_bonus = ours.entropy_bonus = False
    assert_equal_losses(theirs, ours, rows_of(ours.actor_network))


@pytest.mark.parametrize("actor", ["one_hot", "categorical", "multi"])
def test_discrete_actions_give_torchrls_loss(actor):
    torch.manual_seed(0)
    theirs, ours = twins(OURS, IPPOLoss, actor, normalize_advantage_exclude_dims=())
    rows = rows_of(ours.actor_network)
    assert ours._is_direct(rows)
    assert_equal_losses(theirs, ours, rows)


@pytest.mark.parametrize("team_reward", [False, True])
@pytest.mark.parametrize("kind", [OURS, THEIRS])
def test_estimates_are_torchrls(kind, team_reward):
    torch.manual_seed(0)
    theirs, ours = twins(kind, MAPPOLoss)
    rollout = rollout_of(ours.actor_network, 5, 7, team_reward=team_reward)
    found = []
    for loss in (theirs, ours):
        loss.set_keys(reward="reward" if team_reward else ("agents", "reward"))
        loss.make_value_estimator(gamma=GAMMA, lmbda=LMBDA)
        data = loss.value_estimator(rollout.clone(), params=loss.critic_network_params.detach())
        again = ours.estimate(rollout.clone()) if loss is ours else data
        torch.testing.assert_close(again["advantage"], data["advantage"])
        found.append([data[key] for key in ("advantage", "value_target")])
        found[-1] += [data["agents", "state_value"], data["next", "agents", "state_value"]]
    torch.testing.assert_close(*found)


@pytest.mark.parametrize("kind", [OURS, THEIRS])
def test_rollouts_without_advantages_are_estimated_first(kind):
    theirs, ours = twins(kind, MAPPOLoss, normalize_advantage_exclude_dims=())
    rollout = rollout_of(ours.actor_network, 5, 7)
    for loss in (theirs, ours):
        loss.entropy_bonus = False
        loss.set_keys(reward=("agents", "reward"))
    assert_equal_losses(theirs, ours, rollout)
    normed = MAPPOLoss(*nets_of(kind), value_norm=RunningValueNorm(), entropy_bonus=False)
    normed.set_keys(reward=("agents", "reward"))
    assert normed(rollout)["loss_critic"].isfinite()
    assert ("agents", "state_value") not in rollout.keys(True)


@pytest.mark.parametrize("norm", [None, *NORMS])
@pytest.mark.parametrize("kind", [OURS, THEIRS])
def test_advantages_of_denormalized_values_step_by_step(kind, norm):
    torch.manual_seed(0)
    value_norm = norm and NORMS[norm]()
    loss = MAPPOLoss(*nets_of(kind), value_norm=value_norm)
    loss.set_keys(reward=("agents", "reward"))
    loss.make_value_estimator(gamma=GAMMA, lmbda=LMBDA)
    if value_norm is not None:
        value_norm.update(5.0 + 2.0 * torch.randn(100, 1))
    before = deepcopy(value_norm)
    rollout = rollout_of(loss.actor_network, 4, 6)
    found = loss.estimate(rollout.clone())

    def value_of(row):
        raw = judged(loss, row)
        return raw if before is None else before.denormalize(raw)

    expected = torch.zeros(4, 6, AGENTS, 1)
    targets = torch.zeros(4, 6, AGENTS, 1)
    for env in range(4):
        following = torch.zeros(AGENTS, 1)
        for step in reversed(range(6)):
            row = rollout[env, step]
            after = row["next"]
            alive, goes_on = 1.0 - after["terminated"].float(), 1.0 - after["done"].float()
            value = value_of(row)
            delta = after["agents", "reward"] + GAMMA * alive * value_of(after) - value
            following = delta + GAMMA * LMBDA * goes_on * following
            expected[env, step] = following
            targets[env, step] = following + value
    torch.testing.assert_close(found["advantage"], expected)
    torch.testing.assert_close(found["agents", "state_value"], judged(loss, rollout))
    if before is None:
        torch.testing.assert_close(found["value_target"], targets)
        return
    before.update(targets)
    torch.testing.assert_close(found["value_target"], before.normalize(targets))
    torch.testing.assert_close(value_norm.denormalize(found["value_target"]), targets)


@torch.no_grad()
def judged(loss, rows):
    data = rows.select(("agents", "observation"))
    with loss.critic_network_params.to_module(loss.critic_network):
        return loss.critic_network(data)["agents", "state_value"]


def test_what_is_cut_short_bootstraps_and_what_ends_does_not():
    loss = IPPOLoss(*nets_of(OURS))
    loss.set_keys(reward=("agents", "reward"))
    loss.make_value_estimator(gamma=GAMMA, lmbda=LMBDA)
    rollout = rollout_of(loss.actor_network, 1, 1)
    rollout["next", "done"].fill_(True)
    for ends in (False, True):
        rollout["next", "terminated"].fill_(ends)
        data = loss.estimate(rollout.clone())
        later = 0.0 if ends else GAMMA * data["next", "agents", "state_value"]
        expected = rollout["next", "agents", "reward"] + later
        torch.testing.assert_close(data["value_target"], expected)


def test_losses_and_gradients_by_hand():
    torch.manual_seed(0)
    actor, critic = nets_of(OURS)
    loss = IPPOLoss(actor, critic, entropy_coeff=0.1, loss_critic_type="l2", critic_coeff=0.5)
    rows = rows_of(actor)
    terms = loss(rows)
    gains, distances, entropies = [], [], []
    spread = (rows["advantage"] - rows["advantage"].mean()) / rows["advantage"].std()
    for row, advantage in zip(rows.unbind(0), spread, strict=True):
        for agent in range(AGENTS):
            seen = row["agents", "observation"][agent]
            dist = actor.get_dist(TensorDict({actor.in_keys[0]: seen}, []))
            log_prob = dist.log_prob(row["agents", "action"][agent])
            ratio = (log_prob - row["agents", "action_log_prob"][agent]).exp()
            a = advantage[agent, 0]
            gains.append(torch.min(ratio * a, ratio.clamp(0.8, 1.2) * a))
            value = critic.net(seen)[0]
            distances.append((value - row["value_target"][agent, 0]).square())
            entropies.append(dist.entropy())
    expected = {
        "loss_objective": -torch.stack(gains).mean(),
        "loss_critic": 0.5 * torch.stack(distances).mean(),
        "loss_entropy": -0.1 * torch.stack(entropies).mean(),
    }
    params = list(loss.parameters())
    for name, value in expected.items():
        torch.testing.assert_close(terms[name], value)
    found = torch.autograd.grad(minimized(dict(terms.items())), params)
    wanted = torch.autograd.grad(sum(expected.values()), params)
    torch.testing.assert_close(found, wanted)


@pytest.mark.parametrize("kind", [OURS, THEIRS])
@pytest.mark.filterwarnings("ignore:.*reparameterized.*")
def test_each_term_reaches_its_own_network(kind):
    loss = MAPPOLoss(*nets_of(kind))
    terms = loss(rows_of(loss.actor_network))
    for name, network in (("loss_objective", "actor_network"), ("loss_critic", "critic_network")):
        loss.zero_grad()
        terms[name].backward(retain_graph=True)
        reached = {n.split("_params")[0] for n, p in loss.named_parameters() if p.grad is not None}
        assert reached == {network}


def test_each_agent_follows_its_own_advantage():
    """Only agent 1 has an advantage: the parameters of the others' policies stay."""
    actor = torchrl_actor()
    options = {"centralized": False, "share_params": False, "num_cells": 8, "depth": 1}
    net = MultiAgentMLP(SEEN, 2 * SIZE, AGENTS, **options)
    actor[0].module[0] = net
    loss = MAPPOLoss(actor, critic_of(), normalize_advantage=False, entropy_bonus=False)
    rows = rows_of(actor)
    rows["advantage"][:, [0, 2]] = 0.0
    loss(rows)["loss_objective"].backward()
    moved = [p.grad.flatten(1).abs().sum(1) for p in loss.actor_network_params.parameters()]
    assert [bool(each > 0) for each in torch.stack(moved).sum(0)] == [False, True, False]


@pytest.mark.parametrize("group", ["red", ("teams", "red")])
def test_other_groups_give_the_same_numbers(group):
    torch.manual_seed(0)
    usual = IPPOLoss(*nets_of(OURS))
    other = IPPOLoss(*nets_of(OURS, group))
    other.load_state_dict(usual.state_dict())
    usual.set_keys(reward=("agents", "reward"))
    key = path(group)
    names = {name: (*key, name) for name in ("reward", "advantage", "value_target")}
    other.set_keys(**names)
    rollout = rollout_of(usual.actor_network, 3, 4)
    renamed = TensorDict({}, rollout.shape)
    for entry, value in rollout.items(True, True):
        name = (entry,) if isinstance(entry, str) else entry
        at = tuple(part for each in name for part in (key if each == "agents" else (each,)))
        renamed.set(at, value)
    found = []
    for loss, data in ((usual, rollout), (other, renamed)):
        rows = loss.estimate(data.clone()).select(*loss.row_keys).reshape(-1)
        assert rows.shape == (12,)
        assert loss._is_direct(rows)
        found.append({**loss.update_terms(rows), **loss.report(rows)})
        assert loss.divergence(rows).abs() < 1e-6
    torch.testing.assert_close(*found)


@pytest.mark.parametrize("norm", NORMS)
def test_statistics_are_stored_and_move_once_a_rollout(norm):
    torch.manual_seed(0)
    loss = MAPPOLoss(*nets_of(OURS), value_norm=NORMS[norm]())
    loss.set_keys(reward=("agents", "reward"))
    assert isinstance(loss, RolloutLoss)
    rollout = rollout_of(loss.actor_network, 3, 4)
    rows = loss.estimate(rollout.clone()).select(*loss.row_keys).reshape(-1)
    kept = {name: value.clone() for name, value in loss.value_norm.state_dict().items()}
    minimized(loss.backward_terms(rows)), loss(rows), loss.report(rows)
    torch.testing.assert_close(loss.value_norm.state_dict(), kept)
    other = MAPPOLoss(*nets_of(OURS), value_norm=NORMS[norm]())
    other.set_keys(reward=("agents", "reward"))
    _ = other.value_estimator
    other.load_state_dict(loss.state_dict())
    copied = deepcopy(loss)
    assert copied.value_estimator.value_norm is copied.value_norm
    again = [each.estimate(rollout.clone())["advantage"] for each in (loss, other, copied)]
    torch.testing.assert_close(again[0], again[1])
    torch.testing.assert_close(again[0], again[2])
    assert any(not torch.equal(v, kept[k]) for k, v in loss.value_norm.state_dict().items())
    kept = {name: value.clone() for name, value in loss.value_norm.state_dict().items()}
    loss.eval().estimate(rollout.clone())
    torch.testing.assert_close(loss.value_norm.state_dict(), kept)


def test_statistics_are_those_of_all_ranks():
    torch.manual_seed(0)
    loss = MAPPOLoss(*nets_of(OURS), value_norm=RunningValueNorm())
    loss.set_keys(reward=("agents", "reward"))
    elsewhere = torch.full((3, 4, AGENTS, 1), 7.0)
    loss.connect(lambda part: [part, elsewhere])
    mine = loss.estimate(rollout_of(loss.actor_network, 3, 4))["value_target"]
    norm = loss.value_norm
    both = torch.cat([norm.denormalize(mine), elsewhere])
    torch.testing.assert_close(norm.mean, both.mean().reshape(1))
    torch.testing.assert_close(norm.scale(), both.std(correction=0).reshape(1))


def test_a_recorded_update_is_the_plain_one(graphs):
    torch.manual_seed(0)
    loss = IPPOLoss(*nets_of(OURS), value_norm=RunningValueNorm())
    loss.set_keys(reward=("agents", "reward"))
    rows = loss.estimate(rollout_of(loss.actor_network, 3, 4)).select(*loss.row_keys).reshape(-1)
    found = []
    for form in (loss, CompiledLoss(loss)):
        loss.zero_grad(set_to_none=True)
        terms = form.backward_terms(rows)
        found.append((terms, [p.grad.clone() for p in loss.parameters()]))
    torch.testing.assert_close(*found)
    assert len(graphs) == 1


def test_vtrace_of_the_present_policy_is_gae():
    torch.manual_seed(0)
    loss = IPPOLoss(*nets_of(OURS), value_norm=RunningValueNorm())
    loss.set_keys(reward=("agents", "reward"))
    rollout = rollout_of(loss.actor_network, 3, 4)
    # Each step begins at the last one's end; else the two sum up values of different states.
    seen = rollout["agents", "observation"]
    rollout["next", "agents", "observation"][:, :-1] = seen[:, 1:]
    other, found = deepcopy(loss), []
    for each, kind in ((loss, ValueEstimators.GAE), (other, ValueEstimators.VTrace)):
        each.make_value_estimator(kind, gamma=GAMMA, lmbda=1.0)
        data = each.estimate(rollout.clone())
        found.append((data["advantage"], data["value_target"]))
    torch.testing.assert_close(*found)


def test_mistakes_are_told():
    nets = nets_of(OURS)
    with pytest.raises(ValueError, match=r"`value_norm` must be a .*ValueNorm or None, got `bool`"):
        MAPPOLoss(*nets, value_norm=True)
    loss = MAPPOLoss(*nets, value_norm=RunningValueNorm())
    with pytest.raises(ValueError, match="`value_type` must be one of MAGAE, GAE, VTrace"):
        loss.make_value_estimator(ValueEstimators.TD0)
    loss.make_value_estimator(shifted=True)
    with pytest.raises(ValueError, match="`value_norm` must be None where TorchRL's own code"):
        loss.estimate(rollout_of(nets[0], 2, 3))
