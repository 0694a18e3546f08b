"""DQN worked out by hand, and which parameters it reaches."""

from __future__ import annotations

import pickle
from copy import deepcopy

import pytest
import torch
from tensordict import TensorDict
from torch import nn
from torchrl.modules import DistributionalQValueActor
from torchrl.objectives import HardUpdate, SoftUpdate, ValueEstimators
from value_cases import assert_equal_losses, make_batch, move_targets, q_network, q_value_actor

from torchrl_elegant.modules import QNetwork
from torchrl_elegant.objectives import DQNLoss, LeanHardUpdate, LeanSoftUpdate

pytestmark = pytest.mark.filterwarnings("ignore:No target network updater")


def table(*, online, targets, form="categorical", **options) -> DQNLoss:
    """Values that depend on no observation: one row of ``online`` and ``targets`` per member."""
    online, targets = torch.tensor(online), torch.tensor(targets)
    members, choices = online.shape
    net = QNetwork(
        observation={"observation": (1,)},
        choices=choices,
        num_members=members,
        form=form,
        num_cells=(2,),
    )
    loss = DQNLoss(net, **options)
    loss.make_value_estimator(gamma=0.9)
    for params, values in (
        (loss.value_network_params, online),
        (loss.target_value_network_params, targets),
    ):
        params["net", "weight_1"].data.zero_()
        params["net", "bias_1"].data.copy_(values.unsqueeze(1))
    return loss


def rows(terminated=(False, True, False), truncated=(False, False, True), actions=(0, 1, 2)):
    terminated, truncated = (torch.tensor(x).unsqueeze(-1) for x in (terminated, truncated))
    count = len(terminated)
    after = {
        "observation": torch.zeros(count, 1),
        "reward": torch.ones(count, 1),
        "terminated": terminated,
        "done": terminated | truncated,
    }
    now = {"observation": torch.zeros(count, 1), "action": torch.tensor(actions[:count])}
    return TensorDict({**now, "next": after}, [count])


ONE = {"online": [[1.0, 2.0, 5.0]], "targets": [[10.0, 30.0, 20.0]]}
# Of each action the lesser value: 4, 6, 5. On average the online members prefer the last.
TWO = {
    "online": [[1.0, 2.0, 9.0], [3.0, 4.0, 1.0]],
    "targets": [[4.0, 6.0, 40.0], [30.0, 50.0, 5.0]],
}


@pytest.mark.parametrize(
    ("case", "double", "value"),
    [(ONE, False, 30.0), (ONE, True, 20.0), (TWO, False, 6.0), (TWO, True, 5.0)],
    ids=["dqn", "double", "twin", "double twin"],
)
def test_target(case, double, value):
    # Bootstraps through a time limit, never through a fall.
    target = table(double_dqn=double, **case)._target_value(rows())
    torch.testing.assert_close(target, torch.tensor([1 + 0.9 * value, 1.0, 1 + 0.9 * value]))


def test_loss_priority_and_gradient():
    # Targets 28, 1, 28 and values 1, 2, 5: errors -27, 1, -23.
    loss, batch = table(**ONE), rows()
    out = loss(batch)
    torch.testing.assert_close(out["loss"], torch.tensor((27.0**2 + 1 + 23**2) / 3))
    torch.testing.assert_close(batch["td_error"], torch.tensor([[27.0], [1.0], [23.0]]))
    out["loss"].backward()
    grad = loss.value_network_params["net", "bias_1"].grad
    torch.testing.assert_close(grad, torch.tensor([[[-54.0, 2.0, -46.0]]]) / 3)


def test_members_learn_from_one_target():
    # Target 1 + 0.9 * 6 = 6.4 for action 1: errors -4.4 and -2.4; the larger is the priority.
    loss, batch = table(**TWO), rows((False,), (False,), (1,))
    out = loss(batch)
    torch.testing.assert_close(out["loss"], torch.tensor(4.4**2 + 2.4**2))
    torch.testing.assert_close(batch["td_error"], torch.tensor([[4.4]]))
    out["loss"].backward()
    grad = loss.value_network_params["net", "bias_1"].grad[:, 0]
    torch.testing.assert_close(grad, torch.tensor([[0.0, -8.8, 0.0], [0.0, -4.8, 0.0]]))


@pytest.mark.parametrize(("name", "value"), [("l1", 4.4), ("l2", 4.4**2), ("smooth_l1", 3.9)])
def test_distances(name, value):
    loss = table(online=[[2.0, 0.0]], targets=[[6.0, 0.0]], loss_function=name)
    out = loss(rows((False,), (False,), (0,)))
    torch.testing.assert_close(out["loss"], torch.tensor(value))


@pytest.mark.parametrize("kind", ["TD1", "TDLambda"])
def test_other_estimators_bootstrap_through_truncation(kind):
    loss = table(**ONE)
    loss.make_value_estimator(ValueEstimators[kind], gamma=0.9)
    batch = rows((False, True), (True, False)).unsqueeze(0)
    torch.testing.assert_close(loss._target_value(batch), torch.tensor([[28.0, 1.0]]))


def test_done_stands_in_for_a_missing_terminated():
    batch = rows()
    del batch["next", "terminated"]
    target = table(**ONE)._target_value(batch)
    torch.testing.assert_close(target, torch.tensor([28.0, 1.0, 1.0]))


