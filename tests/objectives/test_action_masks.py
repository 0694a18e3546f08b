"""Losses over masked actions: targets, expectations and entropies over allowed ones alone."""

from __future__ import annotations

import math

import pytest
import torch
from tensordict import TensorDict
from torch import nn
from torchrl import objectives
from torchrl.data import OneHot
from torchrl.modules import MLP, QValueActor

from torchrl_elegant.modules import CategoricalActor, LearnedTemperature, QNetwork, StateValue
from torchrl_elegant.objectives import A2CLoss, ClipPPOLoss, DiscreteSACLoss, DQNLoss

SEEN = {"seen": (2,)}
GAMMA = 0.9
MASK = torch.tensor([[1, 1, 0], [0, 1, 1], [1, 0, 1], [1, 1, 1]]).bool()
AFTER = torch.tensor([[1, 0, 1], [0, 1, 0], [1, 1, 0], [0, 0, 0]]).bool()


def batch() -> TensorDict:
    torch.manual_seed(0)
    index = torch.tensor([0, 1, 2, 0])
    over = torch.tensor([[False], [False], [False], [True]])
    after = {
        "seen": torch.randn(4, 2),
        "action_mask": AFTER,
        "reward": torch.randn(4, 1),
        "done": over,
        "terminated": over,
    }
    action = nn.functional.one_hot(index, 3)
    data = {"seen": torch.randn(4, 2), "action_mask": MASK, "action": action, "next": after}
    return TensorDict(data, [4])


def test_the_target_of_dqn_is_the_largest_allowed_value():
    net = QNetwork(observation=SEEN, choices=3, num_cells=(8,), action_mask="action_mask")
    loss = DQNLoss(net)
    loss.make_value_estimator(gamma=GAMMA)
    data = batch()
    inner = net.net.net
    taken = (inner(data["seen"])[0] * data["action"]).sum(-1)
    following = inner(data["next", "seen"])[0].masked_fill(~AFTER, -math.inf).amax(-1)
    following = following.masked_fill(data["next", "terminated"].squeeze(-1), 0.0)
    target = data["next", "reward"].squeeze(-1) + GAMMA * following
    expected = (taken - target).square().mean()
    found = loss(data)["loss"]
    torch.testing.assert_close(found, expected)
    found.backward()
    assert all(param.grad.isfinite().all() for param in loss.parameters())


@pytest.mark.parametrize("double", [False, True])
@pytest.mark.parametrize("form", ["ours", "theirs"])
def test_dqn_is_torchrls_over_a_masked_q_value_actor(double, form):
    torch.manual_seed(1)
    net = MLP(in_features=2, out_features=3, num_cells=[8], activation_class=nn.ReLU)
    actor = QValueActor(net, in_keys=["seen"], spec=OneHot(3), action_mask_key="action_mask")
    theirs = objectives.DQNLoss(actor, double_dqn=double, delay_value=True)
    if form == "ours":
        own = QNetwork(observation=SEEN, choices=3, num_cells=(8,), action_mask="action_mask")
        for i, layer in ((0, net[0]), (1, net[2])):
            getattr(own.net.net, f"weight_{i}").data.copy_(layer.weight.data.t()[None])
            getattr(own.net.net, f"bias_{i}").data.copy_(layer.bias.data[None, None])
        ours = DQNLoss(own, double_dqn=double)
    else:
        ours = DQNLoss(actor, double_dqn=double)
    values = []
    for loss in (theirs, ours):
        loss.make_value_estimator(gamma=GAMMA)
        data = batch()
        # TorchRL's value of a state without an allowed action is not a number.
        data["next", "action_mask"][3] = True
        values.append(loss(data)["loss"])
    torch.testing.assert_close(values[1], values[0])


def test_discrete_sac_expects_over_allowed_actions():
    """Equations (10) to (12), term by term, with sums over allowed actions."""
    actor = CategoricalActor(observation=SEEN, choices=3, num_cells=(8,), action_mask="action_mask")
    nets = QNetwork(
        observation=SEEN, choices=3, num_members=2, num_cells=(8,), action_mask="action_mask"
    )
    temperature = LearnedTemperature(alpha=0.5)
    loss = DiscreteSACLoss(
        actor, nets, temperature=temperature, loss_function="l2", target_entropy_weight=0.5
    )
    loss.make_value_estimator(gamma=GAMMA)
    data, inner = batch(), nets.net.net

    def policy(entries):
        logits = actor.net.net(entries["seen"])
        mask = entries["action_mask"] | ~entries["action_mask"].any(-1, keepdim=True)
        return [
            (row[allowed].log_softmax(-1), allowed)
            for row, allowed in zip(logits, mask, strict=True)
        ]

    def values(entries):
        return inner(entries["seen"]).amin(0)

    soft = torch.stack(
        [
            (log_p.exp() * (q[allowed] - 0.5 * log_p)).sum()
            for (log_p, allowed), q in zip(policy(data["next"]), values(data["next"]), strict=True)
        ]
    )
    target = data["next", "reward"].squeeze(-1) + GAMMA * soft.detach() * ~data[
        "next", "terminated"
    ].squeeze(-1)
    taken = (inner(data["seen"]) * data["action"]).sum(-1)
    critic = (taken - target).square().sum(0).mean()
    pairs = list(zip(policy(data), values(data).detach(), strict=True))
    acting = torch.stack([(p.exp() * (0.5 * p - q[a])).sum() for (p, a), q in pairs]).mean()
    entropy = torch.stack([-(p.exp() * p).sum() for (p, _), _ in pairs]).detach()
    # Half of the largest entropy that each state allows.
    goal = torch.tensor([0.5 * math.log(2)] * 3 + [0.5 * math.log(3)])
    found = loss(data)
    torch.testing.assert_close(found["loss_qvalue"], critic)
    torch.testing.assert_close(found["loss_actor"], acting)
    torch.testing.assert_close(found["entropy"], entropy.mean())
    torch.testing.assert_close(found["loss_alpha"], (-loss.log_alpha * (goal - entropy)).mean())
    sum(found[name] for name in ("loss_qvalue", "loss_actor", "loss_alpha")).backward()
    assert all(param.grad.isfinite().all() for param in loss.parameters() if param.requires_grad)


@pytest.mark.parametrize("kind", [ClipPPOLoss, A2CLoss])
def test_on_policy_losses_see_the_probabilities_of_allowed_actions(kind):
    actor = CategoricalActor(observation=SEEN, choices=3, num_cells=(8,), action_mask="action_mask")
    loss = kind(actor, StateValue(observation=SEEN), entropy_coeff=0.5)
    data = batch()
    log_probs = actor.net.net(data["seen"]).masked_fill(~MASK, -math.inf).log_softmax(-1)
    taken = log_probs.gather(-1, data["action"].argmax(-1, keepdim=True)).squeeze(-1)
    advantage = torch.tensor([[1.0], [-2.0], [0.5], [3.0]])
    rows = data.set("action_log_prob", taken.detach()).set("advantage", advantage)
    rows = rows.set("value_target", torch.zeros(4, 1))
    entropy = torch.distributions.Categorical(logits=log_probs).entropy().mean()
    gain = advantage if kind is ClipPPOLoss else advantage * taken[:, None]
    terms = loss.backward_terms(rows)
    torch.testing.assert_close(terms["entropy"], entropy.detach())
    torch.testing.assert_close(terms["loss_entropy"].detach(), -0.5 * entropy.detach())
    torch.testing.assert_close(terms["loss_objective"].detach(), -gain.mean().detach())
    assert all(param.grad.isfinite().all() for param in loss.parameters())
