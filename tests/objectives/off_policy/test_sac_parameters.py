"""Which parameters each term reaches, and that copies and casts read their own."""

from __future__ import annotations

import pickle
from copy import deepcopy

import pytest
import torch
from sac_cases import lean_loss, make_batch, seeded, torchrl_actor, torchrl_critic
from torchrl.objectives import HardUpdate, SoftUpdate

from torchrl_elegant.objectives import ModSACLoss, SACLoss

pytestmark = pytest.mark.filterwarnings("ignore:No target network updater")


def lean(**options):
    return lean_loss(3, **options)


def modsac(**options):
    loss = lean_loss(3, loss=ModSACLoss, std_regularization=0.1, **options)
    loss.observe(make_batch())
    return loss


def ordinary(**options):
    return SACLoss(torchrl_actor(), torchrl_critic(), **options)


MADE = pytest.mark.parametrize("make", [lean, modsac, ordinary])
REACHED = {
    "loss_actor": "actor_network_params",
    "loss_qvalue": "qvalue_network_params",
    "loss_alpha": "log_alpha",
}


@MADE
@pytest.mark.parametrize("term", REACHED)
@pytest.mark.parametrize("delay", [True, False])
def test_each_term_reaches_its_own_parameters(make, term, delay):
    loss = make(delay_qvalue=delay)
    loss(make_batch())[term].backward()
    for name, param in loss.named_parameters():
        touched = param.grad is not None and bool(param.grad.any())
        assert touched == name.startswith(REACHED[term]), name


@MADE
def test_parts_are_the_whole(make):
    loss, batch = make(), make_batch()
    whole = seeded(loss, batch)[0]
    torch.manual_seed(1)
    parts = {**loss.critic_terms(batch), **loss.actor_terms(batch)}
    assert parts.keys() == set(whole.keys())
    for name in REACHED:
        torch.testing.assert_close(parts[name], whole[name])


@MADE
def test_targets_and_names(make):
    loss = make()
    names = [name for name, _ in loss.named_parameters()]
    assert len(names) == len(set(names))
    assert not any("target" in name for name in names)
    assert not any(p.requires_grad for p in loss.target_qvalue_network_params.values(True, True))
    out = loss(make_batch())
    assert not any(out[name].requires_grad for name in ("alpha", "entropy"))
    assert not any(p.requires_grad for p in loss.target_qvalue_network_params.values(True, True))


def test_fixed_temperature_trains_nothing():
    loss = lean(fixed_alpha=True)
    assert "log_alpha" not in dict(loss.named_parameters())
    assert not loss(make_batch())["loss_alpha"].requires_grad


@MADE
@pytest.mark.parametrize("updater", [SoftUpdate, HardUpdate])
def test_target_updaters_move_what_is_used(make, updater):
    loss, batch = make(), make_batch()
    if updater is SoftUpdate:
        moved = SoftUpdate(loss, tau=0.5)
    else:
        moved = HardUpdate(loss, value_network_update_interval=0)
    for param in loss.qvalue_network_params.values(True, True):
        param.data.add_(torch.randn_like(param))
    before = target_of(loss, batch)
    moved.step()
    after = target_of(loss, batch)
    assert not torch.allclose(before, after)
    for target, online in zip(
        loss.target_qvalue_network_params.values(True, True),
        loss.qvalue_network_params.values(True, True),
        strict=True,
    ):
        assert updater is SoftUpdate or torch.equal(target, online)
    loss.qvalue_network_params.data.zero_()
    torch.testing.assert_close(target_of(loss, batch), after)


def target_of(loss, batch):
    torch.manual_seed(2)
    return loss.qvalue_loss(batch)[1]["target"]


def cast(loss):
    return loss.to(torch.float64)


def loaded(loss):
    loss.load_state_dict({k: v + 0.1 * v for k, v in loss.state_dict().items()})
    return loss


def pickled(loss):
    return pickle.loads(pickle.dumps(loss))


def saved(loss):
    return cast(deepcopy(pickled(loss)))


CHANGES = pytest.mark.parametrize("change", [cast, loaded, deepcopy, pickled, saved])


@pytest.mark.parametrize("make", [lean, modsac])
@CHANGES
@pytest.mark.parametrize("delay", [True, False])
def test_networks_stay_bound(make, change, delay):
    """Networks compute with values that are written through the loss's parameters."""
    loss = change(make(delay_qvalue=delay))
    batch = make_batch(dtype=loss.log_alpha.dtype)
    before = target_of(loss, batch)
    (loss.target_qvalue_network_params if delay else loss.qvalue_network_params).data.mul_(3.0)
    assert not torch.allclose(target_of(loss, batch), before)
    for name in ("qvalue_network_params", "actor_network_params"):
        before = seeded(loss, batch)[0]["loss_actor"]
        getattr(loss, name).data.mul_(1.5)
        assert seeded(loss, batch)[0]["loss_actor"] != before
    out = loss(batch)
    sum(out[name] for name in REACHED).backward()
    assert all(param.grad is not None and param.grad.any() for param in loss.parameters())


@MADE
@CHANGES
def test_change_keeps_the_values(make, change):
    loss, batch = make(), make_batch()
    copy = change(deepcopy(loss))
    if change is loaded:
        copy.load_state_dict(loss.state_dict())
    expected = loss.actor_loss, copy.actor_loss
    assert copy.state_dict().keys() == loss.state_dict().keys()
    if change not in (cast, saved):  # noise of another precision is other noise
        values = []
        for actor_loss in expected:
            torch.manual_seed(0)
            values.append(actor_loss(batch)[0])
        torch.testing.assert_close(*values)


@pytest.mark.parametrize("make", [lean, modsac, ordinary])
@pytest.mark.parametrize("change", [deepcopy, pickled])
def test_copies_are_apart(make, change):
    loss, batch = make(), make_batch()
    copy = change(loss)
    before = seeded(loss, batch)[0].to_dict()
    for params in (copy.actor_network_params, copy.qvalue_network_params):
        params.data.zero_()
    torch.testing.assert_close(seeded(loss, batch)[0].to_dict(), before)


def test_bounds_of_the_action_follow_a_cast():
    loss = lean().to(torch.float64)
    assert loss.actor_network.low.dtype == torch.float64


@MADE
def test_state_dict_round_trip(make):
    loss, other, batch = make(), make(), make_batch()
    loss(batch.clone())
    other.load_state_dict(deepcopy(loss.state_dict()))
    left, right = seeded(loss, batch)[0], seeded(other, batch)[0]
    torch.testing.assert_close(right.to_dict(), left.to_dict(), atol=0.0, rtol=0.0)
