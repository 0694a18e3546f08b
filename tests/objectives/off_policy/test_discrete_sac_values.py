"""Discrete SAC worked out by hand, and which parameters each term reaches."""

from __future__ import annotations

import math
import pickle
from copy import deepcopy

import pytest
import torch
from tensordict import TensorDict
from value_cases import (
    ACTS,
    assert_equal_losses,
    categorical_actor,
    make_batch,
    move_targets,
    q_network,
    torchrl_networks,
)

from torchrl_elegant.modules import CategoricalActor, FixedTemperature, LearnedTemperature, QNetwork
from torchrl_elegant.objectives import DiscreteSACLoss, LeanSoftUpdate

pytestmark = pytest.mark.filterwarnings("ignore:No target network updater")

PROBS = (0.25, 0.75)
ENTROPY = -sum(p * math.log(p) for p in PROBS)


def table(alpha=0.5, *, probs=PROBS, **options) -> DiscreteSACLoss:
    """A policy and values that depend on no observation.

    Online values (1, 5) and (4, 2), targets (10, 40) and (20, 30): least (1, 2) and (10, 30).
    """
    shape = {"observation": {"observation": (1,)}, "choices": 2, "num_cells": (2,)}
    actor = CategoricalActor(form="categorical", **shape)
    critic = QNetwork(form="categorical", num_members=2, **shape)
    options = {"loss_function": "l2", "target_entropy": 0.1, "alpha_init": alpha, **options}
    loss = DiscreteSACLoss(actor, critic, **options)
    loss.make_value_estimator(gamma=0.9)
    with torch.no_grad():
        actor.net.layers[-1].weight.zero_()
        actor.net.layers[-1].bias.copy_(torch.tensor(probs).log())
    for params, values in (
        (loss.qvalue_network_params, [[1.0, 5.0], [4.0, 2.0]]),
        (loss.target_qvalue_network_params, [[10.0, 40.0], [20.0, 30.0]]),
    ):
        params["net", "weight_1"].data.zero_()
        params["net", "bias_1"].data.copy_(torch.tensor(values).unsqueeze(1))
    return loss


def rows():
    """One step that goes on, one that terminates, one that is cut short."""
    terminated = torch.tensor([[False], [True], [False]])
    after = {
        "observation": torch.zeros(3, 1),
        "reward": torch.ones(3, 1),
        "terminated": terminated,
        "done": terminated | torch.tensor([[False], [False], [True]]),
    }
    now = {"observation": torch.zeros(3, 1), "action": torch.tensor([0, 1, 0])}
    return TensorDict({**now, "next": after}, [3])


VALUE = 0.25 * 10 + 0.75 * 30 + 0.5 * ENTROPY
TARGET = 1 + 0.9 * VALUE


@pytest.mark.parametrize("skip", [False, True])
def test_target_tells_terminated_from_truncated(skip):
    target = table(skip_done_states=skip).qvalue_loss(rows())[1]["target"]
    torch.testing.assert_close(target, torch.tensor([TARGET, 1.0, TARGET]))


def test_critic_loss_priority_and_gradient():
    loss, batch = table(), rows()
    out = loss(batch)
    # Values of action 0: 1 and 4; of action 1, whose target is 1: 5 and 2.
    by_hand = (2 * ((1 - TARGET) ** 2 + (4 - TARGET) ** 2) + 4**2 + 1**2) / 3
    torch.testing.assert_close(out["loss_qvalue"], torch.tensor(by_hand))
    errors = torch.tensor([TARGET - 1, 4.0, TARGET - 1])
    torch.testing.assert_close(batch["td_error"], errors)
    out["loss_qvalue"].backward()
    grad = loss.qvalue_network_params["net", "bias_1"].grad[:, 0]
    by_hand = [[4 * (1 - TARGET) / 3, 8 / 3], [4 * (4 - TARGET) / 3, 2 / 3]]
    torch.testing.assert_close(grad, torch.tensor(by_hand))


def test_actor_loss_and_gradient():
    loss = table()
    out = loss(rows())
    torch.testing.assert_close(out["loss_actor"], torch.tensor(-0.5 * ENTROPY - 0.25 - 1.5))
    torch.testing.assert_close(out["entropy"], torch.tensor(ENTROPY))
    out["loss_actor"].backward()
    # d/d logit_a of sum p f, with f = alpha log p - Q: p_a (f_a - sum p f).
    f = [0.5 * math.log(0.25) - 1.0, 0.5 * math.log(0.75) - 2.0]
    mean = 0.25 * f[0] + 0.75 * f[1]
    by_hand = torch.tensor([0.25 * (f[0] - mean), 0.75 * (f[1] - mean)])
    torch.testing.assert_close(loss.actor_network.net.layers[-1].bias.grad, by_hand)


