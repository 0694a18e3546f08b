"""Losses over networks that see pictures: whose encoder learns, whose follows, whose is read."""

from __future__ import annotations

import pickle
from copy import deepcopy

import pytest
import torch
from tensordict import TensorDict
from torch.func import functional_call

from torchrl_elegant.functional import squashed_sample
from torchrl_elegant.modules import (
    CategoricalActor,
    EnsembleCritic,
    SquashedGaussianActor,
    StateValue,
)
from torchrl_elegant.objectives import ClipPPOLoss, LeanSoftUpdate, ModSACLoss, SACLoss

SHAPES = {"eye": (3, 10, 10), "arm": (2,)}
CELLS = {"observation": SHAPES, "num_cells": (8,)}


def observe(*shape: int) -> dict[str, torch.Tensor]:
    eye = torch.randint(256, (*shape, 3, 10, 10), dtype=torch.uint8)
    return {"eye": eye, "arm": torch.randn(*shape, 2)}


def make_batch(*shape: int) -> TensorDict:
    terminated = torch.rand(*shape, 1) < 0.3
    truncated = (torch.rand(*shape, 1) < 0.3) & ~terminated
    after = {
        "reward": torch.randn(*shape, 1),
        "terminated": terminated,
        "done": terminated | truncated,
    }
    now = {"action": torch.rand(*shape, 1) * 2 - 1}
    return TensorDict({**observe(*shape), **now, "next": {**observe(*shape), **after}}, shape)


def sac(kind=SACLoss, **options) -> SACLoss:
    actor = SquashedGaussianActor(low=[-1.0], high=[1.0], **CELLS)
    loss = kind(actor, EnsembleCritic(action_shape=(1,), num_critics=3, **CELLS), **options)
    loss.make_value_estimator(gamma=0.9)
    for value in loss.target_qvalue_network_params.values(True, True):
        value.data.add_(0.1 * torch.randn_like(value))
    return loss


def ppo() -> ClipPPOLoss:
    loss = ClipPPOLoss(CategoricalActor(choices=3, **CELLS), StateValue(**CELLS))
    loss.make_value_estimator(gamma=0.9, lmbda=0.8)
    return loss


def reached(loss, value: torch.Tensor) -> set[str]:
    """The networks whose parameters a gradient reaches, encoders by themselves."""
    loss.zero_grad(set_to_none=True)
    value.backward()
    names = [name for name, p in loss.named_parameters() if p.grad is not None and p.grad.any()]
    return {f"{n.split('.')[0]}{'.inputs' * ('inputs' in n)}" for n in names if "alpha" not in n}


def state_of(params) -> dict[str, torch.Tensor]:
    pairs = params.items(True, True)
    return {k if isinstance(k, str) else ".".join(k): v.detach() for k, v in pairs}


@pytest.mark.parametrize("kind", [SACLoss, ModSACLoss])
def test_each_term_reaches_its_own_encoder(kind):
    loss, batch = sac(kind), make_batch(16)
    critic, actor = "qvalue_network_params", "actor_network_params"
    assert reached(loss, loss(batch)["loss_qvalue"]) == {critic, f"{critic}.inputs"}
    assert reached(loss, loss(batch)["loss_actor"]) == {actor, f"{actor}.inputs"}


def test_the_critics_loss_by_hand():
    loss, batch = sac(loss_function="l2"), make_batch(12)
    torch.manual_seed(1)
    found = loss(batch.clone())["loss_qvalue"]
    actor, critic, after = loss.actor_network, deepcopy(loss.qvalue_network), batch["next"]
    torch.manual_seed(1)
    loc, log_std = actor.parameters_of([after["eye"], after["arm"]])
    action, log_prob = squashed_sample(loc, log_std, torch.randn_like(loc))

    def q(params, data, action):
        whole = data.select("eye", "arm").set("action", action)
        values = functional_call(critic, state_of(params), (whole,))
        return values["state_action_value"].movedim(-1, 0)

    target = q(loss.target_qvalue_network_params, after, action).amin(0) - log_prob
    live = (~after["terminated"]).squeeze(-1).float()
    target = after["reward"].squeeze(-1) + 0.9 * live * target
    value = q(loss.qvalue_network_params, batch, batch["action"])
    torch.testing.assert_close(found, (value - target).square().sum(0).mean())


