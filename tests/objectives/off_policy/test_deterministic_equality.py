"""Our DDPGLoss and TD3Loss give TorchRL's numbers: terms, priorities, targets and gradients."""

from __future__ import annotations

import pytest
import torch
from deterministic_cases import (
    THEIRS,
    assert_equal_losses,
    lean_actor,
    lean_critic,
    moved,
    shared_encoder,
    torchrl_actor,
    torchrl_critic,
    twins,
)
from sac_cases import ACT, CELLS, HIGH, LOW, OBS, Q, gradients, make_batch, seeded
from sameness import as_written_by
from tensordict import unravel_key
from tensordict.nn import TensorDictSequential
from torch import nn
from torchrl.data import Bounded, Composite
from torchrl.data.postprocs import MultiStep
from torchrl.envs.utils import ExplorationType, set_exploration_type
from torchrl.modules import Actor, AdditiveGaussianModule, ValueOperator
from torchrl.objectives import ValueEstimators

from torchrl_elegant.objectives import DDPGLoss, TD3Loss

pytestmark = pytest.mark.filterwarnings("ignore:No target network updater")

BOTH = pytest.mark.parametrize("kind", [DDPGLoss, TD3Loss])
OPTIONS = {
    "defaults": {},
    "l2": {"loss_function": "l2"},
    "l1": {"loss_function": "l1"},
    "smooth_l1": {"loss_function": "smooth_l1"},
    "actor followed": {"delay_actor": True},
    "actor not followed": {"delay_actor": False},
    "separate": {"separate_losses": True},
    "sum": {"reduction": "sum"},
    "none": {"reduction": "none"},
    "no weights": {"use_prioritized_weights": False},
}


@BOTH
@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
def test_options(kind, options):
    theirs, ours = twins(kind, **options)
    assert theirs.state_dict().keys() == ours.state_dict().keys()
    assert_equal_losses(theirs, ours, make_batch())


def test_critic_of_ddpg_not_followed():
    theirs, ours = twins(DDPGLoss, delay_value=False)
    assert_equal_losses(theirs, ours, make_batch())


SPEC = Bounded(-0.5, 0.25, (ACT,))
TD3_OPTIONS = {
    "one critic": {"num_qvalue_nets": 1},
    "four critics": {"num_qvalue_nets": 4},
    "critics not followed": {"delay_qvalue": False},
    "no vmap": {"deactivate_vmap": True},
    "no noise": {"policy_noise": 0.0},
    "much noise": {"policy_noise": 3.0, "noise_clip": 2.0},
    "narrow clip": {"policy_noise": 3.0, "noise_clip": 0.01},
    "narrow bounds": {"bounds": (-0.1, 0.2)},
    "bounds as tensors": {"bounds": (torch.tensor([-1.0, -0.2]), torch.tensor([0.1, 1.0]))},
    "spec": {"action_spec": SPEC},
    "composite spec": {"action_spec": Composite(action=SPEC)},
    "batched spec": {"action_spec": Composite(action=SPEC.expand(4, ACT), shape=(4,))},
}


@pytest.mark.parametrize("options", TD3_OPTIONS.values(), ids=TD3_OPTIONS)
def test_options_of_td3(options):
    theirs, ours = twins(TD3Loss, **options)
    assert theirs.state_dict().keys() == ours.state_dict().keys()
    for name in ("min_action", "max_action"):
        torch.testing.assert_close(getattr(ours, name), getattr(theirs, name))
    assert_equal_losses(theirs, ours, make_batch())


@BOTH
def test_state_goes_back_to_torchrl(kind):
    theirs, ours = twins(kind)
    moved(ours)
    theirs.load_state_dict(ours.state_dict())
    assert_equal_losses(theirs, ours, make_batch())


def test_list_of_networks():
    theirs, ours = twins(
        TD3Loss,
        lambda: (torchrl_actor(), [torchrl_critic(), torchrl_critic(), torchrl_critic()]),
        num_qvalue_nets=3,
    )
    assert_equal_losses(theirs, ours, make_batch())


@BOTH
@pytest.mark.parametrize("separate", [True, False])
def test_shared_encoder(kind, separate):
    # TorchRL's DDPG puts both encoders into the module they share and so overwrites the delayed.
    alone = {TD3Loss: {"num_qvalue_nets": 1}, DDPGLoss: {"delay_value": False}}[kind]
    theirs, ours = twins(kind, shared_encoder, separate_losses=separate, **alone)
    assert_equal_losses(theirs, ours, make_batch())
    encoder = ours.qvalue_network_params["module", "0", "module", "weight"]
    assert encoder.requires_grad is not separate


