"""Our SACLoss gives TorchRL's numbers: terms, priorities, targets and gradients."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from sac_cases import (
    ACT,
    HIGH,
    LOW,
    OBS,
    TERMS,
    Q,
    assert_equal_losses,
    composite_actor,
    gradients,
    lean_actor,
    lean_critic,
    make_batch,
    move_targets,
    seeded,
    shared_encoder,
    torchrl_actor,
    torchrl_critic,
    twins,
)
from tensordict import unravel_key
from tensordict.nn import TensorDictModule, TensorDictSequential
from torch import nn
from torchrl.data import Bounded, Composite
from torchrl.data.postprocs import MultiStep
from torchrl.envs.utils import ExplorationType, set_exploration_type
from torchrl.modules import AdditiveGaussianModule, ProbabilisticActor, TanhNormal, ValueOperator
from torchrl.objectives import SACLoss as TorchRLSACLoss
from torchrl.objectives import ValueEstimators
from torchrl.objectives.value import TD0Estimator

from torchrl_elegant.objectives import SACLoss

pytestmark = pytest.mark.filterwarnings("ignore:No target network updater")


def ordinary():
    return torchrl_actor(), torchrl_critic()


OPTIONS = {
    "defaults": {},
    "one critic": {"num_qvalue_nets": 1},
    "four critics": {"num_qvalue_nets": 4},
    "l2": {"loss_function": "l2"},
    "l1": {"loss_function": "l1"},
    "smooth_l1": {"loss_function": "smooth_l1"},
    "alpha": {"alpha_init": 0.3},
    "fixed": {"fixed_alpha": True, "alpha_init": 0.2},
    "fixed, target": {"fixed_alpha": True, "alpha_init": 0.2, "target_entropy": -5.0},
    "min": {"min_alpha": 2.0},
    "max": {"max_alpha": 0.5},
    "min and max": {"min_alpha": 0.01, "max_alpha": 0.5},
    "min zero": {"min_alpha": 0.0, "max_alpha": 0.5},
    "target": {"target_entropy": -5.0},
    "target zero": {"target_entropy": 0.0},
    "spec": {"action_spec": Bounded(-1.0, 1.0, (7,))},
    "composite spec": {"action_spec": Composite(action=Bounded(-1.0, 1.0, (7,)))},
    "delayed actor": {"delay_actor": True},
    "no target": {"delay_qvalue": False},
    "separate": {"separate_losses": True},
    "sum": {"reduction": "sum"},
    "no vmap": {"deactivate_vmap": True},
    "no weights": {"use_prioritized_weights": False},
}


@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
def test_options(options):
    theirs, ours = twins(ordinary, **options)
    assert theirs.state_dict().keys() == ours.state_dict().keys()
    assert_equal_losses(theirs, ours, make_batch())


@pytest.mark.parametrize("scalars", ["exclude", "non_tensor"])
def test_no_reduction(scalars):
    theirs, ours = twins(ordinary, reduction="none", scalar_output_mode=scalars)
    batch = make_batch()
    assert_equal_losses(theirs, ours, batch, terms=TERMS[:3])
    expected, actual = seeded(theirs, batch)[0], seeded(ours, batch)[0]
    assert set(expected.keys()) == set(actual.keys())
    assert actual["loss_actor"].shape == batch.shape
    assert ("alpha" in actual) == (scalars == "non_tensor")


def test_list_of_networks():
    theirs, ours = twins(
        lambda: (torchrl_actor(), [torchrl_critic(), torchrl_critic(), torchrl_critic()]),
        num_qvalue_nets=3,
    )
    assert_equal_losses(theirs, ours, make_batch())


@pytest.mark.parametrize("separate", [True, False])
def test_shared_encoder(separate):
    options = {"action_spec": Bounded(-1.0, 1.0, (ACT,)), "num_qvalue_nets": 1}
    theirs, ours = twins(shared_encoder, separate_losses=separate, **options)
    assert_equal_losses(theirs, ours, make_batch())
    encoder = ours.qvalue_network_params["module", "0", "module", "weight"]
    assert encoder.requires_grad is not separate


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize("shape", [(24,), (24, 1)])
def test_priority_weights(reduction, shape):
    theirs, ours = twins(ordinary, reduction=reduction, scalar_output_mode="exclude")
    batch = make_batch(*shape[:1])
    batch["priority_weight"] = torch.rand(shape[0])
    assert_equal_losses(theirs, ours, batch, terms=TERMS[:3])
    weighted = seeded(ours, batch)[0]["loss_qvalue"]
    assert not torch.allclose(
        weighted, seeded(ours, batch.exclude("priority_weight"))[0]["loss_qvalue"]
    )


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize("key", [("collector", "mask"), "shifted_valid"])
@pytest.mark.parametrize("weighted", [False, True])
def test_masks(key, reduction, weighted):
    theirs, ours = twins(ordinary, reduction=reduction, scalar_output_mode="exclude")
    batch = make_batch(4, 5)
    batch[key] = torch.rand(4, 5, 1) < 0.6
    if weighted:
        batch["priority_weight"] = torch.rand(4, 5)
    assert_equal_losses(theirs, ours, batch, terms=TERMS[:3])


def test_mask_of_another_name_or_none():
    theirs, ours = twins(ordinary)
    batch = make_batch(4, 5)
    batch["valid"] = torch.rand(4, 5) < 0.5
    for key in ("valid", None):
        theirs.loss_mask_key = ours.loss_mask_key = key
        assert_equal_losses(theirs, ours, batch)


@pytest.mark.parametrize("ended", ["none", "some"])
def test_skip_done_states(ended):
    theirs, ours = twins(ordinary, skip_done_states=True)
    batch = make_batch(16)
    after = batch["next"]
    after["terminated"] = {
        "none": torch.zeros(16, 1, dtype=torch.bool),
        "some": torch.arange(16).unsqueeze(-1) % 3 == 0,
    }[ended]
    after["done"] = after["terminated"].clone()
    assert_equal_losses(theirs, ours, batch)


def test_all_states_skipped():
    _, ours = twins(ordinary, skip_done_states=True, loss_function="l1", num_qvalue_nets=1)
    batch = make_batch(16)
    batch["next", "terminated"].fill_(True)
    torch.testing.assert_close(ours.qvalue_loss(batch)[1]["target"], batch["next", "reward"][:, 0])


def test_skipped_states_may_hold_anything():
    _, ours = twins(ordinary, skip_done_states=True)
    batch = make_batch(16)
    gone = batch["next", "terminated"].squeeze(-1)
    assert gone.any()
    batch["next", "observation"][gone] = float("nan")
    assert all(value.isfinite().all() for value in ours(batch).values())


@pytest.mark.parametrize("missing", ["done", "terminated"])
def test_one_of_the_two_flags_is_enough_to_skip_by(missing):
    _, ours = twins(ordinary, skip_done_states=True, num_qvalue_nets=1)
    after = make_batch(16)["next"]
    after["done"] = after["terminated"].clone()
    ended = after["done"].squeeze(-1)
    assert ended.any()
    values = ours._next_value(after.exclude(missing))
    assert not values[ended].any()
    assert values[~ended].all()


def test_truncated_states_are_skipped_where_they_were_not_observed():
    _, ours = twins(ordinary, skip_done_states=True, num_qvalue_nets=1)
    batch = make_batch(16)
    after = batch["next"]
    lost = (after["done"] & ~after["terminated"]).squeeze(-1)
    assert lost.any()
    reward = after["reward"].squeeze(-1)
    assert not torch.isclose(ours.qvalue_loss(batch)[1]["target"], reward)[lost].any()
    after["observation"][lost] = float("nan")
    target = ours.qvalue_loss(batch)[1]["target"]
    torch.testing.assert_close(target[lost], reward[lost])
    assert target.isfinite().all()


@pytest.mark.parametrize("kind", ["TD0", "TD1", "TDLambda"])
@pytest.mark.parametrize("vmap", [True, False])
def test_value_estimators(kind, vmap):
    theirs, ours = twins(ordinary, deactivate_vmap=not vmap)
    for loss in (theirs, ours):
        loss.make_value_estimator(ValueEstimators[kind], gamma=0.9)
    assert_equal_losses(theirs, ours, make_batch(4, 5))


@pytest.mark.parametrize("kind", ["GAE", "VTrace"])
def test_unsupported_value_estimators(kind):
    with pytest.raises(NotImplementedError):
        SACLoss(*ordinary()).make_value_estimator(ValueEstimators[kind])


def test_value_estimator_as_class():
    theirs, ours = twins(ordinary)
    for loss in (theirs, ours):
        loss.make_value_estimator(TD0Estimator, gamma=0.8, value_network=None, average_rewards=True)
    assert_equal_losses(theirs, ours, make_batch())


@pytest.mark.parametrize("steps", [1, 3])
def test_n_step_returns(steps):
    theirs, ours = twins(ordinary)
    for loss in (theirs, ours):
        loss.make_value_estimator(gamma=0.9)
    batch = make_batch(4, 6)
    batch["collector", "mask"] = torch.ones(4, 6, dtype=torch.bool)
    batch = MultiStep(gamma=0.9, n_steps=steps)(batch).reshape(-1)
    assert "steps_to_next_obs" in batch
    assert_equal_losses(theirs, ours, batch)


KEYS = {
    "reward": ("game", "gain"),
    "done": ("flags", "over"),
    "terminated": ("flags", "dead"),
    "priority": ("buffer", "priority"),
    "priority_weight": "weight",
    "value": "v",
    "state_action_value": ("q", "value"),
}


def renamed_batch():
    batch = make_batch()
    batch.rename_key_("observation", ("agent", "state"))
    batch.rename_key_("action", ("agent", "move"))
    after = batch["next"]
    after.rename_key_("observation", ("agent", "state"))
    for name in ("reward", "done", "terminated"):
        after.rename_key_(name, KEYS[name])
    batch["weight"] = torch.rand(24)
    return batch


@pytest.mark.parametrize("kind", ["TD0", "TDLambda"])
@pytest.mark.parametrize("keys_first", [True, False])
def test_nested_and_renamed_keys(kind, keys_first):
    state, move = ("agent", "state"), ("agent", "move")
    theirs, ours = twins(
        lambda: (
            torchrl_actor(state, move),
            torchrl_critic(state, move, KEYS["state_action_value"]),
        ),
        target_entropy=-2.0,
    )
    for loss in (theirs, ours):
        if keys_first:
            loss.set_keys(action=move, **KEYS)
        loss.make_value_estimator(ValueEstimators[kind], gamma=0.9)
        if not keys_first:
            loss.set_keys(action=move, **KEYS)
    assert_equal_losses(theirs, ours, renamed_batch())
    assert {unravel_key(key) for key in theirs.in_keys} == set(ours.in_keys)


def test_nested_target_entropy():
    move = ("agent", "move")
    theirs, ours = twins(lambda: (torchrl_actor("observation", move), torchrl_critic(action=move)))
    assert theirs.target_entropy == ours.target_entropy == -ACT


def test_arguments_of_the_first_version_are_taken_as_torchrls_second_takes_them():
    theirs, ours = twins(ordinary, delay_value=False)
    assert_equal_losses(theirs, ours, make_batch())


def test_unknown_key():
    with pytest.raises(ValueError, match="not an accepted"):
        SACLoss(*ordinary()).set_keys(rewrad="reward")


def test_call_by_keyword():
    theirs, ours = twins(ordinary)
    batch = make_batch()
    named = {
        "_".join((key,) if isinstance(key, str) else key): value
        for key, value in batch.exclude(("next", "truncated")).items(True, True)
    }
    torch.manual_seed(1)
    expected = theirs(**named)
    torch.manual_seed(1)
    actual = ours(**named)
    assert len(actual) == 5
    torch.testing.assert_close(actual, expected)
    torch.manual_seed(1)
    ours.select_out_keys("loss_alpha", "loss_qvalue")
    alpha, qvalue = ours(**named)
    assert (alpha, qvalue) == (actual[2], actual[1])
    assert SACLoss(*ordinary()).out_keys == list(TERMS)


@pytest.mark.parametrize("with_spec", [True, False])
def test_composite_actions(with_spec):
    spec = composite_actor()[1]
    options = {"action_spec": spec} if with_spec else {"target_entropy": -2.0}
    theirs, ours = twins(lambda: (composite_actor()[0], torchrl_critic()), **options)
    batch = make_batch()
    batch["action"] = {"action1": batch["action"]}
    assert_equal_losses(theirs, ours, batch)


@pytest.mark.parametrize("kind", ["RANDOM", "DETERMINISTIC"])
def test_exploration_around_the_policy_changes_nothing(kind):
    theirs, ours = twins(ordinary)
    noise = AdditiveGaussianModule(spec=Bounded(-1.0, 1.0, (ACT,)), sigma_init=5.0)
    explore, batch = TensorDictSequential(ours.actor_network, noise), make_batch()
    expected = seeded(ours, batch)[0].to_dict()
    with set_exploration_type(ExplorationType[kind]):
        explore(batch.clone())
        assert_equal_losses(theirs, ours, batch)
        torch.testing.assert_close(seeded(ours, batch)[0].to_dict(), expected)


def test_no_spec_and_no_target_entropy():
    loss = SACLoss(torchrl_actor(with_spec=False), torchrl_critic())
    with pytest.raises(RuntimeError, match="action_spec"):
        loss.state_dict()


def test_networks_replaced_in_place_of_the_parameters():
    theirs, ours = twins(ordinary)
    other = SACLoss(*ordinary(), use_prioritized_weights=False)
    for name in ("actor_network_params", "qvalue_network_params", "target_qvalue_network_params"):
        setattr(other, name, getattr(ours, name))
    assert_equal_losses(theirs, other, make_batch())


# ---- our networks against TorchRL's loss --------------------------------------------------------


class LocScale(nn.Module):
    """TorchRL's parametrisation of what our actor's perceptron gives."""

    def __init__(self, net):
        super().__init__()
        self.net = net

    def forward(self, observation):
        loc, log_std = self.net(observation).chunk(2, -1)
        return loc, log_std.clamp(-20.0, 2.0).exp()


def relu_q():
    module = nn.Sequential(nn.Linear(OBS + ACT, 8), nn.ReLU(), nn.Linear(8, 1))
    q = Q()
    q.net = module
    return ValueOperator(q, in_keys=["observation", "action"])


def converted(num_critics, low, high, **options):
    """Our loss over our networks, and TorchRL's over the same weights."""
    ours = SACLoss(lean_actor(low, high), lean_critic(num_critics), **options)
    move_targets(ours)
    net = nn.Sequential(nn.Linear(OBS, 8), nn.ReLU(), nn.Linear(8, 2 * ACT))
    with torch.no_grad():
        for layer, mine in zip((net[0], net[2]), ours.actor_network.net.layers, strict=True):
            layer.weight.copy_(mine.weight)
            layer.bias.copy_(mine.bias)
    actor = ProbabilisticActor(
        TensorDictModule(LocScale(net), in_keys=["observation"], out_keys=["loc", "scale"]),
        in_keys=["loc", "scale"],
        distribution_class=TanhNormal,
        distribution_kwargs={"low": torch.tensor(low), "high": torch.tensor(high)},
        return_log_prob=True,
        spec=Composite(action=Bounded(torch.tensor(low), torch.tensor(high), (ACT,))),
    )
    theirs = TorchRLSACLoss(actor, relu_q(), num_qvalue_nets=num_critics, **options)
    for name in ("qvalue_network_params", "target_qvalue_network_params"):
        if name in theirs._modules:
            for mine, their in critic_pairs(getattr(ours, name), getattr(theirs, name)):
                their.data.copy_(mine)
    return theirs, ours


