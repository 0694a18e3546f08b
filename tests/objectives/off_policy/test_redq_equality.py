"""Our REDQLoss gives TorchRL's numbers: terms, priorities, targets and gradients.

TorchRL draws the noise at s and at s' together and we one after the other, so the policies here
take theirs from the state. What is drawn is the subset, and both draw the same.
"""

from __future__ import annotations

import pytest
import torch
from sac_cases import (
    ACT,
    CELLS,
    OBS,
    TERMS,
    assert_equal_losses,
    gradients,
    lean_loss,
    make_batch,
    move_targets,
    seeded,
    shared_encoder,
    torchrl_actor,
    torchrl_critic,
)
from sameness import as_written_by
from tensordict import unravel_key
from tensordict.nn import TensorDictModule
from torch import nn
from torchrl.data import Bounded, Composite
from torchrl.data.postprocs import MultiStep
from torchrl.modules import ProbabilisticActor, TanhNormal
from torchrl.objectives import REDQLoss as TorchRLREDQLoss
from torchrl.objectives import SoftUpdate, ValueEstimators

from torchrl_elegant.modules import EnsembleCritic, SquashedGaussianActor
from torchrl_elegant.objectives import LeanSoftUpdate, REDQLoss

pytestmark = pytest.mark.filterwarnings("ignore:No target network updater")

EXTRAS = ("state_action_value_actor", "action_log_prob_actor", "next.state_value", "target_value")
ALL = (*TERMS, *EXTRAS)


class Steady(TanhNormal):
    """Noise that is a function of the mean."""

    def rsample_and_log_prob(self, sample_shape=()):
        loc, scale = self.base_dist.mean, self.base_dist.stddev
        x = loc + scale * torch.sin(37.0 * loc.detach())
        action = self.transforms[0](x)
        slope = self.transforms[0].log_abs_det_jacobian(x, action).sum(-1)
        return action, self.base_dist.log_prob(x) - slope


def steady(actor):
    actor[-1].distribution_class = Steady
    return actor


def ordinary():
    return steady(torchrl_actor()), torchrl_critic()


def twins(make_networks=ordinary, members=None, **options):
    """TorchRL's loss and ours over networks of the same architecture and values."""
    theirs = TorchRLREDQLoss(*make_networks(), sub_sample_len=members or 2, **options)
    if members is not None:
        theirs.sub_sample_len = members  # past the cut to all but one
    ours = REDQLoss(*make_networks(), sub_sample_len=members, **options)
    move_targets(theirs)
    _ = theirs.target_entropy  # TorchRL's has it in its checkpoints once it was asked for
    ours.load_state_dict(theirs.state_dict())
    return theirs, ours


OPTIONS = {
    "defaults": {},
    "one critic": {"num_qvalue_nets": 1},
    "two critics": {"num_qvalue_nets": 2},
    "all members": {"num_qvalue_nets": 4, "members": 4},
    "three of five": {"num_qvalue_nets": 5, "members": 3},
    "l2": {"loss_function": "l2"},
    "l1": {"loss_function": "l1"},
    "alpha": {"alpha_init": 0.3},
    "fixed": {"fixed_alpha": True, "alpha_init": 0.2},
    "bounds": {"alpha_init": 5.0, "min_alpha": 0.2, "max_alpha": 0.5},
    "target entropy": {"target_entropy": -5.0},
    "spec": {"action_spec": Bounded(-1.0, 1.0, (7,))},
    "no target": {"delay_qvalue": False},
    "separate": {"separate_losses": True},
    "sum": {"reduction": "sum"},
    "no vmap": {"deactivate_vmap": True},
}


@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
def test_options(options):
    theirs, ours = twins(**options)
    assert theirs.state_dict().keys() == ours.state_dict().keys()
    for _ in range(3):
        assert_equal_losses(theirs, ours, make_batch(), terms=ALL)
    theirs.load_state_dict(ours.state_dict())


def test_the_subset_matters():
    _, ours = twins(num_qvalue_nets=4, members=2)
    batch = make_batch()
    targets = [seeded(ours, batch, seed)[0]["target_value"] for seed in range(8)]
    assert any(not torch.equal(targets[0], target) for target in targets)


