"""REDQ's loss by hand: subsets, the weighted target, what the actor raises, what is reached."""

from __future__ import annotations

import pickle
from copy import deepcopy

import pytest
import torch
from sac_cases import lean_critic, lean_loss, make_batch, seeded, torchrl_actor, torchrl_critic

from torchrl_elegant.modules import FixedTemperature
from torchrl_elegant.objectives import REDQLoss, SACLoss

pytestmark = pytest.mark.filterwarnings("ignore:No target network updater")

LEVELS = torch.arange(5.0)


def redq(num_critics=5, **options):
    return lean_loss(num_critics, loss=REDQLoss, **options)


def constant(targets=LEVELS, values=LEVELS, alpha=1e-12, **options):
    """Members that say what they are told everywhere; a temperature of next to nothing."""
    temperature = FixedTemperature(alpha=alpha)
    loss = redq(len(LEVELS), temperature=temperature, loss_function="l2", **options)
    loss.make_value_estimator(gamma=0.5)
    for params, levels in (
        (loss.qvalue_network_params, values),
        (loss._modules["target_qvalue_network_params"], targets),
    ):
        for i in range(2):
            params["net", f"weight_{i}"].data.zero_()
        params["net", "bias_1"].data.copy_(levels.view(-1, 1, 1))
    return loss


def rows():
    """One that goes on, one terminated, one truncated; a reward of 1 each."""
    batch = make_batch(3)
    batch["next", "reward"].fill_(1.0)
    batch["next", "terminated"] = torch.tensor([[False], [True], [False]])
    batch["next", "truncated"] = torch.tensor([[False], [False], [True]])
    batch["next", "done"] = batch["next", "terminated"] | batch["next", "truncated"]
    return batch


def test_all_by_hand():
    # y = 1 + 0.5 * min(0..4), and 1 where terminated: with targets from 2 on, 2, 1, 2
    loss, batch = constant(targets=LEVELS + 2, sub_sample_len=5), rows()
    out = loss(batch)
    torch.testing.assert_close(out["next.state_value"], torch.full((3,), 2.0))
    torch.testing.assert_close(out["target_value"], torch.tensor([2.0, 1.0, 2.0]))
    # squares of (0..4) - 2: 4 1 0 1 4, twice; of (0..4) - 1: 1 0 1 4 9
    torch.testing.assert_close(out["loss_qvalue"], torch.tensor((10.0 + 15.0 + 10.0) / 15))
    torch.testing.assert_close(batch["td_error"], torch.tensor([2.0, 3.0, 2.0]))
    torch.testing.assert_close(out["loss_actor"], torch.tensor(-2.0))
    torch.testing.assert_close(out["state_action_value_actor"], LEVELS.view(5, 1).expand(5, 3))
    out["loss_qvalue"].backward()
    # of member i: 2 / 15 * sum of its errors, (i - 2) twice and (i - 1)
    grad = loss.qvalue_network_params["net", "bias_1"].grad.flatten()
    torch.testing.assert_close(grad, 2 / 15 * (3 * LEVELS - 5))


def test_entropy_in_target_and_actor():
    loss = constant(alpha=0.5, sub_sample_len=5)
    batch = rows()
    torch.manual_seed(0)
    out = loss(batch)
    torch.manual_seed(0)
    after = loss.actor_network.sample([batch["next", "observation"]])[1]
    now = loss.actor_network.sample([batch["observation"]])[1]
    torch.testing.assert_close(out["next.state_value"], -0.5 * after)
    torch.testing.assert_close(out["loss_actor"], 0.5 * now.mean() - 2.0)
    torch.testing.assert_close(out["action_log_prob_actor"], now.detach())


def test_temperature_learns_at_both_states():
    loss, batch = redq(alpha_init=0.5, target_entropy=-3.0), rows()
    torch.manual_seed(0)
    out = loss.actor_terms(batch)
    torch.manual_seed(0)
    now = loss.actor_network.sample([batch["observation"]])[1]
    after = loss.actor_network.sample([batch["next", "observation"]])[1]
    log_prob = torch.cat([now, after]).detach()
    torch.testing.assert_close(out["loss_alpha"], (-0.5 * (log_prob - 3.0)).mean())
    torch.testing.assert_close(out["entropy"], -log_prob.mean())
    out["loss_alpha"].backward()
    torch.testing.assert_close(loss.log_alpha.grad, -0.5 * (log_prob - 3.0).mean())


def test_the_weighted_target():
    # 1/3 * 0 + 2/3 * 2
    out = constant(target="weighted")(rows())
    torch.testing.assert_close(out["next.state_value"], torch.full((3,), 4 / 3))


@pytest.mark.parametrize(("members", "counts"), [(1, (200,) * 5), (2, (400, 300, 200, 100, 0))])
def test_minimum_of_a_random_subset(members, counts):
    loss, batch = constant(sub_sample_len=members), rows()
    draws = torch.stack([loss.qvalue_loss(batch)[1]["next_value"] for _ in range(1000)]).round()
    assert (draws == draws[:, :1]).all()  # the batch shares its subset
    found = torch.bincount(draws[:, 0].long(), minlength=5)
    for number, expected in zip(found.tolist(), counts, strict=True):
        assert abs(number - expected) <= 4 * (expected * (1 - expected / 1000)) ** 0.5