@pytest.mark.parametrize("separate", [True, False])
def test_a_critic_that_reads_what_the_actor_writes_beside_the_action(separate):
    def networks():
        actor, critic = shared_encoder()
        return actor, critic[1]

    theirs, ours = twins(DDPGLoss, networks, separate_losses=separate)
    batch = make_batch()
    batch["hidden"] = torch.randn(24, CELLS)
    assert_equal_losses(theirs, ours, batch)


@BOTH
@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
def test_priority_weights(kind, reduction):
    theirs, ours = twins(kind, reduction=reduction)
    batch = make_batch()
    batch["priority_weight"] = torch.rand(24)
    assert_equal_losses(theirs, ours, batch)
    weighted = seeded(ours, batch)[0][ours.critic_term]
    plain = seeded(ours, batch.exclude("priority_weight"))[0][ours.critic_term]
    assert not torch.allclose(weighted, plain)


@BOTH
@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize("key", [("collector", "mask"), "shifted_valid"])
def test_masks(kind, reduction, key):
    theirs, ours = twins(kind, reduction=reduction)
    batch = make_batch(4, 5)
    batch[key] = torch.rand(4, 5, 1) < 0.6
    assert_equal_losses(theirs, ours, batch)


@BOTH
@pytest.mark.parametrize("estimator", ["TD0", "TD1", "TDLambda"])
def test_value_estimators(kind, estimator):
    theirs, ours = twins(kind)
    for loss in (theirs, ours):
        loss.make_value_estimator(ValueEstimators[estimator], gamma=0.9)
    assert_equal_losses(theirs, ours, make_batch(4, 5))


@BOTH
@pytest.mark.parametrize("estimator", ["GAE", "VTrace"])
def test_unsupported_value_estimators(kind, estimator):
    with pytest.raises(NotImplementedError):
        twins(kind)[1].make_value_estimator(ValueEstimators[estimator])


@BOTH
@pytest.mark.parametrize("steps", [1, 3])
def test_n_step_returns(kind, steps):
    theirs, ours = twins(kind)
    for loss in (theirs, ours):
        loss.make_value_estimator(gamma=0.9)
    batch = make_batch(4, 6)
    batch["collector", "mask"] = torch.ones(4, 6, dtype=torch.bool)
    batch = MultiStep(gamma=0.9, n_steps=steps)(batch).reshape(-1)
    assert_equal_losses(theirs, ours, batch)


