"""Which parameters each term reaches, and that copies and casts read their own."""

from __future__ import annotations

import pickle
from copy import deepcopy
from functools import partial

import pytest
import torch
from deterministic_cases import BOUNDS, lean_ddpg, lean_td3, moved, ordinary
from sac_cases import make_batch, seeded
from torchrl.objectives import HardUpdate, SoftUpdate

from torchrl_elegant.objectives import DDPGLoss, LeanHardUpdate, LeanSoftUpdate, TD3Loss

pytestmark = pytest.mark.filterwarnings("ignore:No target network updater")


def ordinary_ddpg(**options):
    return moved(DDPGLoss(*ordinary(), **options))


def ordinary_td3(**options):
    return moved(TD3Loss(*ordinary(), **BOUNDS[TD3Loss], **options))


def followed_ddpg(**options):
    return lean_ddpg(**{"delay_actor": True, **options})


MADE = pytest.mark.parametrize(
    "make", [lean_ddpg, followed_ddpg, lean_td3, ordinary_ddpg, ordinary_td3]
)
LEAN = pytest.mark.parametrize("make", [lean_ddpg, followed_ddpg, lean_td3])


def critic_name(loss):
    return "value_network_params" if isinstance(loss, DDPGLoss) else "qvalue_network_params"


@MADE
@pytest.mark.parametrize("term", ["actor", "critic"])
def test_each_term_reaches_its_own_parameters(make, term):
    loss = make()
    name = "loss_actor" if term == "actor" else loss.critic_term
    loss(make_batch())[name].backward()
    prefix = "actor_network_params" if term == "actor" else critic_name(loss)
    for name, param in loss.named_parameters():
        touched = param.grad is not None and bool(param.grad.any())
        assert touched == name.startswith(prefix), name


@MADE
def test_the_critics_loss_stops_at_an_action_that_an_actor_has_just_written(make):
    loss, batch = make(), make_batch()
    head = torch.ones((), requires_grad=True)
    batch["action"] = batch["action"] * head
    loss(batch)[loss.critic_term].backward()
    assert head.grad is None


@MADE
def test_parts_are_the_whole(make):
    loss, batch = make(), make_batch()
    whole = seeded(loss, batch)[0].detach()
    torch.manual_seed(1)
    parts = {**loss.critic_terms(batch), **loss.actor_terms(batch)}
    assert list(parts) == [name for name in parts if name in loss.out_keys]
    assert set(parts) == set(loss.out_keys)
    for name, value in parts.items():
        # A learner runs only the member that the actor raises.
        all_of_it = whole[name][0] if name == "state_action_value_actor" else whole[name]
        torch.testing.assert_close(value.detach(), all_of_it.mean())
    assert not any(parts[name].requires_grad for name in parts if not name.startswith("loss_"))


@pytest.mark.parametrize("make", [lean_td3, ordinary_td3])
@pytest.mark.parametrize(("how", "members"), [("first", 1), ("min", None), ("mean", None)])
def test_an_update_runs_only_the_members_that_the_actor_raises(make, how, members, monkeypatch):
    loss, batch = make(actor_q=how), make_batch()
    wanted = loss(batch.clone())["loss_actor"]
    asked, frozen = [], type(loss._critic).frozen
    monkeypatch.setattr(
        type(loss._critic),
        "frozen",
        lambda self, *args: asked.append(frozen(self, *args)) or asked[-1],
    )
    parts = loss.actor_terms(batch)
    assert asked[0].shape == (members or loss.num_qvalue_nets, 24)
    torch.testing.assert_close(parts["loss_actor"], wanted)
    grads = [
        torch.autograd.grad(x, list(loss.actor_network_params.parameters()))
        for x in (wanted, parts["loss_actor"])
    ]
    torch.testing.assert_close(*grads)


@MADE
def test_nothing_that_is_reported_has_a_graph(make):
    out = make()(make_batch())
    assert {name for name, value in out.items() if value.requires_grad} == {
        "loss_actor",
        make().critic_term,
    }


@MADE
def test_targets_and_names(make):
    loss = make()
    names = [name for name, _ in loss.named_parameters()]
    assert len(names) == len(set(names))
    assert not any("target" in name for name in names)
    loss(make_batch())
    for name in [n for n in loss._modules if n.startswith("target_")]:
        assert not any(p.requires_grad for p in loss._modules[name].values(True, True))


def target_of(loss, batch):
    torch.manual_seed(2)
    return seeded(loss, batch)[0]["target_value"]


