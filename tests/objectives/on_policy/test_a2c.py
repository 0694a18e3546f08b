"""A2C's loss: by hand, against TorchRL's, and what it reaches."""

from __future__ import annotations

import math
import pickle
from copy import deepcopy

import pytest
import torch
from ppo_cases import (
    ACTORS,
    assert_equal_losses,
    gradients,
    lean_nets,
    make_actor,
    make_rollout,
    make_rows,
    make_value,
    summed,
    torchrl_nets,
    twins,
)
from tensordict import TensorDict
from torch import nn
from torchrl.objectives import ValueEstimators

from torchrl_elegant.modules import StateValue
from torchrl_elegant.objectives import GAE, A2CLoss, VTrace


def a2c_twins(make_networks=lean_nets, **options):
    return twins(make_networks, A2CLoss, **options)


@pytest.fixture
def direct(monkeypatch) -> list[str]:
    """Filled whenever a loss is computed our own way."""
    calls: list[str] = []
    terms = A2CLoss._terms
    monkeypatch.setattr(A2CLoss, "_terms", lambda *args: (calls.append("direct"), terms(*args))[1])
    return calls


# ---- by hand ------------------------------------------------------------------------------------


class Constant(StateValue):
    """V(s) = level, and nothing else is learnt."""

    def __init__(self, level: float) -> None:
        super().__init__(observation={"observation": (1,)})
        del self.net
        self.level = nn.Parameter(torch.tensor(level))

    def values(self, observation):
        return self.level.expand(*observation[0].shape[:-1], 1)


def unit_loss(**options) -> A2CLoss:
    """A standard normal policy over one action, and V = 2."""
    actor = make_actor(observation={"observation": (1,)}, action_shape=(1,))
    for param in actor.net.parameters():
        nn.init.zeros_(param)
    options = {"loss_critic_type": "l2", "entropy_coeff": 0.1, "critic_coeff": 0.5, **options}
    return A2CLoss(actor, Constant(2.0), **options)


def unit_rows() -> TensorDict:
    return TensorDict(
        {
            "observation": torch.zeros(2, 1),
            "action": torch.tensor([[1.0], [-2.0]]),
            "advantage": torch.tensor([[3.0], [-1.0]]),
            "value_target": torch.full((2, 1), 5.0),
            "state_value": torch.full((2, 1), 1.0),
        },
        [2],
    )


def test_objective_and_gradient():
    loss = unit_loss()
    out = loss(unit_rows())
    constant = 0.5 * math.log(2 * math.pi)
    logs = [-0.5 - constant, -2.0 - constant]
    assert out["loss_objective"].item() == pytest.approx(-(3 * logs[0] - logs[1]) / 2)
    out["loss_objective"].backward()
    params = loss.actor_network_params
    # d log pi / d mu = a, d log pi / d log sigma = a^2 - 1
    assert params["net", "layers", "1", "bias"].grad.item() == pytest.approx(-(3 * 1 + 2) / 2)
    assert params["log_std"].grad.item() == pytest.approx(-(3 * 0 - 3) / 2)


def test_entropy_and_critic_and_gradients():
    loss = unit_loss()
    out = loss(unit_rows())
    entropy = 0.5 + 0.5 * math.log(2 * math.pi)
    assert out["entropy"].item() == pytest.approx(entropy)
    assert out["loss_entropy"].item() == pytest.approx(-0.1 * entropy)
    assert out["loss_critic"].item() == pytest.approx(0.5 * 3.0**2)
    (out["loss_entropy"] + out["loss_critic"]).backward()
    assert loss.actor_network_params["log_std"].grad.item() == pytest.approx(-0.1)
    assert loss.critic_network_params["level"].grad.item() == pytest.approx(0.5 * 2 * (2.0 - 5.0))


def test_a_value_that_moved_far_enough_learns_no_further():
    loss = unit_loss(clip_value=0.5, critic_coeff=1.0)
    out = loss(unit_rows())
    assert out["loss_critic"].item() == pytest.approx(3.5**2)  # from 1 to 1.5 at most
    assert out["value_clip_fraction"].item() == 1.0
    out["loss_critic"].backward()
    assert loss.critic_network_params["level"].grad.item() == 0.0