@pytest.mark.parametrize("kind", ["lean", "ordinary"])
def test_only_drawn_members_are_evaluated(kind):
    loss = redq(10) if kind == "lean" else REDQLoss(torchrl_actor(), torchrl_critic())
    batch, seen = make_batch(), []
    target = loss._critic.target

    def watched(tensordict, action, members=None):
        values = target(tensordict, action, members)
        seen.append(values.shape[0])
        return values

    loss._critic.target = watched
    loss(batch)
    assert seen == [2]


def test_is_sac_but_for_scale():
    """Same target and gradients, up to the factor of N, as SAC over the same ensemble."""
    loss = redq(4, sub_sample_len=4, min_alpha=None, max_alpha=None, target_entropy=-2.0)
    sac = lean_loss(4, actor_q="mean", target_entropy=-2.0)
    state = loss.state_dict()
    state["_target_entropy"] = state.pop("target_entropy_buffer")
    sac.load_state_dict(state)
    batch = make_batch()
    left, right = seeded(loss, batch)[0], seeded(sac, batch)[0]
    torch.testing.assert_close(left["loss_qvalue"] * 4, right["loss_qvalue"])
    torch.testing.assert_close(left["loss_actor"], right["loss_actor"])


REACHED = {
    "loss_actor": "actor_network_params",
    "loss_qvalue": "qvalue_network_params",
    "loss_alpha": "log_alpha",
}


def ordinary(**options):
    return REDQLoss(torchrl_actor(), torchrl_critic(), **options)


MADE = pytest.mark.parametrize("make", [redq, ordinary])


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
    assert parts.keys() == set(loss.terms)
    for name, value in parts.items():
        assert value.ndim == 0
        torch.testing.assert_close(value, whole[name])
    assert all(value.requires_grad == key.startswith("loss_") for key, value in whole.items())


def cast(loss):
    return loss.to(torch.float64)


def pickled(loss):
    return pickle.loads(pickle.dumps(loss))


@MADE
@pytest.mark.parametrize("change", [cast, deepcopy, pickled])
def test_networks_stay_bound(make, change):
    loss = change(make())
    batch = make_batch(dtype=loss.log_alpha.dtype)
    assert loss.out_keys == make().out_keys
    before = seeded(loss, batch)[0]
    loss.target_qvalue_network_params.data.mul_(3.0)
    loss.actor_network_params.data.mul_(1.5)
    after = seeded(loss, batch)[0]
    assert not torch.allclose(after["target_value"], before["target_value"])
    assert not torch.allclose(after["loss_actor"], before["loss_actor"])


@MADE
def test_state_dict_round_trip(make):
    loss, other, batch = make(), make(), make_batch()
    other.load_state_dict(deepcopy(loss.state_dict()))
    left, right = seeded(loss, batch)[0], seeded(other, batch)[0]
    torch.testing.assert_close(right.to_dict(), left.to_dict(), atol=0.0, rtol=0.0)


@pytest.mark.parametrize(("critics", "members"), [(1, 1), (2, 1), (3, 2), (10, 2)])
def test_members_by_default(critics, members):
    assert redq(critics).sub_sample_len == members


def test_members_are_what_was_asked_for():
    loss = redq(2, sub_sample_len=2)
    assert loss.sub_sample_len == 2
    assert REDQLoss(torchrl_actor(), torchrl_critic(), num_qvalue_nets=7).num_qvalue_nets == 7
    assert redq(4, target="weighted").sub_sample_len == 4


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"sub_sample_len": 6}, "`sub_sample_len` must lie between 1 and the 5 critics, got `6`;"),
        ({"sub_sample_len": 0}, "`sub_sample_len` must lie between 1 and the 5 critics, got `0`;"),
        ({"target": "mean"}, "`target` must be 'subset' or 'weighted', got `mean`"),
        ({"target": "weighted", "sub_sample_len": 2}, "`sub_sample_len` must be None with"),
        ({"fixed_alpha": True, "alpha_init": 0.05}, "`alpha_init` must lie within"),
    ],
)
def test_refusals(options, message):
    with pytest.raises(ValueError, match=message):
        redq(**options)


@pytest.mark.parametrize("name", ["gamma", "gSDE", "skip_done_states", "actor_q"])
def test_arguments_that_are_not_there(name):
    with pytest.raises(TypeError, match=name):
        redq(**{name: 0.9})


def test_a_temperature_without_bounds_stays_without():
    buffers = dict(constant().named_buffers())
    assert "log_alpha" in buffers
    assert not {"min_log_alpha", "max_log_alpha"} & buffers.keys()


def test_a_subset_of_the_ensemble():
    critic, x = lean_critic(4), make_batch(3, 2)
    observation, action = [x["observation"]], x["action"]
    every = critic.values(observation, action)
    some = critic.values(observation, action, torch.tensor([3, 1]))
    torch.testing.assert_close(some, every[[3, 1]])


def test_sac_evaluates_only_drawn_members_too():
    loss = lean_loss(4, loss=SACLoss, target_members=3)
    values = loss._critic.target(make_batch(), torch.zeros(24, 2), torch.arange(3))
    assert values.shape == (3, 24)
