"""Values worked out by hand: constant critics, an actor with a known density."""

from __future__ import annotations

import math

import pytest
import torch
from sac_cases import lean_loss, make_batch, seeded
from tensordict import TensorDict
from tensordict.nn import TensorDictModule
from torch import nn
from torchrl.modules import ProbabilisticActor
from torchrl.objectives import ValueEstimators

from torchrl_elegant.objectives import SACLoss

pytestmark = pytest.mark.filterwarnings("ignore:No target network updater")

# Uniform over [-w, w] with w = e^2 / 2: log pi = -2 wherever the action falls.
LOG_PROB = -2.0


class Flat(torch.distributions.Independent):
    """Uniform density of log-probability -2, with reparameterised samples."""

    def __init__(self, width):
        super().__init__(torch.distributions.Uniform(-width, width, validate_args=False), 1)


class Width(nn.Module):
    def __init__(self):
        super().__init__()
        self.log_width = nn.Parameter(torch.tensor(-LOG_PROB))

    def forward(self, observation):
        return (self.log_width.exp() / 2).expand(*observation.shape[:-1], 1)


class Constant(nn.Module):
    """Q(s, a) = level + slope * a, the slope zero."""

    def __init__(self, level):
        super().__init__()
        self.level = nn.Parameter(torch.tensor(float(level)))

    def forward(self, observation, action):
        return self.level + 0.0 * action


def constant_loss(levels=(4.0, 7.0), targets=(10.0, 30.0), alpha=0.5, **options):
    actor = ProbabilisticActor(
        TensorDictModule(Width(), in_keys=["observation"], out_keys=["width"]),
        in_keys=["width"],
        distribution_class=Flat,
        return_log_prob=True,
    )
    critics = [
        TensorDictModule(
            Constant(level), in_keys=["observation", "action"], out_keys=["state_action_value"]
        )
        for level in levels
    ]
    options = {"loss_function": "l2", "target_entropy": -1.0, **options}
    loss = SACLoss(actor, critics, num_qvalue_nets=len(levels), alpha_init=alpha, **options)
    loss.make_value_estimator(gamma=0.9)
    loss.target_qvalue_network_params["module", "level"].data.copy_(torch.tensor(targets))
    return loss


def rows(terminated=(False, True, False), truncated=(False, False, True)):
    terminated, truncated = (torch.tensor(x).unsqueeze(-1) for x in (terminated, truncated))
    count = len(terminated)
    after = {
        "observation": torch.zeros(count, 1),
        "reward": torch.ones(count, 1),
        "terminated": terminated,
        "done": terminated | truncated,
    }
    now = {"observation": torch.zeros(count, 1), "action": torch.zeros(count, 1)}
    return TensorDict({**now, "next": after}, [count])


def test_target_tells_terminated_from_truncated():
    # V' = min(10, 30) - 0.5 * (-2) = 11; y = 1 + 0.9 * 11, and 1 where terminated
    target = constant_loss().qvalue_loss(rows())[1]["target"]
    torch.testing.assert_close(target, torch.tensor([10.9, 1.0, 10.9]))


def test_sign_of_entropy_in_the_target():
    high, low = (constant_loss(alpha=a).qvalue_loss(rows())[1]["target"][0] for a in (2.0, 0.5))
    torch.testing.assert_close(high - low, torch.tensor(0.9 * 1.5 * 2.0))


def test_critic_loss_priority_and_gradient():
    loss, batch = constant_loss(), rows()
    out = loss(batch)
    # errors of Q = 4: -6.9, 3, -6.9; of Q = 7: -3.9, 6, -3.9
    by_hand = (6.9**2 * 2 + 3**2 + 3.9**2 * 2 + 6**2) / 3
    torch.testing.assert_close(out["loss_qvalue"], torch.tensor(by_hand))
    torch.testing.assert_close(batch["td_error"], torch.tensor([6.9, 6.0, 6.9]))
    out["loss_qvalue"].backward()
    grad = loss.qvalue_network_params["module", "level"].grad
    torch.testing.assert_close(grad, torch.tensor([2 * (-10.8) / 3, 2 * (-1.8) / 3]))


def test_actor_loss_and_gradient():
    loss = constant_loss()
    out = loss(rows())
    # alpha log pi - min(4, 7); d/d(log width) of log pi = -log width is -1
    torch.testing.assert_close(out["loss_actor"], torch.tensor(0.5 * LOG_PROB - 4.0))
    torch.testing.assert_close(out["entropy"], torch.tensor(2.0))
    out["loss_actor"].backward()
    grad = loss.actor_network_params["module", "0", "module", "log_width"].grad
    torch.testing.assert_close(grad, torch.tensor(-0.5))


def test_actor_raises_the_mean_where_asked():
    out = constant_loss(actor_q="mean")(rows())
    torch.testing.assert_close(out["loss_actor"], torch.tensor(0.5 * LOG_PROB - 5.5))


