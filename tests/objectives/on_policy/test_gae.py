"""Advantages of whole rollouts: TorchRL's numbers, by our own way where it applies."""

from __future__ import annotations

import importlib

import pytest
import torch
from ppo_cases import OBS, lean_nets, make_actor, make_rollout, make_value, torchrl_nets, twins
from tensordict import TensorDict
from torchrl.modules import ValueOperator
from torchrl.objectives import ValueEstimators
from torchrl.objectives import value as torchrl_value

from torchrl_elegant.modules import StateValue
from torchrl_elegant.objectives import GAE, ClipPPOLoss

WRITTEN = ("advantage", "value_target")


@pytest.fixture
def direct(monkeypatch) -> list[tuple]:
    """Filled whenever advantages are summed by our own equation."""
    calls: list[tuple] = []
    module = importlib.import_module("torchrl_elegant.objectives.on_policy.gae")
    ours = module.gae

    def spy(*args, **kwargs):
        calls.append(args)
        return ours(*args, **kwargs)

    monkeypatch.setattr(module, "gae", spy)
    return calls


def estimators(critic=None, **options):
    options = {"gamma": 0.9, "lmbda": 0.8, **options}
    critic = make_value() if critic is None else critic
    return torchrl_value.GAE(value_network=critic, **options), GAE(value_network=critic, **options)


def assert_same_estimates(theirs, ours, rollout, **call):
    expected, found = theirs(rollout.clone(), **call), ours(rollout.clone(), **call)
    assert set(found.keys(True, True)) == set(expected.keys(True, True))
    for key in expected.keys(True, True):
        torch.testing.assert_close(found[key], expected[key], atol=2e-5, rtol=1e-5, msg=str(key))
    assert not found.requires_grad


@pytest.mark.parametrize("shape", [(1,), (17,), (3, 1), (3, 17), (2, 3, 16)])
@pytest.mark.parametrize("average", [False, True])
def test_it_is_torchrls(direct, shape, average):
    if average and shape == (1,):
        shape = (2,)  # one advantage has no spread
    theirs, ours = estimators(average_gae=average)
    assert_same_estimates(theirs, ours, make_rollout(make_actor(), *shape))
    assert len(direct) == 1


@pytest.mark.parametrize("given", ["argument", "name", "attribute"])
def test_time_is_where_it_is_said_to_be(direct, given):
    rollout, call, options = make_rollout(make_actor(), 9, 4), {}, {}
    if given == "argument":
        call = {"time_dim": 0}
    elif given == "name":
        rollout.names = ["time", None]
    else:
        options = {"time_dim": 0}
    theirs, ours = estimators(**options)
    assert_same_estimates(theirs, ours, rollout, **call)
    assert len(direct) == 1
    turned = estimators()[1](rollout.clone().rename_(None, None).transpose(0, 1))
    assert turned["advantage"].shape == (4, 9, 1)


def test_renamed_and_nested_keys(direct):
    rollout, critic = make_rollout(make_actor(), 3, 8), make_value(value_key=("critic", "v"))
    for name in ("reward", "done", "terminated"):
        rollout.rename_key_(("next", name), ("next", "env", name))
    renamed = {
        "advantage": ("ppo", "adv"),
        "value_target": ("ppo", "target"),
        "value": ("critic", "v"),
        **{name: ("env", name) for name in ("reward", "done", "terminated")},
    }
    theirs, ours = estimators(critic)
    theirs.set_keys(**renamed)
    ours.set_keys(**renamed)
    assert_same_estimates(theirs, ours, rollout)
    assert len(direct) == 1


def test_several_observations(direct):
    critic = make_value({"a": (2,), ("b", "c"): (2,)})
    rollout = make_rollout(make_actor(), 3, 8)
    for page in (rollout, rollout["next"]):
        page["a"], page["b", "c"] = page.pop("observation").split(2, -1)
    assert_same_estimates(*estimators(critic), rollout)
    assert len(direct) == 1


def test_steps_of_several_frames_discount_further(direct):
    rollout = make_rollout(make_actor(), 3, 8)
    rollout["steps_to_next_obs"] = torch.randint(1, 4, (3, 8, 1))
    assert_same_estimates(*estimators(), rollout)
    one = rollout.clone().exclude("steps_to_next_obs")
    ours = estimators()[1]
    assert not torch.allclose(ours(one)["advantage"], ours(rollout)["advantage"])
    assert len(direct) == 3


def test_done_stands_in_for_a_missing_terminated(direct):
    rollout = make_rollout(make_actor(), 3, 8)
    del rollout["next", "terminated"]
    assert_same_estimates(*estimators(), rollout)
    assert len(direct) == 1


def test_terminated_and_truncated_by_hand():
    class One(StateValue):
        def values(self, observation):
            return torch.ones_like(observation[0][..., :1])

    flags = {"terminated": [0, 1, 0, 0], "done": [0, 1, 1, 0]}
    page = {name: torch.tensor(x, dtype=torch.bool).unsqueeze(-1) for name, x in flags.items()}
    page |= {"observation": torch.zeros(4, OBS), "reward": torch.tensor([[1.0], [2], [3], [4]])}
    rollout = TensorDict({"observation": torch.zeros(4, OBS), "next": page}, [4])
    critic = One(observation={"observation": (OBS,)})
    found = estimators(critic, gamma=0.5, lmbda=0.5)[1](rollout)
    # errors 1 + .5 - 1, 2 - 1, 3 + .5 - 1, 4 + .5 - 1
    expected = torch.tensor([[0.5 + 0.25 * 1.0], [1.0], [2.5], [3.5]])
    torch.testing.assert_close(found["advantage"], expected)
    torch.testing.assert_close(found["value_target"], expected + 1.0)


