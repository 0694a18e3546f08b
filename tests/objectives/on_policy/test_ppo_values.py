"""PPO's terms worked out by hand, and which parameters each reaches."""

from __future__ import annotations

import math

import pytest
import torch
from ppo_cases import (
    ACT,
    OBS,
    gradients,
    lean_nets,
    make_actor,
    make_rows,
    make_value,
    torchrl_nets,
)
from tensordict import TensorDict
from torch import nn

from torchrl_elegant.modules import StateValue
from torchrl_elegant.objectives import ClipPPOLoss


class Constant(StateValue):
    """V(s) = level, and nothing else is learnt."""

    def __init__(self, level: float) -> None:
        super().__init__(observation={"observation": (1,)})
        del self.net
        self.level = nn.Parameter(torch.tensor(level))

    def values(self, observation):
        return self.level.expand(*observation[0].shape[:-1], 1)


def unit_loss(level=2.0, **options) -> ClipPPOLoss:
    """A standard normal policy over one action, and a constant critic."""
    actor = make_actor(observation={"observation": (1,)}, action_shape=(1,))
    for param in actor.net.parameters():
        nn.init.zeros_(param)
    options = {"loss_critic_type": "l2", "entropy_coeff": 0.1, "critic_coeff": 0.5, **options}
    return ClipPPOLoss(actor, Constant(level), **options)


def unit_rows(ratios=(1.0, 1.5, 0.5, 1.5, 0.5), advantages=(2.0, 2.0, 2.0, -2.0, -2.0), action=1.0):
    """Actions of 1, drawn by a policy that gave them ``1 / ratio`` of today's probability."""
    count = len(ratios)
    log_prob = -0.5 * action**2 - 0.5 * math.log(2 * math.pi)
    return TensorDict(
        {
            "observation": torch.zeros(count, 1),
            "action": torch.full((count, 1), action),
            "action_log_prob": log_prob - torch.tensor(ratios).log(),
            "advantage": torch.tensor(advantages).unsqueeze(-1),
            "value_target": torch.full((count, 1), 5.0),
            "state_value": torch.full((count, 1), 1.0),
        },
        [count],
    )


def test_objective_and_gradient():
    loss = unit_loss()
    out = loss(unit_rows())
    # gains 2, 1.2 * 2, 0.5 * 2, 1.5 * -2, 0.8 * -2
    assert out["loss_objective"].item() == pytest.approx(-(2 + 2.4 + 1 - 3 - 1.6) / 5)
    out["loss_objective"].backward()
    # slopes 2, 0, 1, -3, 0 in the log ratio, times d log pi / d mu = a = 1
    bias = loss.actor_network_params["net", "layers", "1", "bias"]
    assert bias.grad.item() == pytest.approx(-(2 + 1 - 3) / 5, abs=1e-6)
    # d log pi / d log sigma = a^2 - 1 = 0
    assert loss.actor_network_params["log_std"].grad.item() == pytest.approx(0.0, abs=1e-6)


def test_the_mean_goes_towards_what_was_good():
    for advantage in (3.0, -3.0):
        loss = unit_loss()
        loss(unit_rows((1.0,), (advantage,)))["loss_objective"].backward()
        bias = loss.actor_network_params["net", "layers", "1", "bias"]
        assert bias.grad.item() == pytest.approx(-advantage)


def test_the_spread_grows_towards_far_actions():
    loss = unit_loss()
    loss(unit_rows((1.0,), (3.0,), action=2.0))["loss_objective"].backward()
    assert loss.actor_network_params["log_std"].grad.item() == pytest.approx(-3.0 * (2.0**2 - 1))


def test_entropy_and_gradient():
    loss = unit_loss()
    out = loss(unit_rows())
    entropy = 0.5 + 0.5 * math.log(2 * math.pi)
    assert out["entropy"].item() == pytest.approx(entropy)
    assert out["loss_entropy"].item() == pytest.approx(-0.1 * entropy)
    assert not out["entropy"].requires_grad
    out["loss_entropy"].backward()
    assert loss.actor_network_params["log_std"].grad.item() == pytest.approx(-0.1)


def test_critic_and_gradient():
    loss = unit_loss()
    out = loss(unit_rows())
    assert out["loss_critic"].item() == pytest.approx(0.5 * 3.0**2)
    out["loss_critic"].backward()
    assert loss.critic_network_params["level"].grad.item() == pytest.approx(0.5 * 2 * (2.0 - 5.0))


@pytest.mark.parametrize(("name", "distance"), [("l1", 3.0), ("l2", 9.0), ("smooth_l1", 2.5)])
def test_distances(name, distance):
    out = unit_loss(loss_critic_type=name, critic_coeff=2.0)(unit_rows())
    assert out["loss_critic"].item() == pytest.approx(2.0 * distance)


@pytest.mark.parametrize(
    ("level", "distance", "slope", "clipped"),
    [
        (1.25, 3.75**2, -7.5, 0.0),
        (2.0, 3.5**2, 0.0, 1.0),  # may go to 1.5 only: has moved enough
        (0.0, 5.0**2, -10.0, 1.0),  # has moved the wrong way
    ],
)
def test_clipped_values(level, distance, slope, clipped):
    loss = unit_loss(level, clip_value=0.5, critic_coeff=1.0)
    out = loss(unit_rows())
    assert out["loss_critic"].item() == pytest.approx(distance)
    assert out["value_clip_fraction"].item() == clipped
    out["loss_critic"].backward()
    assert loss.critic_network_params["level"].grad.item() == pytest.approx(slope)