@pytest.mark.parametrize(
    ("term", "part"),
    [("loss_objective", "actor"), ("loss_critic", "critic"), ("loss_entropy", "actor")],
)
@pytest.mark.parametrize("kind", ["gaussian", "one_hot", "multi"])
def test_which_parameters_a_term_reaches(term, part, kind):
    loss = A2CLoss(*lean_nets(kind))
    loss(make_rows(loss.actor_network))[term].backward()
    reached = {name for name, p in loss.named_parameters() if p.grad is not None and p.grad.any()}
    if (term, kind) == ("loss_entropy", "gaussian"):
        assert reached == {"actor_network_params.log_std"}
    else:
        assert reached == {name for name, _ in loss.named_parameters() if name.startswith(part)}


# ---- against TorchRL's --------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ACTORS)
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"loss_critic_type": "l2", "critic_coeff": 0.5},
        {"loss_critic_type": "l1"},
        {"clip_value": 0.1},
        {"entropy_bonus": False},
        {"entropy_coeff": 0.0},
        {"entropy_coeff": 0.2},
    ],
    ids=str,
)
def test_every_option_of_the_short_way(direct, kind, options):
    theirs, ours = a2c_twins(lambda: lean_nets(kind), **options)
    rows = make_rows(ours.actor_network)
    assert_equal_losses(theirs, ours, rows)
    assert direct
    assert list(ours.state_dict()) == list(theirs.state_dict())
    assert list(ours.out_keys) == list(theirs.out_keys)
    assert set(ours.in_keys) == set(theirs.in_keys)
    # It needs no stored log-probability.
    assert_equal_losses(theirs, ours, rows.exclude("action_log_prob"))


@pytest.mark.parametrize("shape", [(1,), (3, 7), (7, 1), (2, 3, 4)])
def test_any_number_of_batch_dimensions(direct, shape):
    theirs, ours = a2c_twins(clip_value=0.2)
    assert_equal_losses(theirs, ours, make_rows(ours.actor_network, *shape))
    assert direct


@pytest.mark.parametrize(
    "options",
    [{"reduction": "sum"}, {"reduction": "none"}, {"functional": False}, {"critic_coeff": None}],
    ids=str,
)
def test_options_beyond_the_short_way_are_torchrls(direct, options):
    theirs, ours = a2c_twins(**options)
    assert_equal_losses(theirs, ours, make_rows(ours.actor_network, 5, 6))
    assert direct == []


def test_masked_rows_are_torchrls(direct):
    theirs, ours = a2c_twins()
    rows = make_rows(ours.actor_network)
    rows["collector", "mask"] = torch.rand(40) < 0.7
    assert_equal_losses(theirs, ours, rows)
    assert direct == []


def test_torchrls_networks_go_torchrls_way(direct):
    theirs, ours = a2c_twins(torchrl_nets)
    for loss in (theirs, ours):  # its entropy is estimated from samples
        loss.entropy_bonus = False
    rows = make_rows(ours.actor_network)
    rows["action"] = rows["action"].clamp(-0.9, 0.9)
    assert_equal_losses(theirs, ours, rows)
    assert direct == []
    assert set(ours.update_terms(rows)) == {"loss_objective", "loss_critic"}


@pytest.mark.parametrize("name", ["value_target", "state_value"])
def test_what_is_missing_is_told_as_by_torchrl(name):
    theirs, ours = a2c_twins(clip_value=0.2)
    rows = make_rows(ours.actor_network).exclude(name)
    messages = []
    for loss in (theirs, ours):
        with pytest.raises(KeyError) as caught:
            loss(rows.clone())
        messages.append(str(caught.value))
    assert messages[0] == messages[1]


def test_an_action_that_still_learns_is_refused():
    ours = A2CLoss(*lean_nets())
    rows = make_rows(ours.actor_network)
    rows["action"].requires_grad_()
    for call in (ours, ours.update_terms):
        with pytest.raises(RuntimeError, match="action requires grad"):
            call(rows)


