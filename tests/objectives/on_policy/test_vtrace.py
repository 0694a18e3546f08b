"""V-trace of whole rollouts: TorchRL's numbers, but for the actions it looks at."""

from __future__ import annotations

import importlib

import pytest
import torch
from ppo_cases import ACTORS, make_actor, make_rollout, make_value, torchrl_nets, twins
from torchrl.objectives import ValueEstimators
from torchrl.objectives import value as torchrl_value

from torchrl_elegant.objectives import A2CLoss, ClipPPOLoss, VTrace

WRITTEN = ("advantage", "value_target")


@pytest.fixture
def direct(monkeypatch) -> list[tuple]:
    """Filled whenever our own equation is used."""
    calls: list[tuple] = []
    module = importlib.import_module("torchrl_elegant.objectives.on_policy.vtrace")
    ours = module.vtrace
    monkeypatch.setattr(
        module, "vtrace", lambda *args, **kwargs: (calls.append(args), ours(*args, **kwargs))[1]
    )
    return calls


@pytest.fixture
def stored_actions(monkeypatch):
    """TorchRL's estimator, asked for the probabilities of the stored actions."""
    module = importlib.import_module("torchrl.objectives.value.advantages")

    def log_prob(actor_net, data, params, log_prob_key):
        return actor_net.get_dist(data).log_prob(data.get(actor_net.dist_sample_keys[0]))

    monkeypatch.setattr(module, "_call_actor_net", log_prob)


def older_rollout(actor, *shape: int):
    """Steps of a policy that differs from ``actor``."""
    rollout = make_rollout(actor, *shape)
    rollout["action_log_prob"] += 0.5 * torch.randn(shape)
    return rollout


def estimators(actor, critic, **options):
    options = {"gamma": 0.9, "actor_network": actor, "value_network": critic, **options}
    return torchrl_value.VTrace(**options), VTrace(**options)


def assert_same_estimates(theirs, ours, rollout, **call):
    expected, found = theirs(rollout.clone(), **call), ours(rollout.clone(), **call)
    assert set(found.keys(True, True)) == set(expected.keys(True, True))
    for key in expected.keys(True, True):
        torch.testing.assert_close(found[key], expected[key], atol=2e-5, rtol=1e-4, msg=str(key))
    assert not found.requires_grad


@pytest.mark.usefixtures("stored_actions")
@pytest.mark.parametrize("kind", ACTORS)
@pytest.mark.parametrize(
    ("shape", "options"),
    [
        ((17,), {}),
        ((3, 1), {}),
        ((3, 17), {"average_adv": True}),
        ((2, 3, 16), {"rho_thresh": 2.0, "c_thresh": 0.5}),
    ],
)
def test_it_is_torchrls_of_the_stored_actions(direct, kind, shape, options):
    actor = make_actor(kind)
    theirs, ours = estimators(actor, make_value(), **options)
    assert_same_estimates(theirs, ours, older_rollout(actor, *shape))
    assert len(direct) == 1


def test_torchrl_looks_at_actions_it_has_just_drawn():
    # Should this fail, TorchRL has been mended, and the docstring is out of date.
    actor = make_actor()
    theirs, ours = estimators(actor, make_value())
    rollout = make_rollout(actor, 3, 17)
    found = [theirs(rollout.clone())["advantage"] for _ in range(2)]
    assert not torch.allclose(*found)
    torch.testing.assert_close(*(ours(rollout.clone())["advantage"] for _ in range(2)))


@pytest.mark.usefixtures("stored_actions")
@pytest.mark.parametrize("loss", [A2CLoss, ClipPPOLoss])
def test_a_loss_makes_it_over_its_own_networks(direct, loss):
    pair = twins(loss=loss)
    rollout = older_rollout(pair[1].actor_network, 3, 8)
    for one in pair:
        one.make_value_estimator(ValueEstimators.VTrace, gamma=0.9)
        one.set_keys(value_target="target")
    theirs, ours = pair
    assert type(ours.value_estimator) is VTrace
    for step in range(2):
        params = theirs.critic_network_params.detach()
        expected = theirs.value_estimator(rollout.clone(), params=params, target_params=params)
        found = ours.estimate(rollout.clone())
        for name in ("advantage", "target"):
            torch.testing.assert_close(found[name], expected[name], atol=1e-5, rtol=1e-4)
        for one in pair:  # and follows them as they learn
            one.actor_network_params.data.add_(0.1)
            one.critic_network_params.data.add_(0.1)
        assert len(direct) == step + 1


def test_renamed_keys_and_time_in_front(direct):
    actor = make_actor(action_key=("agent", "act"))
    rollout = older_rollout(make_actor(), 9, 4)
    ours = estimators(make_actor(), make_value())[1]
    expected = ours(rollout.clone(), time_dim=0)
    for old, new in {
        "action": ("agent", "act"),
        "action_log_prob": ("agent", "act_log_prob"),
        ("next", "reward"): ("next", "gain"),
    }.items():
        rollout.rename_key_(old, new)
    actor.load_state_dict(ours.actor_network.state_dict())
    renamed = estimators(actor, ours.value_network)[1]
    renamed.set_keys(reward="gain", sample_log_prob=("agent", "act_log_prob"), advantage="adv")
    found = renamed(rollout, time_dim=0)
    torch.testing.assert_close(found["adv"], expected["advantage"])
    assert len(direct) == 2


def test_what_an_older_policy_did_often_counts_less():
    actor, critic = make_actor(), make_value()
    rollout = make_rollout(actor, 3, 8)
    options = {"gamma": 0.9, "actor_network": actor, "value_network": critic}
    weighted, plain = VTrace(**options), VTrace(**options, weighted=False)
    # Of its own steps both are the same.
    own = [estimate(rollout.clone())["advantage"] for estimate in (weighted, plain)]
    torch.testing.assert_close(*own)
    rollout["action_log_prob"] += 1.0
    found = [estimate(rollout.clone())["advantage"] for estimate in (weighted, plain)]
    torch.testing.assert_close(found[0], found[1] * torch.exp(torch.tensor(-1.0)))


def test_lambda_is_validated_and_counts():
    actor, critic = make_actor(), make_value()
    options = {"gamma": 0.9, "actor_network": actor, "value_network": critic}
    with pytest.raises(ValueError, match=r"`lmbda` must lie in \[0, 1\], got `1.5`"):
        VTrace(**options, lmbda=1.5)
    rollout = older_rollout(actor, 3, 8)
    one, none = (VTrace(**options, lmbda=x)(rollout.clone()) for x in (1.0, 0.0))
    assert not torch.allclose(one["advantage"], none["advantage"])


def test_other_networks_go_torchrls_way(direct):
    actor, critic = torchrl_nets()
    for loss in (A2CLoss(actor, critic), ClipPPOLoss(actor, critic)):
        loss.make_value_estimator(ValueEstimators.VTrace, gamma=0.9)
        found = loss.estimate(make_rollout(actor, 3, 8))
        assert set(WRITTEN) <= set(found.keys())
    assert direct == []