def test_normalised_advantages():
    rows = unit_rows((1.0,) * 3, (1.0, 2.0, 6.0))
    found = unit_loss(normalize_advantage=True)(rows)
    assert found["loss_objective"].item() == pytest.approx(0.0, abs=1e-6)
    # (a - 3) / sqrt(7), of which the last is clipped: 1.2 * 3 / sqrt(7)
    rows["action_log_prob"] -= torch.tensor([0.0, 0.0, 1.0])
    found = unit_loss(normalize_advantage=True)(rows)
    expected = -(-2.0 - 1.0 + 1.2 * 3.0) / math.sqrt(7.0) / 3
    assert found["loss_objective"].item() == pytest.approx(expected)
    assert rows["advantage"].flatten().tolist() == [1.0, 2.0, 6.0]


def test_equal_advantages_do_not_divide_by_zero():
    rows = unit_rows((1.0,) * 3, (2.0, 2.0, 2.0))
    assert unit_loss(normalize_advantage=True)(rows)["loss_objective"].item() == 0.0


def test_a_single_advantage_is_left_as_it_is():
    rows = unit_rows((1.0,), (2.0,))
    found = unit_loss(normalize_advantage=True)(rows)
    assert found["loss_objective"].item() == pytest.approx(-2.0)


def test_reports():
    out = unit_loss()(unit_rows((0.5, 1.0, 1.25, 2.0), (1.0,) * 4))
    expected = {"clip_fraction": 0.75, "max_ratio": 2.0, "mean_ratio": 4.75 / 4}
    expected |= {"kl_approx": -math.log(1.25) / 4, "ESS": 4.75**2 / (0.25 + 1 + 1.25**2 + 4) / 4}
    assert {name: out[name].item() for name in expected} == pytest.approx(expected)
    assert out["explained_variance"].item() == pytest.approx(1.0)  # the targets have none


def test_divergence_from_the_policy_that_collected():
    rows = unit_rows((0.5, 2.0, 1.0), (1.0,) * 3)
    # rho - 1 - log rho: -0.5 + log 2, 1 - log 2, 0
    assert unit_loss().divergence(rows).item() == pytest.approx(0.5 / 3)
    actor, critic = torchrl_nets()
    rows = make_rows(actor)
    rows["action_log_prob"] = actor.get_dist(rows).log_prob(rows["action"]).detach()
    assert ClipPPOLoss(actor, critic).divergence(rows).item() == pytest.approx(0.0, abs=1e-4)


@pytest.mark.parametrize(
    ("term", "actor", "critic"),
    [
        ("loss_objective", True, False),
        ("loss_critic", False, True),
        ("loss_entropy", True, False),
    ],
)
@pytest.mark.parametrize("kind", ["gaussian", "one_hot"])
def test_which_parameters_a_term_reaches(term, actor, critic, kind):
    loss = ClipPPOLoss(*lean_nets(kind))
    loss(make_rows(loss.actor_network))[term].backward()
    reached = {name for name, p in loss.named_parameters() if p.grad is not None and p.grad.any()}
    groups = {name.split("_")[0] for name in reached}
    assert groups == {name for name, is_in in (("actor", actor), ("critic", critic)) if is_in}
    if (term, kind) == ("loss_entropy", "gaussian"):
        assert reached == {"actor_network_params.log_std"}
    else:
        part = "actor" if actor else "critic"
        assert reached == {name for name, _ in loss.named_parameters() if name.startswith(part)}


def test_update_terms_are_those_of_forward():
    loss = ClipPPOLoss(*lean_nets(), clip_value=0.2, normalize_advantage=True)
    rows = make_rows(loss.actor_network)
    whole, terms = loss(rows), loss.update_terms(rows)
    assert set(terms) == {"loss_objective", "loss_critic", "entropy", "loss_entropy"}
    for name, value in terms.items():
        torch.testing.assert_close(value, whole[name], atol=0.0, rtol=0.0)
    wanted, found = gradients(loss, whole), gradients(loss, loss.update_terms(rows))
    torch.testing.assert_close(found, wanted, atol=0.0, rtol=0.0)


def test_a_batch_keeps_its_entries():
    loss = ClipPPOLoss(*lean_nets(), normalize_advantage=True, clip_value=0.1)
    rows = make_rows(loss.actor_network)
    kept = rows.clone()
    loss(rows)
    loss.update_terms(rows)
    assert set(rows.keys(True, True)) == set(kept.keys(True, True))
    assert (rows == kept).all()


def test_row_keys_are_what_an_update_reads():
    for options in ({}, {"clip_value": 0.2}, {"log_explained_variance": False}):
        loss = ClipPPOLoss(make_actor(), make_value(), **options)
        rows = make_rows(loss.actor_network)
        needed = rows.select(*loss.row_keys)
        assert set(loss.row_keys) <= set(rows.keys(True, True))
        torch.testing.assert_close(loss(needed).to_dict(), loss(rows).to_dict())
        assert ("state_value" in loss.row_keys) == ("clip_value" in options)
        named = set(loss.out_keys) | set(loss.report_keys)
        assert named == set(loss(rows).keys())


def test_shapes_of_the_cases():
    rows = make_rows(make_actor(), 2, 5)
    assert rows["observation"].shape == (2, 5, OBS)
    assert rows["action"].shape == (2, 5, ACT)