@pytest.mark.parametrize("given", ["advantage", "rollout"])
def test_a_missing_advantage_is_computed(direct, given):
    theirs, ours = a2c_twins()
    rollout = make_rollout(make_actor(), 3, 9)
    for loss in (theirs, ours):
        loss.make_value_estimator(gamma=0.9, lmbda=0.7)
    assert isinstance(ours.value_estimator, GAE)
    if given == "advantage":
        theirs.value_estimator(rollout, params=theirs.critic_network_params.detach())
    assert_equal_losses(theirs, ours, rollout)
    assert bool(direct) == (given == "advantage")


def test_renamed_and_nested_keys(direct):
    actor = make_actor(observation={("obs", "x"): (4,)}, action_key=("agent", "act"))
    critic = make_value({("obs", "x"): (4,)}, value_key=("critic", "v"))
    theirs, ours = a2c_twins(lambda: (actor, critic), clip_value=0.2)
    rows = make_rows(make_actor())
    renamed = {
        "observation": ("obs", "x"),
        "action": ("agent", "act"),
        "advantage": ("a2c", "adv"),
        "value_target": ("a2c", "target"),
        "state_value": ("critic", "v"),
    }
    for old, new in renamed.items():
        rows.rename_key_(old, new)
    for loss in (theirs, ours):
        loss.set_keys(
            advantage=("a2c", "adv"), value_target=("a2c", "target"), value=("critic", "v")
        )
    assert_equal_losses(theirs, ours, rows)
    assert direct
    assert set(ours.row_keys) == set(renamed.values())


@pytest.mark.parametrize("kind", ["GAE", "VTrace"])
def test_states_are_exchanged_with_torchrls(kind):
    theirs, ours = a2c_twins(clip_value=0.2)
    for loss in (theirs, ours):
        loss.make_value_estimator(ValueEstimators[kind], gamma=0.9)
    rows = make_rows(make_actor())
    assert list(ours.state_dict()) == list(theirs.state_dict())
    theirs.actor_network_params.data.add_(0.1)
    ours.load_state_dict(theirs.state_dict())
    torch.testing.assert_close(ours(rows), theirs(rows))
    ours.critic_network_params.data.add_(0.1)
    theirs.load_state_dict(ours.state_dict())
    torch.testing.assert_close(theirs(rows), ours(rows))


# ---- what learners ask --------------------------------------------------------------------------


@pytest.mark.parametrize(
    "change",
    [lambda loss: loss, deepcopy, lambda loss: pickle.loads(pickle.dumps(loss))],
    ids=["itself", "copy", "pickle"],
)
def test_an_optimiser_moves_what_is_called(change):
    loss = A2CLoss(*lean_nets())
    loss.make_value_estimator(ValueEstimators.VTrace, gamma=0.9)
    rows, rollout = make_rows(loss.actor_network), make_rollout(make_actor(), 2, 5)
    before = loss.estimate(rollout.clone())["advantage"]
    other = change(loss)
    assert isinstance(other.value_estimator, VTrace)
    networks = [*other.actor_network.parameters(), *other.critic_network.parameters()]
    assert {id(p) for p in networks} == {id(p) for p in other.parameters()}
    assert all(grad is not None for grad in gradients(other, other(rows)).values())
    first = summed(other(rows)).item()
    torch.optim.SGD(other.parameters(), lr=1e-2).step()
    assert summed(other(rows)).item() < first
    # Its estimator follows both of its networks, and no other's.
    assert not torch.allclose(other.estimate(rollout.clone())["advantage"], before)
    if other is not loss:
        torch.testing.assert_close(loss.estimate(rollout.clone())["advantage"], before)


def test_update_terms_are_those_of_forward_and_rows_hold_what_they_read():
    loss = A2CLoss(*lean_nets(), clip_value=0.2)
    rows = make_rows(loss.actor_network).select(*loss.row_keys)
    whole, terms = loss(rows), loss.update_terms(rows)
    assert set(terms) == {"loss_objective", "loss_critic", "entropy", "loss_entropy"}
    for name, value in terms.items():
        torch.testing.assert_close(value, whole[name], atol=0.0, rtol=0.0)
    report = loss.report(rows)
    assert set(report) == set(loss.report_keys)
    target, value = rows["value_target"], rows["state_value"]
    expected = 1 - (target - value).var(correction=0) / target.var(correction=0)
    assert report["explained_variance"].item() == pytest.approx(expected.item(), rel=1e-5)