def test_alpha_loss_and_gradient():
    # entropy 2 is above its target of -1: alpha has to fall, so the gradient is positive
    loss = constant_loss()
    out = loss(rows())
    torch.testing.assert_close(out["loss_alpha"], torch.tensor(-math.log(0.5) * (LOG_PROB - 1.0)))
    out["loss_alpha"].backward()
    torch.testing.assert_close(loss.log_alpha.grad, torch.tensor(3.0))


def test_alpha_rises_where_entropy_lacks():
    loss = constant_loss(target_entropy=5.0)
    loss(rows())["loss_alpha"].backward()
    torch.testing.assert_close(loss.log_alpha.grad, torch.tensor(-3.0))


@pytest.mark.parametrize(("name", "value"), [("l1", 9.9), ("l2", 9.9**2), ("smooth_l1", 9.4)])
def test_distances(name, value):
    loss = constant_loss(levels=(1.0,), targets=(10.0,), loss_function=name)
    out = loss(rows((False,), (False,)))
    torch.testing.assert_close(out["loss_qvalue"], torch.tensor(value))


@pytest.mark.parametrize(("steps", "target"), [(1, 1 + 0.9 * 11), (3, 1 + 0.9**3 * 11)])
def test_steps_to_next_obs(steps, target):
    batch = rows((False,), (False,))
    batch["steps_to_next_obs"] = torch.full((1, 1), steps)
    found = constant_loss().qvalue_loss(batch)[1]["target"]
    torch.testing.assert_close(found, torch.tensor([target]))


@pytest.mark.parametrize("kind", ["TD1", "TDLambda"])
def test_other_estimators_bootstrap_through_truncation(kind):
    batch = rows((False, True), (True, False)).unsqueeze(0)
    loss = constant_loss()
    loss.make_value_estimator(ValueEstimators[kind], gamma=0.9)
    target = loss.qvalue_loss(batch)[1]["target"]
    torch.testing.assert_close(target, torch.tensor([[10.9, 1.0]]))


def test_skipping_ended_states_keeps_truncated_ones():
    target = constant_loss(skip_done_states=True).qvalue_loss(rows())[1]["target"]
    torch.testing.assert_close(target, torch.tensor([10.9, 1.0, 10.9]))


def test_done_stands_in_for_a_missing_terminated():
    batch = rows()
    del batch["next", "terminated"]
    target = constant_loss().qvalue_loss(batch)[1]["target"]
    torch.testing.assert_close(target, torch.tensor([10.9, 1.0, 1.0]))


def test_flat_rewards_do_not_broadcast():
    loss, batch = lean_loss(), make_batch(6)
    expected = seeded(loss, batch)[0]
    flat = batch.clone()
    for name in ("reward", "done", "terminated"):
        flat["next", name] = flat["next", name].squeeze(-1)
    actual = seeded(loss, flat)[0]
    torch.testing.assert_close(actual.to_dict(), expected.to_dict())
    assert flat["next", "reward"].shape == (6,)


@pytest.mark.parametrize("width", [3, 6])
def test_rewards_of_several_columns_are_refused(width):
    batch = make_batch(6)
    batch["next", "reward"] = torch.randn(6, width)
    with pytest.raises(RuntimeError):
        lean_loss(num_critics=6).qvalue_loss(batch)


def test_actions_without_an_event_dimension_are_refused():
    loss = constant_loss()
    loss.actor_network[-1].distribution_class = torch.distributions.Normal
    loss.actor_network[-1].distribution_kwargs = {"scale": 1.0}
    with pytest.raises((RuntimeError, TypeError, ValueError)):
        loss.actor_loss(rows())


@pytest.mark.parametrize("bad", [0, 3])
def test_target_members_must_exist(bad):
    with pytest.raises(ValueError, match="`target_members` must lie between 1 and the 2"):
        lean_loss(target_members=bad)


def test_other_refusals():
    with pytest.raises(ValueError, match="`actor_q` must be 'min' or 'mean', got `max`"):
        lean_loss(actor_q="max")
    with pytest.raises(ValueError, match="`alpha_init` must lie within"):
        lean_loss(fixed_alpha=True, alpha_init=1.0, max_alpha=0.5)
    loss = constant_loss()
    with pytest.raises(ValueError, match="`value_network` must be None"):
        SACLoss(loss.actor_network, loss.qvalue_network, nn.Linear(1, 1))
    with pytest.raises(RuntimeError, match="deprecated"):
        lean_loss(priority_key="p")


def test_bounds_hold_alpha_in_each_term():
    for term in ("qvalue_loss", "actor_loss"):
        loss = lean_loss(alpha_init=4.0, max_alpha=0.5, min_alpha=0.1)
        getattr(loss, term)(make_batch())
        torch.testing.assert_close(loss._alpha, torch.tensor(0.5))


def test_schedulable_numbers():
    loss = lean_loss(fixed_alpha=True)
    loss.log_alpha = math.log(0.25)
    torch.testing.assert_close(loss(make_batch())["alpha"], torch.tensor(0.25))