KEYS = {
    "reward": ("game", "gain"),
    "done": ("flags", "over"),
    "terminated": ("flags", "dead"),
    "priority": ("buffer", "priority"),
    "priority_weight": "weight",
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


@BOTH
@pytest.mark.parametrize("estimator", ["TD0", "TDLambda"])
@pytest.mark.parametrize("keys_first", [True, False])
def test_nested_and_renamed_keys(kind, estimator, keys_first):
    state, move = ("agent", "state"), ("agent", "move")
    theirs, ours = twins(
        kind,
        lambda: (
            torchrl_actor(state, move),
            torchrl_critic(state, move, KEYS["state_action_value"]),
        ),
    )
    keys = {**KEYS, "action": move} if kind is TD3Loss else KEYS
    for loss in (theirs, ours):
        # TorchRL's DDPG can be told its keys only before.
        if keys_first or type(loss) is THEIRS[DDPGLoss]:
            loss.set_keys(**keys)
        loss.make_value_estimator(ValueEstimators[estimator], gamma=0.9)
        if not keys_first:
            loss.set_keys(**keys)
    assert ours.value_estimator.tensor_keys.value == KEYS["state_action_value"]
    assert_equal_losses(theirs, ours, renamed_batch())
    assert set(ours.in_keys) == {unravel_key(key) for key in theirs.in_keys}
    if kind is DDPGLoss:  # the order of TorchRL's others changes from run to run
        assert ours.in_keys == [unravel_key(key) for key in theirs.in_keys]


@BOTH
def test_unknown_key(kind):
    with pytest.raises(ValueError, match="not an accepted"):
        twins(kind)[1].set_keys(log_prob="action")


def test_what_only_the_critic_reads_is_read_of_both_steps():
    def networks():
        return torchrl_actor(), ValueOperator(Q(1 + ACT), in_keys=["load", "action"])

    theirs, ours = twins(DDPGLoss, networks)
    batch = make_batch()
    batch["load"], batch["next", "load"] = torch.randn(24, 1), torch.randn(24, 1)
    assert_equal_losses(theirs, ours, batch)
    assert {"load", ("next", "load")} <= set(ours.in_keys)


@BOTH
def test_call_by_keyword(kind):
    theirs, ours = twins(kind)
    batch = make_batch()
    named = {
        "_".join((key,) if isinstance(key, str) else key): value
        for key, value in batch.exclude(("next", "truncated")).items(True, True)
    }
    torch.manual_seed(1)
    expected = dict(seeded(theirs, batch)[0].items())
    torch.manual_seed(1)
    actual = ours(**named)
    assert ours.out_keys == list(theirs.out_keys)
    for name, value in zip(ours.out_keys, actual, strict=True):
        torch.testing.assert_close(value.detach(), expected[name].detach())
    torch.manual_seed(1)
    ours.select_out_keys("loss_actor")
    assert ours(**named) == expected["loss_actor"]


@BOTH
@pytest.mark.parametrize("exploration", ["RANDOM", "DETERMINISTIC"])
def test_exploration_around_the_policy_changes_nothing(kind, exploration):
    theirs, ours = twins(kind)
    noise = AdditiveGaussianModule(spec=Bounded(-1.0, 1.0, (ACT,)), sigma_init=5.0)
    explore, batch = TensorDictSequential(ours.actor_network, noise), make_batch()
    with set_exploration_type(ExplorationType[exploration]):
        explore(batch.clone())
        assert_equal_losses(theirs, ours, batch)


PARTS = [
    (DDPGLoss, "loss_value"),
    (DDPGLoss, "loss_actor"),
    (TD3Loss, "value_loss"),
    (TD3Loss, "actor_loss"),
]


@pytest.mark.parametrize(("kind", "part"), PARTS)
def test_parts_by_the_names_torchrl_gives_them(kind, part):
    theirs, ours = twins(kind)
    batch_a = make_batch()
    batch_b = batch_a.clone()
    torch.manual_seed(2)
    wanted, about = getattr(theirs, part)(batch_a)
    torch.manual_seed(2)
    found, ours_about = getattr(ours, part)(batch_b)
    torch.testing.assert_close(found, wanted)
    assert ours_about.keys() == about.keys()
    for name, value in about.items():
        mine = as_written_by(theirs, ours_about[name]) if name == "td_error" else ours_about[name]
        torch.testing.assert_close(mine, value.detach(), msg=name)
    assert set(batch_b.keys()) == set(batch_a.keys())


# ---- our networks against TorchRL's loss --------------------------------------------------------


class Scaled(nn.Module):
    """TorchRL's network for what our actor computes."""

    def __init__(self, net, low, high):
        super().__init__()
        self.net, self.low, self.high = net, torch.tensor(low), torch.tensor(high)

    def forward(self, observation):
        return self.low + (self.high - self.low) * (torch.tanh(self.net(observation)) + 1) / 2


def relu_q():
    q = Q()
    q.net = nn.Sequential(nn.Linear(OBS + ACT, CELLS), nn.ReLU(), nn.Linear(CELLS, 1))
    return ValueOperator(q, in_keys=["observation", "action"])


def converted(kind, num_critics, low, high, **options):
    """Our loss over our networks, and TorchRL's over the same weights."""
    ours = moved(kind(lean_actor(low, high), lean_critic(num_critics), **options))
    net = nn.Sequential(nn.Linear(OBS, CELLS), nn.ReLU(), nn.Linear(CELLS, ACT))
    actor = Actor(Scaled(net, low, high), in_keys=["observation"])
    told = {"bounds": (torch.tensor(low), torch.tensor(high)), "num_qvalue_nets": num_critics}
    theirs = THEIRS[kind](actor, relu_q(), **(told if kind is TD3Loss else {}), **options)
    for prefix in ("", "target_"):
        if f"{prefix}actor_network_params" in theirs._modules:
            pairs = actor_pairs(
                *(getattr(x, f"{prefix}actor_network_params") for x in (ours, theirs))
            )
            for mine, their in pairs:
                their.data.copy_(mine)
        name = f"{prefix}{'q' if kind is TD3Loss else ''}value_network_params"
        if name in theirs._modules:
            for mine, their in critic_pairs(getattr(ours, name), getattr(theirs, name)):
                their.data.copy_(mine)
    return theirs, ours


def actor_pairs(ours, theirs):
    for i, layer in enumerate(("0", "2")):
        for name in ("weight", "bias"):
            yield ours["net", "layers", str(i), name], theirs["module", "net", layer, name]


def critic_pairs(ours, theirs):
    """Values of our ensemble in the layout of TorchRL's networks, beside those."""
    for i, layer in enumerate(("0", "2")):
        mine = ours["net", f"weight_{i}"].transpose(-1, -2), ours["net", f"bias_{i}"].squeeze(-2)
        for value, name in zip(mine, ("weight", "bias"), strict=True):
            their = theirs["module", "net", layer, name]
            yield value.reshape(their.shape), their


LEAN = {
    "ddpg": (DDPGLoss, 1, {}),
    "ddpg, actor followed": (DDPGLoss, 1, {"delay_actor": True}),
    "ddpg, nothing followed": (DDPGLoss, 1, {"delay_value": False}),
    "ddpg, sum": (DDPGLoss, 1, {"reduction": "sum"}),
    "td3": (TD3Loss, 2, {}),
    "td3, one": (TD3Loss, 1, {}),
    "td3, five": (TD3Loss, 5, {}),
    "td3, l1": (TD3Loss, 2, {"loss_function": "l1"}),
    "td3, actor not followed": (TD3Loss, 2, {"delay_actor": False}),
    "td3, critics not followed": (TD3Loss, 2, {"delay_qvalue": False}),
    "td3, none": (TD3Loss, 3, {"reduction": "none"}),
    "td3, much noise": (TD3Loss, 3, {"policy_noise": 2.0, "noise_clip": 1.0}),
}


@pytest.mark.parametrize(("kind", "num_critics", "options"), LEAN.values(), ids=LEAN)
@pytest.mark.parametrize("bounds", [([-1.0, -1.0], [1.0, 1.0]), (LOW, HIGH)])
@pytest.mark.parametrize("shape", [(24,), (4, 6)])
def test_lean_networks(kind, num_critics, options, bounds, shape):
    theirs, ours = converted(kind, num_critics, *bounds, **options)
    batch = make_batch(*shape)
    expected, batch_a = seeded(theirs, batch)
    actual, batch_b = seeded(ours, batch)
    assert set(actual.keys()) == set(expected.keys())
    for name in list(expected.keys()):
        found = as_written_by(theirs, actual[name]) if name == "td_error" else actual[name]
        torch.testing.assert_close(found.detach(), expected[name].detach(), atol=1e-5, rtol=1e-5)
    error = as_written_by(theirs, batch_b["td_error"])
    torch.testing.assert_close(error, batch_a["td_error"], atol=1e-5, rtol=1e-5)
    for loss, out in ((theirs, expected), (ours, actual)):
        gradients(loss, out)
    grads = [loss.actor_network_params.apply(lambda p: p.grad) for loss in (ours, theirs)]
    for mine, their in actor_pairs(*grads):
        torch.testing.assert_close(mine, their, atol=2e-5, rtol=1e-4)
    name = "qvalue_network_params" if kind is TD3Loss else "value_network_params"
    grads = [getattr(loss, name).apply(lambda p: p.grad) for loss in (ours, theirs)]
    for mine, their in critic_pairs(*grads):
        torch.testing.assert_close(mine, their, atol=2e-5, rtol=1e-4)


@pytest.mark.parametrize(("kind", "num_critics"), [(DDPGLoss, 1), (TD3Loss, 2)])
@pytest.mark.parametrize("estimator", ["TD0", "TD1", "TDLambda"])
def test_lean_networks_with_value_estimators(kind, num_critics, estimator):
    theirs, ours = converted(kind, num_critics, LOW, HIGH)
    for loss in (theirs, ours):
        loss.make_value_estimator(ValueEstimators[estimator], gamma=0.9)
    batch = make_batch(4, 5)
    batch["collector", "mask"] = torch.rand(4, 5, 1) < 0.7
    batch["priority_weight"] = torch.rand(4, 5)
    expected, actual = seeded(theirs, batch)[0].detach(), seeded(ours, batch)[0].detach()
    if kind is DDPGLoss:
        actual["td_error"] = as_written_by(theirs, actual["td_error"])
    torch.testing.assert_close(actual.to_dict(), expected.to_dict(), atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("kind", [DDPGLoss, TD3Loss])
def test_our_networks_in_torchrls_loss(kind):
    """A deterministic actor does not explore by itself, not even in a loss."""
    networks = lean_actor([-1.0, -1.0], [1.0, 1.0]), lean_critic(1)
    told = {"bounds": (-1.0, 1.0), "num_qvalue_nets": 1} if kind is TD3Loss else {}
    loss = THEIRS[kind](*networks, **told)
    batch = make_batch()
    with set_exploration_type(ExplorationType.RANDOM):
        first, second = (seeded(loss, batch, seed)[0]["loss_actor"] for seed in (1, 2))
    assert first == second