@MADE
@pytest.mark.parametrize("updater", [SoftUpdate, LeanSoftUpdate, HardUpdate])
def test_target_updaters_move_what_is_used(make, updater):
    loss, batch = make(), make_batch()
    options = {"value_network_update_interval": 0} if updater is HardUpdate else {"tau": 0.5}
    follow = updater(loss, **options)
    followed = [name for name in loss._modules if name.startswith("target_")]
    for name in followed:
        source = getattr(loss, name.removeprefix("target_"))
        for param in source.values(True, True):
            if param.requires_grad:
                param.data.add_(torch.randn_like(param))
        before = target_of(loss, batch)
        follow.step()
        assert not torch.allclose(target_of(loss, batch), before), name
    after = target_of(loss, batch)
    if updater is HardUpdate:
        follow.step()
        for name in followed:
            pairs = zip(
                loss._modules[name].values(True, True),
                getattr(loss, name.removeprefix("target_")).values(True, True),
                strict=True,
            )
            assert all(torch.equal(target, online) for target, online in pairs)
        after = target_of(loss, batch)
    if len(followed) == 2:
        for params in (loss.actor_network_params, loss.qvalue_network_params):
            for param in params.parameters():
                param.data.zero_()
        torch.testing.assert_close(target_of(loss, batch), after)


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


@LEAN
@CHANGES
def test_networks_stay_bound(make, change):
    """Networks compute with values that are written through the loss's parameters."""
    loss = change(make())
    dtype = next(loss.parameters()).dtype
    batch = make_batch(dtype=dtype)
    for name in [n for n in loss._modules if n.startswith("target_")]:
        before = target_of(loss, batch)
        for value in loss._modules[name].values(True, True):
            value.data.mul_(1.5)
        assert not torch.allclose(target_of(loss, batch), before), name
    for params in (loss.qvalue_network_params, loss.actor_network_params):
        before = seeded(loss, batch)[0]["loss_actor"]
        params.data.mul_(1.5)
        assert seeded(loss, batch)[0]["loss_actor"] != before
    out = loss(batch)
    (out["loss_actor"] + out[loss.critic_term]).backward()
    assert all(param.grad is not None and param.grad.any() for param in loss.parameters())


@MADE
@pytest.mark.parametrize("change", [deepcopy, pickled])
def test_copies_are_apart(make, change):
    loss, batch = make(), make_batch()
    copy = change(loss)
    before = seeded(loss, batch)[0].detach().to_dict()
    torch.testing.assert_close(seeded(copy, batch)[0].detach().to_dict(), before)
    for param in copy.parameters():
        param.data.zero_()
    torch.testing.assert_close(seeded(loss, batch)[0].detach().to_dict(), before)


@MADE
def test_state_dict_round_trip(make):
    loss, other, batch = make(), make(), make_batch()
    loss(batch.clone())
    other.load_state_dict(deepcopy(loss.state_dict()))
    left, right = (seeded(each, batch)[0].detach().to_dict() for each in (loss, other))
    torch.testing.assert_close(right, left, atol=0.0, rtol=0.0)


@pytest.mark.parametrize("period", [1, 2, 3])
def test_all_targets_move_together_every_so_often(period):
    loss = lean_td3()
    follow = LeanSoftUpdate(loss, tau=0.1, period=period)
    names = [name for name in loss._modules if name.startswith("target_")]
    assert len(names) == 2
    for param in loss.parameters():
        param.data.add_(1.0)
    moves = []
    for _ in range(6):
        before = {name: loss._modules[name].data.clone() for name in names}
        follow.step()
        moved = {name: not (loss._modules[name].data == before[name]).all() for name in names}
        assert len(set(moved.values())) == 1
        part = 0.1 if moved[names[0]] else 0.0
        for name in names:
            online = loss._modules[name.removeprefix("target_")].data
            expected = part * online + (1.0 - part) * before[name]
            torch.testing.assert_close(loss._modules[name].data.to_dict(), expected.to_dict())
        moves.append(moved[names[0]])
    assert moves == [(step + 1) % period == 0 for step in range(6)]


def there_and_back(loss, follow):
    return loss.double().float(), follow


def pickled_together(loss, follow):
    return pickle.loads(pickle.dumps((loss, follow)))


@pytest.mark.parametrize("change", [there_and_back, pickled_together])
@pytest.mark.parametrize(
    "updater", [partial(LeanSoftUpdate, tau=0.1), partial(LeanHardUpdate, period=1)]
)
def test_an_updater_that_has_moved_targets_moves_those_of_a_changed_loss(updater, change):
    loss = lean_td3()
    follow = updater(loss)
    follow.step()
    loss, follow = change(loss, follow)
    name = "qvalue_network_params"
    before = loss._modules[f"target_{name}"].data.clone()
    loss._modules[name].data.add_(1.0)
    follow.step()
    moved = loss._modules[f"target_{name}"].data != before
    assert all(flags.all() for flags in moved.values(True, True))


def test_the_count_is_part_of_the_state():
    first, second = lean_td3(), lean_td3()
    follow, later = (LeanSoftUpdate(loss, tau=0.1, period=3) for loss in (first, second))
    follow.step()
    follow.step()
    later.load_state_dict(follow.state_dict())
    second.actor_network_params.data.add_(1.0)
    before = second.target_actor_network_params.data.clone()
    later.step()
    assert not (second.target_actor_network_params.data == before).all()
    # What was stored before there was a count is read, and counts from 0.
    later.load_state_dict({"initialized": True})
    with pytest.raises(ValueError, match="`period` must be at least 1, got `0`"):
        LeanSoftUpdate(first, tau=0.5, period=0)