def critic_pairs(ours, theirs):
    """Values of our ensemble in the layout of TorchRL's stacked networks, beside those."""
    for i, layer in enumerate(("0", "2")):
        mine = ours["net", f"weight_{i}"].transpose(-1, -2), ours["net", f"bias_{i}"].squeeze(-2)
        for value, name in zip(mine, ("weight", "bias"), strict=True):
            yield value, theirs["module", "net", layer, name]


LEAN = {
    "one": (1, {}),
    "two": (2, {}),
    "four": (4, {}),
    "l2": (2, {"loss_function": "l2"}),
    "l1": (2, {"loss_function": "l1"}),
    "fixed": (2, {"fixed_alpha": True, "alpha_init": 0.3}),
    "bounds": (2, {"min_alpha": 0.1, "max_alpha": 0.5}),
    "no target": (2, {"delay_qvalue": False}),
    "sum": (2, {"reduction": "sum"}),
}


@pytest.mark.parametrize(("num_critics", "options"), LEAN.values(), ids=LEAN)
@pytest.mark.parametrize("bounds", [([-1.0, -1.0], [1.0, 1.0]), (LOW, HIGH)])
@pytest.mark.parametrize("shape", [(24,), (4, 6)])
def test_lean_networks(num_critics, options, bounds, shape):
    theirs, ours = converted(num_critics, *bounds, **options)
    batch = make_batch(*shape)
    batch["next", "done"] = batch["next", "terminated"].clone()
    expected, batch_a = seeded(theirs, batch)
    actual, batch_b = seeded(ours, batch)
    for name in TERMS:
        torch.testing.assert_close(actual[name], expected[name], atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(batch_b["td_error"], batch_a["td_error"], atol=1e-5, rtol=1e-5)
    wanted, found = gradients(theirs, expected), gradients(ours, actual)
    actor = [n for n in found if n.startswith("actor_network_params")]
    for name, other in zip(
        actor, (n for n in wanted if n.startswith("actor_network_params")), strict=True
    ):
        torch.testing.assert_close(found[name], wanted[other], atol=2e-5, rtol=1e-4)
    grads = (loss.qvalue_network_params.apply(lambda p: p.grad) for loss in (ours, theirs))
    for mine, their in critic_pairs(*grads):
        torch.testing.assert_close(mine, their, atol=1e-5, rtol=1e-4)
    if not options.get("fixed_alpha"):
        torch.testing.assert_close(found["log_alpha"], wanted["log_alpha"])


@pytest.mark.parametrize("kind", ["TD0", "TD1", "TDLambda"])
def test_lean_networks_with_value_estimators(kind):
    theirs, ours = converted(2, LOW, HIGH)
    for loss in (theirs, ours):
        loss.make_value_estimator(ValueEstimators[kind], gamma=0.9)
    batch = make_batch(4, 5)
    batch["collector", "mask"] = torch.rand(4, 5, 1) < 0.7
    batch["priority_weight"] = torch.rand(4, 5)
    expected, actual = seeded(theirs, batch)[0], seeded(ours, batch)[0]
    torch.testing.assert_close(
        actual.select(*TERMS).to_dict(), expected.select(*TERMS).to_dict(), atol=1e-5, rtol=1e-5
    )


def test_lean_networks_skip_done_states():
    theirs, ours = converted(3, LOW, HIGH, skip_done_states=True)
    batch = make_batch()
    batch["next", "done"] = batch["next", "terminated"].clone()
    assert batch["next", "done"].any()
    expected, actual = seeded(theirs, batch)[0], seeded(ours, batch)[0]
    torch.testing.assert_close(actual.to_dict(), expected.to_dict(), atol=1e-5, rtol=1e-5)
    # Over sequences TorchRL's own does not run; ours gives what it gives for the same rows.
    again = seeded(ours, batch.reshape(4, 6))[0]
    torch.testing.assert_close(again.to_dict(), actual.to_dict(), atol=1e-5, rtol=1e-5)


def test_target_values():
    theirs, ours = converted(3, LOW, HIGH)
    batch = make_batch()
    torch.manual_seed(3)
    expected = theirs._compute_target_v2(batch)
    torch.manual_seed(3)
    actual = ours.qvalue_loss(batch)[1]["target"]
    np.testing.assert_allclose(actual.numpy(), expected.numpy(), atol=1e-5)