@pytest.mark.parametrize("scalars", ["exclude", "non_tensor"])
def test_no_reduction(scalars):
    theirs, ours = twins(reduction="none", scalar_output_mode=scalars)
    batch = make_batch(4, 6)
    terms = tuple(name for name in ALL if name not in ("alpha", "entropy"))
    assert_equal_losses(theirs, ours, batch, terms=terms)
    expected, actual = seeded(theirs, batch)[0], seeded(ours, batch)[0]
    assert set(expected.keys()) == set(actual.keys())
    assert {name: expected[name].shape for name in terms} == {
        name: actual[name].shape for name in terms
    }
    assert ("alpha" in actual) == (scalars == "non_tensor")


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize("key", [("collector", "mask"), "shifted_valid"])
def test_masks(key, reduction):
    theirs, ours = twins(reduction=reduction, scalar_output_mode="exclude")
    batch = make_batch(4, 5)
    batch[key] = torch.rand(4, 5, 1) < 0.6
    assert_equal_losses(theirs, ours, batch, terms=TERMS[:3])


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
def test_priority_weights(reduction):
    """Beyond TorchRL, which looks at none."""
    batch = make_batch()
    single = twins(reduction="none", scalar_output_mode="exclude")[1]
    loss = REDQLoss(*ordinary(), reduction=reduction, scalar_output_mode="exclude")
    loss.load_state_dict(single.state_dict())
    each, weight = seeded(single, batch)[0]["loss_qvalue"], torch.rand(24)
    batch["priority_weight"] = weight
    expected = {
        "mean": (each * weight).sum() / weight.sum() / 10,
        "sum": (each * weight).sum(),
        "none": each * weight,
    }
    torch.testing.assert_close(seeded(loss, batch)[0]["loss_qvalue"], expected[reduction])


@pytest.mark.parametrize("kind", ["TD0", "TD1", "TDLambda"])
def test_value_estimators(kind):
    theirs, ours = twins()
    for loss in (theirs, ours):
        loss.make_value_estimator(ValueEstimators[kind], gamma=0.9)
    assert_equal_losses(theirs, ours, make_batch(4, 5), terms=ALL)


@pytest.mark.parametrize("kind", ["GAE", "VTrace"])
def test_unsupported_value_estimators(kind):
    with pytest.raises(NotImplementedError):
        REDQLoss(*ordinary()).make_value_estimator(ValueEstimators[kind])


@pytest.mark.parametrize("steps", [1, 3])
def test_n_step_returns(steps):
    """Beyond TorchRL, which discounts by one step however many there were."""
    theirs, ours = twins()
    for loss in (theirs, ours):
        loss.make_value_estimator(gamma=0.9)
    batch = make_batch(4, 6)
    batch["collector", "mask"] = torch.ones(4, 6, dtype=torch.bool)
    batch = MultiStep(gamma=0.9, n_steps=steps)(batch).reshape(-1)
    if steps == 1:
        assert_equal_losses(theirs, ours, batch, terms=ALL)
    out, after = seeded(ours, batch)[0], batch["next"]
    goes_on = (~after["terminated"]).float().squeeze(-1)
    discount = 0.9 ** batch["steps_to_next_obs"].squeeze(-1)
    expected = after["reward"].squeeze(-1) + discount * goes_on * out["next.state_value"]
    torch.testing.assert_close(out["target_value"], expected)


def test_shared_encoder():
    def networks():
        actor, critic = shared_encoder()
        return steady(actor), critic

    theirs, ours = twins(networks, action_spec=Bounded(-1.0, 1.0, (ACT,)), num_qvalue_nets=3)
    assert_equal_losses(theirs, ours, make_batch(), terms=ALL)


KEYS = {
    "reward": ("game", "gain"),
    "done": ("flags", "over"),
    "terminated": ("flags", "dead"),
    "priority": ("buffer", "priority"),
    "value": "v",
    "state_action_value": ("q", "value"),
    "sample_log_prob": ("agent", "log_prob"),
}


@pytest.mark.parametrize("keys_first", [True, False])
def test_nested_and_renamed_keys(keys_first):
    state, move = ("agent", "state"), ("agent", "move")
    theirs, ours = twins(
        lambda: (
            steady(torchrl_actor(state, move)),
            torchrl_critic(state, move, KEYS["state_action_value"]),
        ),
        target_entropy=-2.0,
    )
    for loss in (theirs, ours):
        if keys_first:
            loss.set_keys(action=move, **KEYS)
        loss.make_value_estimator(gamma=0.9)
        if not keys_first:
            loss.set_keys(action=move, **KEYS)
    batch = make_batch()
    batch.rename_key_("observation", ("agent", "state"))
    batch.rename_key_("action", ("agent", "move"))
    batch["next"].rename_key_("observation", ("agent", "state"))
    for name in ("reward", "done", "terminated"):
        batch["next"].rename_key_(name, KEYS[name])
    assert_equal_losses(theirs, ours, batch, terms=ALL)
    assert set(ours.in_keys) == {unravel_key(key) for key in theirs.in_keys}


def test_default_keys():
    theirs, ours = twins()
    for name, key in vars(theirs.tensor_keys).items():
        assert getattr(ours.tensor_keys, name) == key
    with pytest.raises(ValueError, match="not an accepted"):
        ours.set_keys(rewrad="reward")


