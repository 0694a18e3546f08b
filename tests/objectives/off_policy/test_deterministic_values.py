"""Values worked out by hand: an actor that is one number, critics that are straight lines."""

from __future__ import annotations

import pytest
import torch
from deterministic_cases import lean_actor, lean_critic, lean_td3, torchrl_actor, torchrl_critic
from sac_cases import make_batch, seeded
from tensordict import TensorDict
from tensordict.nn import TensorDictModule
from torch import nn
from torchrl.data import Unbounded
from torchrl.objectives import ValueEstimators

from torchrl_elegant.objectives import DDPGLoss, TD3Loss

pytestmark = pytest.mark.filterwarnings("ignore:No target network updater")

ACTION, TARGET_ACTION = 0.25, 0.75


class Number(nn.Module):
    """mu(s) = level."""

    def __init__(self):
        super().__init__()
        self.level = nn.Parameter(torch.tensor(ACTION))

    def forward(self, observation):
        return self.level.expand(*observation.shape[:-1], 1)


class Line(nn.Module):
    """Q(s, a) = level + slope * a."""

    def __init__(self, level, slope):
        super().__init__()
        self.level = nn.Parameter(torch.tensor(float(level)))
        self.slope = nn.Parameter(torch.tensor(float(slope)))

    def forward(self, observation, action):
        return self.level + self.slope * action


def networks(*lines):
    actor = TensorDictModule(Number(), in_keys=["observation"], out_keys=["action"])
    critics = [
        TensorDictModule(
            Line(*line), in_keys=["observation", "action"], out_keys=["state_action_value"]
        )
        for line in lines
    ]
    return actor, critics


def ddpg(**options):
    # Q = 4 + 2 a; its delayed copy 10 + 4 a at a = 0.75 gives 13
    actor, (critic,) = networks((4.0, 2.0))
    loss = DDPGLoss(actor, critic, **{"delay_actor": True, **options})
    loss.target_value_network_params["module", "level"].data.fill_(10.0)
    loss.target_value_network_params["module", "slope"].data.fill_(4.0)
    if options.get("delay_actor", True):
        loss.target_actor_network_params["module", "level"].data.fill_(TARGET_ACTION)
    loss.make_value_estimator(gamma=0.9)
    return loss


def td3(**options):
    # Q = 4 + 2 a and 7 - 6 a; delayed 10 + 4 a and 30 + 8 a
    options = {"policy_noise": 0.0, "loss_function": "l2", "bounds": (-1.0, 1.0), **options}
    loss = TD3Loss(*networks((4.0, 2.0), (7.0, -6.0)), **options)
    target = loss.target_qvalue_network_params
    target["module", "level"].data.copy_(torch.tensor([10.0, 30.0]))
    target["module", "slope"].data.copy_(torch.tensor([4.0, 8.0]))
    loss.target_actor_network_params["module", "level"].data.fill_(TARGET_ACTION)
    loss.make_value_estimator(gamma=0.9)
    return loss


def rows(terminated=(False, True, False), truncated=(False, False, True)):
    """Reward 1; the stored action is 0."""
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


# y = 1 + 0.9 * 13 where the episode goes on, or was only cut off
TARGET = torch.tensor([12.7, 1.0, 12.7])


@pytest.mark.parametrize("make", [ddpg, td3])
def test_target_tells_terminated_from_truncated(make):
    torch.testing.assert_close(make()(rows())["target_value"], TARGET)


def test_target_of_an_actor_that_is_not_followed():
    target = ddpg(delay_actor=False)(rows())["target_value"]
    torch.testing.assert_close(target, torch.tensor([1 + 0.9 * 11.0, 1.0, 1 + 0.9 * 11.0]))


def test_critic_of_ddpg():
    loss, batch = ddpg(), rows()
    out = loss(batch)
    # Q(s, 0) = 4: errors -8.7, 3, -8.7
    torch.testing.assert_close(batch["td_error"], torch.tensor([8.7, 3.0, 8.7]))
    torch.testing.assert_close(out["loss_value"], torch.tensor((2 * 8.7**2 + 9.0) / 3))
    torch.testing.assert_close(out["pred_value"], torch.full((3,), 4.0))
    assert (out["pred_value_max"].item(), out["target_value_max"].item()) == (
        4.0,
        pytest.approx(12.7),
    )
    out["loss_value"].backward()
    params = loss.value_network_params
    torch.testing.assert_close(params["module", "level"].grad, torch.tensor(2 * (3 - 17.4) / 3))
    torch.testing.assert_close(params["module", "slope"].grad, torch.tensor(0.0))


def test_actor_of_ddpg():
    loss = ddpg()
    out = loss(rows())
    torch.testing.assert_close(out["loss_actor"], torch.tensor(-4.5))  # -(4 + 2 * 0.25)
    out["loss_actor"].backward()
    grad = loss.actor_network_params["module", "level"].grad
    torch.testing.assert_close(grad, torch.tensor(-2.0))


def test_critics_of_td3():
    loss, batch = td3(), rows()
    out = loss(batch)
    # errors of Q = 4: -8.7, 3, -8.7; of Q = 7: -5.7, 6, -5.7; the largest is the priority
    torch.testing.assert_close(batch["td_error"], torch.tensor([8.7, 6.0, 8.7]))
    by_hand = (2 * 8.7**2 + 9.0 + 2 * 5.7**2 + 36.0) / 3
    torch.testing.assert_close(out["loss_qvalue"], torch.tensor(by_hand))
    torch.testing.assert_close(out["next_state_value"], torch.full((3,), 13.0))
    out["loss_qvalue"].backward()
    grad = loss.qvalue_network_params["module", "level"].grad
    torch.testing.assert_close(grad, torch.tensor([2 * (3 - 17.4) / 3, 2 * (6 - 11.4) / 3]))