def test_the_target_encoder_follows():
    loss = sac()
    online, target = loss.qvalue_network_params, loss.target_qvalue_network_params
    assert set(online.keys(True, True)) == set(target.keys(True, True))
    key = ("inputs", "encoders", "0", "convolutions", "0", "weight")
    updater = LeanSoftUpdate(loss, tau=0.25)
    online[key].data.add_(1.0)
    before, goal = target[key].clone(), online[key].detach()
    updater.step()
    torch.testing.assert_close(target[key], before.lerp(goal, 0.25))
    assert not torch.equal(before, target[key])
    assert not target[key].requires_grad


def test_the_target_encoder_is_what_the_target_reads():
    loss, batch = sac(), make_batch(12)

    def target() -> torch.Tensor:
        torch.manual_seed(1)
        return loss._target_value(batch)

    before = target()
    online = loss.qvalue_network_params["inputs", "encoders", "0", "linear", "weight"]
    online.data.mul_(2.0)
    torch.testing.assert_close(target(), before)
    other = loss.target_qvalue_network_params["inputs", "encoders", "0", "linear", "weight"]
    other.data.mul_(2.0)
    assert not torch.allclose(target(), before)


def cast(loss):
    return loss.double().float()


def pickled(loss):
    return pickle.loads(pickle.dumps(loss))


@pytest.mark.parametrize("change", [cast, deepcopy, pickled], ids=["cast", "copy", "pickle"])
def test_encoders_stay_bound(change):
    loss, batch = change(sac()), make_batch(12)
    critic = loss.qvalue_network
    key = ("inputs", "encoders", "0", "linear", "weight")
    pairs = [
        (loss.actor_network, loss.actor_network_params),
        (critic, loss.qvalue_network_params),
        (loss._critic.delayed, loss.target_qvalue_network_params),
    ]
    for network, params in pairs:
        held = network.inputs.encoders[0].linear.weight
        assert held.data_ptr() == params[key].data_ptr()
    optimizer = torch.optim.SGD(loss.parameters(), lr=0.1)
    before = critic.values([batch["eye"], batch["arm"]], batch["action"]).detach()
    loss(batch)["loss_qvalue"].backward()
    optimizer.step()
    assert not torch.allclose(critic.values([batch["eye"], batch["arm"]], batch["action"]), before)


def test_state_dicts_go_round():
    loss, other, batch = sac(), sac(), make_batch(12)
    other.load_state_dict(deepcopy(loss.state_dict()))
    results = []
    for one in (loss, other):
        torch.manual_seed(1)
        results.append(one(batch.clone()).detach())
    torch.testing.assert_close(*results)


def test_ppo_learns_with_an_encoder_each():
    loss, rollout = ppo(), make_batch(2, 6).exclude("action")
    rollout = loss.actor_network(rollout).detach()
    loss.estimate(rollout)
    seen = [rollout["eye"], rollout["arm"]]
    torch.testing.assert_close(rollout["state_value"], loss.critic_network.values(seen).detach())
    rows = rollout.select(*loss.row_keys).reshape(-1)
    assert rows["eye"].dtype == torch.uint8
    terms = loss.update_terms(rows)
    actor, critic = "actor_network_params", "critic_network_params"
    assert reached(loss, terms["loss_objective"]) == {actor, f"{actor}.inputs"}
    terms = loss.update_terms(rows)
    assert reached(loss, terms["loss_critic"]) == {critic, f"{critic}.inputs"}