def test_call_by_keyword():
    theirs, ours = twins()
    batch = make_batch()
    named = {
        "_".join((key,) if isinstance(key, str) else key): value
        for key, value in batch.exclude(("next", "truncated")).items(True, True)
    }
    torch.manual_seed(1)
    expected = theirs(**named)
    torch.manual_seed(1)
    actual = ours(**named)
    assert len(actual) == len(ALL)
    torch.testing.assert_close(actual, expected)
    assert REDQLoss(*ordinary()).out_keys == list(ALL)
    ours.select_out_keys("loss_alpha", "loss_qvalue")
    torch.manual_seed(1)
    torch.testing.assert_close(ours(**named), (expected[2], expected[1]))


def test_target_updaters():
    theirs, ours = twins()
    updaters = SoftUpdate(theirs, tau=0.1), LeanSoftUpdate(ours, tau=0.1)
    # Only now: each begins with targets that are where the networks are.
    move_targets(theirs)
    ours.load_state_dict(theirs.state_dict())
    for updater in updaters:
        updater.step()
    assert_equal_losses(theirs, ours, make_batch(), terms=ALL)


# ---- our networks against TorchRL's loss --------------------------------------------------------


class SteadyActor(SquashedGaussianActor):
    """Our actor with the noise of ``Steady``."""

    def sample(self, observation):
        loc, log_std = self.parameters_of(observation)
        return Steady(loc, log_std.exp()).rsample_and_log_prob()


class LocScale(nn.Module):
    def __init__(self, net):
        super().__init__()
        self.net = net

    def forward(self, observation):
        loc, log_std = self.net(observation).chunk(2, -1)
        return loc, log_std.clamp(-20.0, 2.0).exp()


def relu_critic():
    critic = torchrl_critic()
    critic.module.net = nn.Sequential(nn.Linear(OBS + ACT, CELLS), nn.ReLU(), nn.Linear(CELLS, 1))
    return critic


def converted(num_critics, **options):
    """Our loss over our networks, and TorchRL's over the same weights."""
    shape = {"observation": (OBS,)}
    actor = SteadyActor(observation=shape, low=[-1.0] * ACT, high=[1.0] * ACT, num_cells=(CELLS,))
    with torch.no_grad():
        actor.net.layers[-1].weight.normal_()
    critic = EnsembleCritic(
        observation=shape, action_shape=(ACT,), num_critics=num_critics, num_cells=(CELLS,)
    )
    ours = REDQLoss(actor, critic, **options)
    move_targets(ours)
    net = nn.Sequential(nn.Linear(OBS, CELLS), nn.ReLU(), nn.Linear(CELLS, 2 * ACT))
    with torch.no_grad():
        for layer, mine in zip((net[0], net[2]), actor.net.layers, strict=True):
            layer.weight.copy_(mine.weight)
            layer.bias.copy_(mine.bias)
    other = ProbabilisticActor(
        TensorDictModule(LocScale(net), in_keys=["observation"], out_keys=["loc", "scale"]),
        in_keys=["loc", "scale"],
        distribution_class=Steady,
        return_log_prob=True,
        spec=Composite(action=Bounded(-1.0, 1.0, (ACT,))),
    )
    theirs = TorchRLREDQLoss(other, relu_critic(), num_qvalue_nets=num_critics, **options)
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
    "ten": (10, {}),
    "four": (4, {"sub_sample_len": 3, "loss_function": "l2"}),
    "one": (1, {}),
    "no target": (3, {"delay_qvalue": False}),
    "sum": (5, {"reduction": "sum"}),
}


@pytest.mark.parametrize(("num_critics", "options"), LEAN.values(), ids=LEAN)
@pytest.mark.parametrize("shape", [(24,), (4, 6)])
def test_lean_networks(num_critics, options, shape):
    theirs, ours = converted(num_critics, **options)
    batch = make_batch(*shape)
    expected, batch_a = seeded(theirs, batch)
    actual, batch_b = seeded(ours, batch)
    for name in ALL:
        torch.testing.assert_close(actual[name], expected[name], atol=1e-5, rtol=1e-5, msg=name)
    error = as_written_by(theirs, batch_b["td_error"])
    torch.testing.assert_close(error, batch_a["td_error"], atol=1e-5, rtol=1e-5)
    wanted, found = gradients(theirs, expected), gradients(ours, actual)
    torch.testing.assert_close(found["log_alpha"], wanted["log_alpha"])
    actor = [name for name in found if name.startswith("actor_network_params")]
    others = [name for name in wanted if name.startswith("actor_network_params")]
    for name, other in zip(sorted(actor), sorted(others), strict=True):
        torch.testing.assert_close(found[name], wanted[other], atol=1e-5, rtol=1e-5)
    mine = ours.qvalue_network_params.apply(lambda x: x.grad)
    their = theirs.qvalue_network_params.apply(lambda x: x.grad)
    for value, other in critic_pairs(mine, their):
        torch.testing.assert_close(value, other, atol=1e-5, rtol=1e-5)


def test_ensemble_brings_its_number():
    assert lean_loss(6, loss=REDQLoss).num_qvalue_nets == 6