@pytest.mark.parametrize("width", [3, 6])
def test_rewards_of_several_columns_are_refused(width):
    batch = make_batch(6)
    batch["next", "reward"] = torch.randn(6, width)
    with pytest.raises(RuntimeError):
        DQNLoss(q_network(num_members=6))(batch)


def test_flat_rewards_do_not_broadcast():
    loss, batch = DQNLoss(q_network()), make_batch(6)
    expected = loss(batch.clone())
    for name in ("reward", "done", "terminated"):
        batch["next", name] = batch["next", name].squeeze(-1)
    torch.testing.assert_close(loss(batch)["loss"], expected["loss"])


MADE = pytest.mark.parametrize(
    "make",
    [q_network, lambda: q_network(num_members=2, dueling=True), q_value_actor],
    ids=["lean", "twin", "torchrl"],
)
DOUBLE = pytest.mark.parametrize("double", [False, True])


@MADE
@DOUBLE
def test_only_online_parameters_are_reached(make, double):
    loss = DQNLoss(make(), double_dqn=double)
    move_targets(loss)
    loss(make_batch())["loss"].backward()
    assert all(param.grad is not None and param.grad.any() for param in loss.parameters())
    targets = list(loss.target_value_network_params.values(True, True))
    assert targets
    assert not any(value.requires_grad for value in targets)
    assert not any("target" in name for name, _ in loss.named_parameters())


def test_the_choice_of_the_next_action_trains_nothing():
    """Terminated or not, gradients differ by the error alone: none flows through the choice."""
    loss = table(double_dqn=True, **ONE)
    loss(rows((False,), (False,), (0,)))["loss"].backward()
    grad = loss.value_network_params["net", "bias_1"].grad.flatten()
    assert grad[1:].tolist() == [0.0, 0.0]


@MADE
@DOUBLE
@pytest.mark.parametrize("updater", ["soft", "hard", "lean soft", "lean hard"])
def test_target_updaters_move_what_is_used(make, double, updater):
    loss, batch = DQNLoss(make(), double_dqn=double), make_batch()
    moved = {
        "soft": lambda: SoftUpdate(loss, tau=0.1),
        "hard": lambda: HardUpdate(loss, value_network_update_interval=0),
        "lean soft": lambda: LeanSoftUpdate(loss, tau=0.1),
        "lean hard": lambda: LeanHardUpdate(loss, period=1),
    }[updater]()
    for param in loss.value_network_params.values(True, True):
        param.data.add_(torch.randn_like(param))
    before = loss._target_value(batch)
    expected = {
        key: value.clone() if "hard" in updater else 0.1 * value + 0.9 * target
        for (key, value), target in zip(
            loss.value_network_params.items(True, True),
            loss.target_value_network_params.values(True, True),
            strict=True,
        )
    }
    moved.step()
    assert not torch.allclose(before, loss._target_value(batch))
    for key, target in loss.target_value_network_params.items(True, True):
        torch.testing.assert_close(target, expected[key].detach())


def test_hard_updates_come_every_so_many_steps():
    loss = DQNLoss(q_network())
    updater = LeanHardUpdate(loss, period=3)
    online, target = (
        params["net", "bias_0"]
        for params in (loss.value_network_params, loss.target_value_network_params)
    )
    copied = []
    for step in range(7):
        online.data.fill_(step)
        updater.step()
        copied.append(bool((target == step).all()))
        if step == 3:  # a run that goes on counts on
            other = LeanHardUpdate(loss, period=3)
            other.load_state_dict(updater.state_dict())
            updater = other
            online.data.fill_(step)
    assert copied == [False, False, True, False, False, True, False]
    with pytest.raises(ValueError, match="`period` must be at least 1, got `0`"):
        LeanHardUpdate(loss, period=0)


def cast(loss):
    return loss.to(torch.float64).to(torch.float32)


def pickled(loss):
    return pickle.loads(pickle.dumps(loss))


@MADE
@DOUBLE
@pytest.mark.parametrize("change", [cast, deepcopy, pickled])
def test_networks_stay_bound(make, double, change):
    """The loss computes with values that are written through its parameters."""
    loss, batch = DQNLoss(make(), double_dqn=double), make_batch()
    move_targets(loss)
    copy = change(deepcopy(loss))
    assert_equal_losses(loss, copy, batch)
    copy.value_network_params.data.mul_(1.5)
    assert not torch.allclose(copy(batch.clone())["loss"], loss(batch.clone())["loss"])
    before = copy._target_value(batch)
    copy.target_value_network_params.data.mul_(3.0)
    assert not torch.allclose(copy._target_value(batch), before)


def test_refusals():
    with pytest.raises(ValueError, match="`delay_value` must be True with double_dqn, got `False`"):
        DQNLoss(q_network(), double_dqn=True, delay_value=False)
    support = torch.linspace(0, 1, 5)
    with pytest.raises(ValueError, match=r"torchrl\.objectives\.DistributionalDQNLoss"):
        DQNLoss(DistributionalQValueActor(nn.Linear(3, 10), support, action_space="one_hot"))
    with pytest.raises(RuntimeError, match="deprecated"):
        DQNLoss(q_network(), priority_key="p")
