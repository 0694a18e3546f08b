"""TorchRL's usual networks run lean: recognized or not, equal to TorchRL's losses either way."""

from __future__ import annotations

import io
from copy import deepcopy
from functools import partial

import deterministic_cases
import pytest
import sac_cases
import torch
import value_cases
from sac_cases import ACT, CELLS, OBS, make_batch
from tensordict import TensorDict
from tensordict.nn import TensorDictModule, TensorDictSequential
from torch import nn
from torchrl import objectives as theirs
from torchrl.data import OneHot
from torchrl.modules import MLP, OneHotCategorical, ProbabilisticActor, QValueActor, ValueOperator
from torchrl.objectives import SoftUpdate
from torchrl_nets import (
    UNIT,
    critic,
    deterministic_actor,
    gaussian_actor,
    mlp,
    plain_actor,
)

from torchrl_elegant import objectives as ours
from torchrl_elegant.objectives.off_policy import foreign_networks
from torchrl_elegant.objectives.off_policy.torchrl_networks import (
    LeanActor,
    LeanCritic,
    LeanLogits,
    LeanQNetwork,
    LeanSampler,
)

pytestmark = pytest.mark.filterwarnings("ignore:No target network updater")

ACTORS = {
    "bounds": gaussian_actor,
    "unit": partial(gaussian_actor, UNIT),
    "numbers": partial(gaussian_actor, low=-1.0, high=2.5),
    "state-independent": partial(gaussian_actor, state_independent=True),
    "upscale": partial(gaussian_actor, upscale=3.0),
}


def twins(name, make, **options):
    """TorchRL's loss and ours over networks of the same values, targets apart from both."""
    torch.manual_seed(0)
    first = getattr(theirs, name)(*make(), **options)
    second = getattr(ours, name)(*make(), **options)
    for key, module in first._modules.items():
        if key.startswith("target_"):
            for path, value in module.items(True, True):
                if not path[-1].endswith(("_low", "_high")):
                    value.data.add_(0.3 * torch.randn_like(value))
    second.load_state_dict(first.state_dict())
    return first, second


def sac_nets(actor=gaussian_actor):
    return actor(), critic()


@pytest.mark.parametrize("shape", [(24,), (4, 6), ()])
@pytest.mark.parametrize("actor", ACTORS)
def test_sac_equals_torchrls_on_the_same_noise(actor, shape):
    first, second = twins("SACLoss", partial(sac_nets, ACTORS[actor]))
    assert type(second._actor) is LeanSampler
    assert type(second._critic) is LeanCritic
    sac_cases.assert_equal_losses(first, second, make_batch(*(shape or (1,))))


@pytest.mark.parametrize("activation", [nn.Tanh, nn.ELU, nn.GELU, nn.SiLU, nn.LeakyReLU])
def test_every_activation_equals_torchrls(activation):
    def make():
        body = mlp(OBS, 2 * ACT, activation_class=activation)
        return gaussian_actor(body=body), critic(mlp(OBS + ACT, 1, activation_class=activation))

    first, second = twins("SACLoss", make, num_qvalue_nets=4)
    assert type(second._critic) is LeanCritic
    sac_cases.assert_equal_losses(first, second, make_batch())