@pytest.mark.parametrize("target", [0.1, 5.0])
def test_alpha_loss_and_gradient(target):
    loss = table(target_entropy=target)
    out = loss(rows())
    by_hand = -math.log(0.5) * (target - ENTROPY)
    torch.testing.assert_close(out["loss_alpha"], torch.tensor(by_hand))
    out["loss_alpha"].backward()
    # Above its target alpha falls, below it rises.
    torch.testing.assert_close(loss.log_alpha.grad, torch.tensor(ENTROPY - target))


def test_actions_without_probability_count_nothing():
    loss = table(probs=(0.0, 1.0))
    out = loss(rows())
    torch.testing.assert_close(out["loss_actor"], torch.tensor(-2.0))
    torch.testing.assert_close(out["entropy"], torch.tensor(0.0))


def test_target_entropy_is_a_part_of_the_largest():
    networks = categorical_actor(), q_network()
    loss = DiscreteSACLoss(*networks, target_entropy_weight=0.5)
    torch.testing.assert_close(loss.target_entropy, torch.tensor(0.5 * math.log(ACTS)))
    fixed = DiscreteSACLoss(*networks, temperature=FixedTemperature(alpha=0.2))
    assert "log_alpha" not in dict(fixed.named_parameters())
    torch.testing.assert_close(fixed(make_batch())["alpha"], torch.tensor(0.2))
    kept = DiscreteSACLoss(*networks, temperature=LearnedTemperature(target_entropy=0.3))
    torch.testing.assert_close(kept.target_entropy, torch.tensor(0.3))


def lean(**options):
    loss = DiscreteSACLoss(categorical_actor(), q_network(num_members=3), **options)
    move_targets(loss)
    return loss


def ordinary(**options):
    options = {"action_space": "one_hot", "num_actions": ACTS, **options}
    return DiscreteSACLoss(*torchrl_networks(), **options)


MADE = pytest.mark.parametrize("make", [lean, ordinary])
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
    parts = {**loss.critic_terms(batch), **loss.actor_terms(batch)}
    torch.testing.assert_close(parts, loss(batch).to_dict())


def cast(loss):
    return loss.to(torch.float64).to(torch.float32)


def pickled(loss):
    return pickle.loads(pickle.dumps(loss))


def restored(loss):
    other = lean() if isinstance(loss.qvalue_network, QNetwork) else ordinary()
    _ = loss.value_estimator
    other.load_state_dict(loss.state_dict())
    return other


@MADE
@pytest.mark.parametrize("change", [cast, deepcopy, pickled, restored])
def test_networks_stay_bound(make, change):
    """The loss computes with values that are written through its parameters."""
    loss, batch = make(alpha_init=0.4), make_batch()
    copy = change(deepcopy(loss))
    assert_equal_losses(loss, copy, batch)
    for name in ("actor_network_params", "qvalue_network_params"):
        before = copy(batch.clone())["loss_actor"]
        getattr(copy, name).data.mul_(1.5)
        assert not torch.allclose(copy(batch.clone())["loss_actor"], before)
    before = copy.qvalue_loss(batch)[1]["target"]
    for value in copy.target_qvalue_network_params.values(True, True):
        value.data.mul_(3.0)
    assert not torch.allclose(copy.qvalue_loss(batch)[1]["target"], before)


@MADE
def test_the_target_updater_moves_what_is_used(make):
    loss, batch = make(), make_batch()
    updater = LeanSoftUpdate(loss, tau=0.1)
    loss.qvalue_network_params.data.mul_(2.0)
    before = loss.qvalue_loss(batch)[1]["target"]
    online, target = loss.qvalue_network_params.data, loss.target_qvalue_network_params.data
    expected = 0.1 * online + 0.9 * target
    updater.step()
    assert not torch.allclose(loss.qvalue_loss(batch)[1]["target"], before)
    target = loss.target_qvalue_network_params.data
    torch.testing.assert_close(target.to_dict(), expected.to_dict())


def test_refusals():
    actor, critic = torchrl_networks()
    with pytest.raises(ValueError, match="`num_actions` must be given where target_entropy is"):
        DiscreteSACLoss(actor, critic, action_space="one_hot")
    with pytest.raises(ValueError, match="`action_space` must be given for a network of type"):
        DiscreteSACLoss(critic, critic, num_actions=ACTS)
    other = QNetwork(observation={"observation": (3,)}, choices=ACTS + 1)
    with pytest.raises(RuntimeError, match="actor and critic must have as many actions"):
        DiscreteSACLoss(categorical_actor(), other).actor_loss(make_batch())