@pytest.mark.parametrize(
    ("how", "value", "slope"), [("first", 4.5, 2.0), ("min", 4.5, 2.0), ("mean", 5.0, -2.0)]
)
def test_actor_of_td3(how, value, slope):
    # at a = 0.25: 4.5 with slope 2, and 5.5 with slope -6
    loss = td3(actor_q=how)
    out = loss(rows())
    torch.testing.assert_close(out["loss_actor"], torch.tensor(-value))
    torch.testing.assert_close(out["state_action_value_actor"][:, 0], torch.tensor([4.5, 5.5]))
    out["loss_actor"].backward()
    grad = loss.actor_network_params["module", "level"].grad
    torch.testing.assert_close(grad, torch.tensor(-slope))


def test_the_first_is_not_the_least():
    def loss(how):
        made = td3(actor_q=how)
        made.qvalue_network_params["module", "level"].data.copy_(torch.tensor([9.0, 7.0]))
        return made(rows())["loss_actor"].item()

    assert (loss("first"), loss("min")) == (-9.5, -5.5)


def test_noise_on_the_target_is_clipped_twice():
    """Clipped by ``noise_clip``, then by the bounds; a next action of 0.75 gives 10 + 4 * 0.75."""
    count, flags = 4000, (False,) * 4000
    batch = rows(flags, flags)

    def next_actions(**options):
        torch.manual_seed(0)
        return (td3(**options)(batch)["next_state_value"] - 10.0) / 4.0

    free = next_actions(policy_noise=0.1, noise_clip=9.0, bounds=(-9.0, 9.0))
    assert free.mean().item() == pytest.approx(TARGET_ACTION, abs=4 * 0.1 / count**0.5)
    assert free.std().item() == pytest.approx(0.1, rel=0.05)
    clipped = next_actions(policy_noise=0.1, noise_clip=0.05, bounds=(-9.0, 9.0))
    torch.testing.assert_close(clipped, free.clamp(TARGET_ACTION - 0.05, TARGET_ACTION + 0.05))
    bounded = next_actions(policy_noise=0.1, noise_clip=9.0, bounds=(0.7, 0.8))
    torch.testing.assert_close(bounded, free.clamp(0.7, 0.8))


@pytest.mark.parametrize("make", [ddpg, td3])
@pytest.mark.parametrize(("steps", "target"), [(1, 1 + 0.9 * 13), (3, 1 + 0.9**3 * 13)])
def test_steps_to_next_obs(make, steps, target):
    batch = rows((False,), (False,))
    batch["steps_to_next_obs"] = torch.full((1, 1), steps)
    torch.testing.assert_close(make()(batch)["target_value"], torch.tensor([target]))


@pytest.mark.parametrize("make", [ddpg, td3])
@pytest.mark.parametrize("kind", ["TD1", "TDLambda"])
def test_other_estimators_bootstrap_through_truncation(make, kind):
    batch = rows((False, True), (True, False)).unsqueeze(0)
    loss = make()
    loss.make_value_estimator(ValueEstimators[kind], gamma=0.9)
    torch.testing.assert_close(loss(batch)["target_value"], torch.tensor([[12.7, 1.0]]))


@pytest.mark.parametrize(("name", "value"), [("l1", 8.7), ("l2", 8.7**2), ("smooth_l1", 8.2)])
def test_distances(name, value):
    out = ddpg(loss_function=name)(rows((False,), (False,)))
    torch.testing.assert_close(out["loss_value"], torch.tensor(value))


def test_flat_rewards_do_not_broadcast():
    loss, batch = lean_td3(), make_batch(6)
    expected = seeded(loss, batch)[0]
    flat = batch.clone()
    for name in ("reward", "done", "terminated"):
        flat["next", name] = flat["next", name].squeeze(-1)
    actual = seeded(loss, flat)[0]
    torch.testing.assert_close(actual.detach().to_dict(), expected.detach().to_dict())


@pytest.mark.parametrize("width", [3, 6])
def test_rewards_of_several_columns_are_refused(width):
    batch = make_batch(6)
    batch["next", "reward"] = torch.randn(6, width)
    with pytest.raises(RuntimeError):
        lean_td3(num_critics=6)(batch)


def test_refusals():
    actor, critic = torchrl_actor(), torchrl_critic()
    for options in ({}, {"bounds": (-1.0, 1.0), "action_spec": actor.spec}):
        with pytest.raises(
            ValueError, match="`bounds` or `action_spec` must be given, but not both"
        ):
            TD3Loss(actor, critic, **options)
    with pytest.raises(ValueError, match="`bounds` must be low <= high"):
        TD3Loss(actor, critic, bounds=(1.0, -1.0))
    with pytest.raises(ValueError, match="`action_spec` must be Bounded, got `Unbounded"):
        TD3Loss(actor, critic, action_spec=Unbounded((2,)))
    with pytest.raises(ValueError, match=r"`actor_q` must be .*, got `max`"):
        lean_td3(actor_q="max")
    for name in ("policy_noise", "noise_clip"):
        with pytest.raises(ValueError, match=f"`{name}` must be 0 or more, got `-0.1`"):
            lean_td3(**{name: -0.1})
    with pytest.raises(ValueError, match="`value_network` must have one member, got `2`; TD3Loss"):
        DDPGLoss(lean_actor(), lean_critic(2))
    with pytest.raises(RuntimeError, match="deprecated"):
        lean_td3(priority_key="p")


def test_the_actors_own_bounds_are_the_default():
    loss = lean_td3()
    assert loss.min_action.tolist() == loss.actor_network.low.tolist()
    assert loss.max_action.tolist() == loss.actor_network.high.tolist()
    assert "min_action" in loss.state_dict()