@pytest.mark.parametrize(
    "options",
    [
        {"shifted": True},
        {"skip_existing": True},
        {"value_chunk_size": 4, "value_chunk_dim": 1},
        {"deactivate_vmap": True},
    ],
)
def test_what_the_short_way_does_not_know_is_torchrls(direct, options):
    theirs, ours = estimators(**options)
    assert_same_estimates(theirs, ours, make_rollout(make_actor(), 3, 8))
    assert len(direct) == ("deactivate_vmap" in options)


def test_torchrls_networks_go_torchrls_way(direct):
    critic = ValueOperator(torch.nn.Linear(OBS, 1), in_keys=["observation"])
    assert_same_estimates(*estimators(critic), make_rollout(make_actor(), 3, 8))
    assert direct == []


def test_given_parameters_are_used(direct):
    critic, rollout = make_value(), make_rollout(make_actor(), 3, 8)
    other = TensorDict.from_module(make_value())
    theirs, ours = estimators(critic)
    assert_same_estimates(theirs, ours, rollout, params=other)
    assert direct == []


def test_gradients_pass_through_a_rollout_where_asked(direct):
    rollout = make_rollout(make_actor(), 3, 8)
    for differentiable in (True, False):
        page = rollout.clone()
        page["next", "reward"].requires_grad_()
        found = estimators(differentiable=differentiable)[1](page)
        assert found["advantage"].requires_grad == differentiable
    assert len(direct) == 1


def test_no_gradient_reaches_the_network():
    critic = make_value()
    found = estimators(critic, differentiable=True)[1](make_rollout(make_actor(), 3, 8))
    assert not found["advantage"].requires_grad
    assert all(param.requires_grad for param in critic.parameters())


def test_a_reward_without_its_last_dimension_is_refused():
    rollout = make_rollout(make_actor(), 3, 8)
    rollout["next", "reward"] = rollout["next", "reward"].squeeze(-1)
    with pytest.raises(ValueError, match="must have one shape"):
        estimators()[1](rollout)


def test_entries_may_be_given_one_by_one(direct):
    rollout = make_rollout(make_actor(), 8)
    ours = estimators()[1]
    after = {f"next_{name}": value for name, value in rollout["next"].items()}
    advantage, target = ours(observation=rollout["observation"], **after)
    expected = ours(rollout)
    torch.testing.assert_close((advantage, target), tuple(expected[name] for name in WRITTEN))


def doubled(rollout):
    return rollout.apply(lambda x: x.double() if x.is_floating_point() else x)


@pytest.mark.parametrize("configured", [False, True])
@pytest.mark.parametrize("options", [{}, {"max_importance_ratio": 2.0}, {"separate_losses": True}])
def test_a_loss_estimates_with_its_present_critic(direct, configured, options):
    actor, critic = lean_nets()
    loss, rollout = ClipPPOLoss(actor, critic, **options), make_rollout(actor, 3, 8)
    if configured:
        loss.make_value_estimator(gamma=0.5, lmbda=0.25)
        assert (loss.value_estimator.gamma, loss.value_estimator.lmbda) == (0.5, 0.25)
    first = loss.estimate(rollout.clone())
    loss.critic_network_params.data.add_(1.0)
    second = loss.estimate(rollout.clone())
    assert not torch.allclose(first["state_value"], second["state_value"])
    loss.double()
    third = loss.estimate(doubled(rollout))
    torch.testing.assert_close(third["state_value"].float(), second["state_value"])
    assert len(direct) == 3


@pytest.mark.parametrize("first", [True, False])
def test_a_loss_hands_its_keys_to_its_estimator(direct, first):
    actor, _ = lean_nets()
    # TorchRL's estimators want to know the critic's key when they are made.
    value = "v" if first else "state_value"
    loss = ClipPPOLoss(actor, make_value(value_key=value))
    rollout = make_rollout(actor, 3, 8)
    rollout.rename_key_(("next", "reward"), ("next", "gain"))
    renamed = {"advantage": "adv", "value_target": "target", "value": value, "reward": "gain"}
    if first:
        loss.set_keys(**renamed)
    loss.make_value_estimator(gamma=0.9, lmbda=0.8)
    if not first:
        loss.set_keys(**renamed)
    found = loss.estimate(rollout)
    assert {"adv", "target", value, ("next", value)} <= set(found.keys(True, True))
    assert len(direct) == 1


def test_a_loss_over_torchrls_networks_estimates_with_its_present_critic(direct):
    actor, critic = torchrl_nets()
    loss, rollout = ClipPPOLoss(actor, critic), make_rollout(actor, 3, 8)
    for _ in range(2):
        weight, bias = loss.critic_network_params["module"].values()
        if weight.ndim == 1:
            weight, bias = bias, weight
        found = loss.estimate(rollout.clone())["state_value"]
        torch.testing.assert_close(found, rollout["observation"] @ weight.T + bias)
        loss.double()
        rollout = doubled(rollout)
        loss.critic_network_params.data.add_(1.0)
    assert direct == []


@pytest.mark.parametrize("kind", ["TD0", "TDLambda"])
def test_a_loss_takes_torchrls_other_estimators(kind):
    theirs, ours = twins()
    rollout = make_rollout(ours.actor_network, 3, 8)
    for loss in (theirs, ours):
        loss.make_value_estimator(ValueEstimators[kind], gamma=0.9)
    assert type(ours.value_estimator) is type(theirs.value_estimator)
    params = theirs.critic_network_params.detach()
    torch.manual_seed(1)
    expected = theirs.value_estimator(rollout.clone(), params=params, target_params=params)
    torch.manual_seed(1)
    found = ours.estimate(rollout.clone())
    for name in WRITTEN:
        torch.testing.assert_close(found[name], expected[name], atol=1e-5, rtol=1e-5)