@pytest.mark.parametrize("name", ["ModSACLoss", "REDQLoss"])
def test_losses_with_members_of_their_own_equal_the_plain_way(name):
    torch.manual_seed(0)
    loss = getattr(ours, name)(*sac_nets(), num_qvalue_nets=5)
    plain = deepcopy(loss)
    for network in (plain.actor_network, plain.qvalue_network):
        network.register_forward_pre_hook(lambda *_: None)
    plain = deepcopy(plain)
    assert not plain._critic._is_lean
    assert loss._critic._is_lean
    batch = make_batch()
    expected, found = sac_cases.seeded(plain, batch)[0], sac_cases.seeded(loss, batch)[0]
    torch.testing.assert_close(found.to_dict(), expected.to_dict(), atol=1e-5, rtol=1e-5)
    wanted, grads = sac_cases.gradients(plain, expected), sac_cases.gradients(loss, found)
    torch.testing.assert_close(grads, wanted, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("make_actor", [deterministic_actor, plain_actor])
@pytest.mark.parametrize("name", ["DDPGLoss", "TD3Loss"])
def test_deterministic_losses_equal_torchrls(name, make_actor):
    options = {"bounds": (-1.0, 1.0)} if name == "TD3Loss" else {"delay_actor": True}
    first, second = twins(name, lambda: (make_actor(), critic()), **options)
    assert type(second._actor) is LeanActor
    assert type(second._critic) is LeanCritic
    deterministic_cases.assert_equal_losses(first, second, make_batch())


@pytest.mark.parametrize("double", [False, True])
@pytest.mark.parametrize("form", ["one_hot", "categorical"])
def test_dqn_equals_torchrls(form, double):
    def make():
        body = MLP(in_features=OBS, out_features=value_cases.ACTS, num_cells=[CELLS])
        return (QValueActor(body, in_keys=["observation"], spec=value_cases.SPECS[form]),)

    first, second = twins("DQNLoss", make, double_dqn=double)
    assert type(second._critic) is LeanQNetwork
    value_cases.assert_equal_losses(first, second, value_cases.make_batch(form=form))


def test_discrete_sac_equals_torchrls():
    first, second = twins("DiscreteSACLoss", discrete_nets, num_actions=4, action_space="one-hot")
    assert type(second._actor) is LeanLogits
    assert type(second._critic) is LeanQNetwork
    value_cases.assert_equal_losses(first, second, value_cases.make_batch())


def discrete_nets():
    body = partial(MLP, in_features=OBS, out_features=4, num_cells=[CELLS])
    actor = ProbabilisticActor(
        TensorDictModule(body(), in_keys=["observation"], out_keys=["logits"]),
        in_keys=["logits"],
        distribution_class=OneHotCategorical,
    )
    return actor, TensorDictModule(body(), in_keys=["observation"], out_keys=["action_value"])


def test_activation_that_stands_in_two_places_runs_in_both():
    def make():
        tanh = nn.Tanh()
        sizes = [nn.Linear(OBS, CELLS), nn.Linear(CELLS, CELLS), nn.Linear(CELLS, 2 * ACT)]
        body = nn.Sequential(sizes[0], tanh, sizes[1], tanh, sizes[2])
        return gaussian_actor(body=body), critic()

    first, second = twins("SACLoss", make)
    assert type(second._actor) is LeanSampler
    sac_cases.assert_equal_losses(first, second, make_batch())


def test_layer_that_stands_in_two_places_takes_the_plain_way():
    layer = nn.Linear(CELLS, CELLS)
    body = nn.Sequential(nn.Linear(OBS, CELLS), layer, nn.Tanh(), layer, nn.Linear(CELLS, ACT))
    loss = ours.DDPGLoss(deterministic_actor(body=body), critic())
    assert type(loss._actor) is foreign_networks.SwappedActor


# ---- what is not recognized ---------------------------------------------------------------------


class Doubled(MLP):
    def forward(self, *inputs):
        return 2.0 * super().forward(*inputs)


class Careful(ValueOperator):
    pass


class Noted(nn.Linear):
    pass


UNKNOWN = {
    "dropout": lambda: critic(mlp(OBS + ACT, 1, dropout=0.0)),
    "norm": lambda: critic(
        mlp(OBS + ACT, 1, norm_class=nn.LayerNorm, norm_kwargs={"normalized_shape": CELLS})
    ),
    "subclass of MLP": lambda: critic(
        Doubled(in_features=OBS + ACT, out_features=1, num_cells=[CELLS])
    ),
    "subclass of ValueOperator": lambda: Careful(
        mlp(OBS + ACT, 1), in_keys=["action", "observation"]
    ),
    "subclass of Linear": lambda: critic(mlp(OBS + ACT, 1, layer_class=Noted)),
    "no bias": lambda: critic(mlp(OBS + ACT, 1, bias_last_layer=False)),
    "single bias": lambda: critic(mlp(OBS + ACT, 1, single_bias_last_layer=True)),
    "slope": lambda: critic(
        mlp(
            OBS + ACT,
            1,
            activation_class=nn.LeakyReLU,
            activation_kwargs={"negative_slope": 0.3},
        )
    ),
    "reshaped": lambda: critic(mlp(OBS + ACT, (1,))),
}


@pytest.mark.parametrize("name", UNKNOWN)
def test_unknown_critics_take_the_plain_way_and_equal_torchrls(name):
    first, second = twins("SACLoss", lambda: (gaussian_actor(), UNKNOWN[name]()))
    assert type(second._critic) is foreign_networks.StackedCritic
    sac_cases.assert_equal_losses(first, second, make_batch())


UNKNOWN_ACTORS = {
    "tanh_loc": partial(gaussian_actor, UNIT, tanh_loc=True),
    "event_dims": partial(gaussian_actor, event_dims=None),
    "dropout": lambda: gaussian_actor(body=mlp(OBS, 2 * ACT, dropout=0.0)),
}


@pytest.mark.parametrize("name", UNKNOWN_ACTORS)
def test_unknown_actors_take_the_plain_way_and_equal_torchrls(name):
    first, second = twins("SACLoss", lambda: (UNKNOWN_ACTORS[name](), critic()))
    assert type(second._actor) is foreign_networks.SwappedActor
    sac_cases.assert_equal_losses(first, second, make_batch())


def test_critic_that_reads_what_the_actor_wrote_equals_torchrls():
    def make():
        q = ValueOperator(mlp(OBS + 2 * ACT, 1), in_keys=["action", "observation", "param"])
        return deterministic_actor(), q

    first, second = twins("DDPGLoss", make)
    batch = make_batch().set("param", torch.randn(24, ACT))
    batch.set(("next", "param"), torch.randn(24, ACT))
    deterministic_cases.assert_equal_losses(first, second, batch)


@pytest.mark.parametrize("part", ["critic", "actor"])
def test_hook_put_on_later_is_called(part):
    loss = twins("SACLoss", sac_nets)[1]
    batch, called = make_batch(), []
    expected = sac_cases.seeded(loss, batch)[0]["loss_qvalue"]
    network = loss.qvalue_network if part == "critic" else loss.actor_network[0].module
    handle = network.register_forward_hook(lambda *_: called.append(1))
    found = sac_cases.seeded(loss, batch)[0]["loss_qvalue"]
    assert called
    torch.testing.assert_close(found, expected)
    handle.remove()
    called.clear()
    sac_cases.seeded(loss, batch)
    assert not called


# ---- the loss's parameters are shared -----------------------------------------------------------


def test_state_dict_and_parameters_are_those_of_torchrls_loss():
    first, second = twins("SACLoss", sac_nets)
    assert list(first.state_dict()) == list(second.state_dict())
    names = [name for name, _ in first.named_parameters()]
    assert names == [name for name, _ in second.named_parameters()]
    # The actor is a policy as well: both hold the same tensors.
    assert next(second.actor_network.parameters()) is next(
        second.actor_network_params.values(True, True)
    )


def test_training_goes_as_with_torchrls_loss():
    losses = twins("SACLoss", sac_nets)
    found = []
    for loss in losses:
        updater, steps = SoftUpdate(loss, tau=0.1), []
        optimizer = torch.optim.SGD(loss.parameters(), lr=0.05)
        for seed in range(4):
            out = sac_cases.seeded(loss, make_rows(seed), seed)[0]
            sum(value for key, value in out.items() if key.startswith("loss_")).backward()
            optimizer.step()
            optimizer.zero_grad()
            updater.step()
            steps.append(out["loss_qvalue"].detach())
        found.append(steps)
    torch.testing.assert_close(*found, atol=1e-4, rtol=1e-4)


def make_rows(seed: int) -> TensorDict:
    torch.manual_seed(100 + seed)
    return make_batch()


@pytest.mark.parametrize("way", ["cast", "copy", "pickle", "set", "assigned"])
def test_tensors_are_looked_up_again(way):
    torch.manual_seed(0)
    loss, other = twins("SACLoss", sac_nets)[1], twins("SACLoss", sac_nets)[1]
    for module in (other.actor_network_params, other.qvalue_network_params):
        module.data.add_(0.1)
    batch = make_batch()
    sac_cases.seeded(loss, batch)
    expected = sac_cases.seeded(other, batch)[0]["loss_qvalue"]
    if way == "cast":
        loss.double().float()
    elif way == "copy":
        loss = deepcopy(loss)
    elif way == "pickle":
        file = io.BytesIO()
        torch.save(loss, file)
        loss = torch.load(io.BytesIO(file.getvalue()), weights_only=False)
    if way == "set":
        for name in ("actor_network_params", "qvalue_network_params"):
            table = loss._modules[name]
            for path, value in other._modules[name].items(True, True):
                table[path] = value
    elif way == "assigned":
        for name in ("actor_network_params", "qvalue_network_params"):
            setattr(loss, name, other._modules[name])
    else:
        loss.load_state_dict(other.state_dict())
    torch.testing.assert_close(sac_cases.seeded(loss, batch)[0]["loss_qvalue"], expected)


def test_lazy_layers_of_before_the_first_call_take_the_plain_way():
    body = MLP(out_features=1, num_cells=[CELLS], activation_class=nn.ReLU)
    loss = ours.DDPGLoss(deterministic_actor(), critic(body))
    assert type(loss._critic) is foreign_networks.SingleCritic


def test_other_keys_take_part():
    loss = twins("SACLoss", sac_nets)[1]
    batch = make_batch()
    expected = sac_cases.seeded(loss, batch)[0]["loss_qvalue"]
    other = ours.SACLoss(
        renamed(loss.actor_network),
        ValueOperator(mlp(OBS + ACT, 1), in_keys=["act", "observation"], out_keys=["q"]),
        target_entropy=-2.0,
    )
    other.set_keys(action="act", state_action_value="q")
    other.load_state_dict(loss.state_dict())
    batch = batch.rename_key_("action", "act")
    torch.testing.assert_close(sac_cases.seeded(other, batch)[0]["loss_qvalue"], expected)
    # A key that the critic does not know is looked for the plain way, and missed there.
    other.set_keys(action="unknown")
    with pytest.raises(KeyError):
        other(batch)


def renamed(actor):
    actor = deepcopy(actor)
    actor[1]._out_keys = ["act"]
    return actor


def test_tensordict_sequential_of_three_takes_the_plain_way():
    actor = TensorDictSequential(
        *deterministic_actor().module, TensorDictModule(nn.Identity(), ["action"], ["action"])
    )
    assert type(ours.DDPGLoss(actor, critic())._actor) is foreign_networks.SwappedActor


def test_masked_q_network_takes_the_plain_way():
    net = QValueActor(
        MLP(in_features=OBS, out_features=4, num_cells=[CELLS]),
        in_keys=["observation"],
        spec=OneHot(4),
        action_mask_key="action_mask",
    )
    assert type(ours.DQNLoss(net)._critic) is foreign_networks.SingleQNetwork
