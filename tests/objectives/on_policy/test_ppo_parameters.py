"""Networks that are called directly, and parameters that optimisers write, stay one."""

from __future__ import annotations

import importlib
import pickle
from copy import deepcopy

import pytest
import torch
from ppo_cases import (
    ACTORS,
    gradients,
    lean_nets,
    make_actor,
    make_rollout,
    make_rows,
    summed,
    twins,
)

from torchrl_elegant.objectives import ClipPPOLoss


def new_loss(kind="gaussian", **options) -> ClipPPOLoss:
    return ClipPPOLoss(*lean_nets(kind), **options)


def pickled(loss):
    return pickle.loads(pickle.dumps(loss))


def doubled(loss):
    return loss.double()


def loaded(loss):
    other = ClipPPOLoss(*lean_nets("gaussian"))
    other.load_state_dict(loss.state_dict())
    return other


def assert_bound(loss, rows) -> None:
    """Networks compute with values that an optimizer writes, and it has their gradients."""
    networks = [*loss.actor_network.parameters(), *loss.critic_network.parameters()]
    assert {id(p) for p in networks} == {id(p) for p in loss.parameters()}
    assert all(grad is not None for grad in gradients(loss, loss(rows)).values())
    before = summed(loss(rows)).item()
    optimizer = torch.optim.SGD(loss.parameters(), lr=1e-2)
    optimizer.step()
    assert summed(loss(rows)).item() < before


@pytest.mark.parametrize("change", [lambda loss: loss, deepcopy, pickled, doubled, loaded])
@pytest.mark.parametrize("times", [1, 2])
def test_an_optimiser_moves_what_is_called(change, times):
    loss = new_loss()
    rows = make_rows(loss.actor_network)
    expected = loss(rows)["loss_objective"].item()
    for _ in range(times):
        loss = change(loss)
    if change is doubled:
        rows = rows.double()
    assert loss(rows)["loss_objective"].item() == pytest.approx(expected, rel=1e-5)
    assert_bound(loss, rows)


@pytest.mark.parametrize("copy", [deepcopy, pickled])
def test_a_copy_is_on_its_own(copy):
    loss = new_loss()
    rows = make_rows(loss.actor_network)
    other, before = copy(loss), loss(rows)
    loss.estimate(make_rollout(make_actor(), 2, 3))
    assert not {p.data_ptr() for p in other.parameters()} & {
        p.data_ptr() for p in loss.parameters()
    }
    assert_bound(other, rows)
    torch.testing.assert_close(loss(rows).to_dict(), before.to_dict())


@pytest.mark.parametrize("copy", [deepcopy, pickled])
def test_a_copy_estimates_with_its_own_critic(copy):
    loss = new_loss()
    loss.make_value_estimator(gamma=0.9, lmbda=0.5)
    rollout = make_rollout(make_actor(), 2, 3)
    other = copy(loss)
    before = loss.estimate(rollout.clone())
    other.critic_network_params.data.add_(1.0)
    assert not torch.allclose(other.estimate(rollout.clone())["advantage"], before["advantage"])
    assert other.value_estimator.gamma == loss.value_estimator.gamma
    torch.testing.assert_close(loss.estimate(rollout.clone()), before)


@pytest.mark.parametrize("kind", ACTORS)
def test_the_policy_given_is_the_policy_that_learns(kind):
    actor, critic = lean_nets(kind)
    loss = ClipPPOLoss(actor, critic)
    rows = make_rows(actor)
    before = actor.head([rows["observation"]]).log_prob(rows["action"]).detach()
    summed(loss(rows)).backward()
    torch.optim.SGD(loss.parameters(), lr=1.0).step()
    assert not torch.allclose(actor.head([rows["observation"]]).log_prob(rows["action"]), before)


def test_states_are_exchanged_with_torchrls():
    theirs, ours = twins(clip_value=0.2)
    rows = make_rows(make_actor())
    theirs.actor_network_params.data.add_(0.1)
    theirs.clip_epsilon.fill_(0.05)
    ours.load_state_dict(theirs.state_dict())
    torch.testing.assert_close(ours(rows), theirs(rows))
    ours.critic_network_params.data.add_(0.1)
    theirs.load_state_dict(ours.state_dict())
    torch.testing.assert_close(theirs(rows), ours(rows))


def test_functional_calls_use_the_parameters_given():
    loss = new_loss()
    rows, params = make_rows(loss.actor_network), loss.actor_network_params
    shifted = params.detach().apply(lambda x: x + 0.1)
    expected = loss(rows)["loss_objective"].item()
    with shifted.to_module(loss.actor_network, preserve_module_state=False):
        inside = loss(rows)["loss_objective"].item()
    assert inside != expected
    assert loss(rows)["loss_objective"].item() == expected


def test_learning_many_updates_follows_torchrl():
    theirs, ours = twins(normalize_advantage=True, loss_critic_type="l2")
    rows = make_rows(make_actor(), 64)
    for loss in (theirs, ours):
        optimizer = torch.optim.Adam(loss.parameters(), lr=1e-3)
        for batch in rows.split(16) * 5:
            optimizer.zero_grad()
            summed(loss(batch)).backward()
            optimizer.step()
    for one, other in zip(theirs.parameters(), ours.parameters(), strict=True):
        torch.testing.assert_close(other, one, atol=1e-5, rtol=1e-4)


def test_own_way_is_taken_again_after_a_copy(monkeypatch):
    calls = []
    module = importlib.import_module("torchrl_elegant.objectives.on_policy.ppo")
    ours = module.clipped_surrogate
    monkeypatch.setattr(
        module, "clipped_surrogate", lambda *args: (calls.append(1), ours(*args))[1]
    )
    loss = new_loss()
    rows = make_rows(loss.actor_network)
    for copy in (loss, deepcopy(loss), pickled(loss)):
        copy(rows)
    assert len(calls) == 3
