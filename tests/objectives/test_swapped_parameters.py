"""A loss computes with parameters that ``to_module`` or ``functional_call`` puts in, also by vmap.

It gives what a separate loss with those parameters gives, value and gradient.
"""

from __future__ import annotations

import pickle
from copy import deepcopy
from functools import partial

import pytest
import torch
from hamiltonian_cases import hamiltonian_loss, make_slices
from loss_cases import CASES
from ppo_cases import lean_nets, make_rows
from sac_cases import lean_loss, make_batch
from tensordict import TensorDict
from tensordict.nn import (
    NormalParamExtractor,
    TensorDictModule,
    TensorDictModuleBase,
    TensorDictSequential,
)
from torch.func import functional_call, vmap
from torchrl.modules import IndependentNormal, ProbabilisticActor, ValueOperator
from torchrl.objectives import ValueEstimators
from torchrl_nets import critic, deterministic_actor, gaussian_actor

from torchrl_elegant.modules import DeterministicActor, GaussianActor, SquashedGaussianActor
from torchrl_elegant.objectives import (
    A2CLoss,
    ClipPPOLoss,
    DDPGLoss,
    HamiltonianLoss,
    ModSACLoss,
    REDQLoss,
    SACLoss,
    TD3Loss,
)

pytestmark = pytest.mark.filterwarnings("ignore:No target network updater")

SEEN = {"observation": {"observation": (4,)}}


def modsac() -> ModSACLoss:
    loss = lean_loss(4, loss=ModSACLoss, std_regularization=0.5)
    loss.observe(make_batch())
    return loss


def hamiltonian(kind, **options) -> HamiltonianLoss:
    actor = kind(**SEEN, **options)
    with torch.no_grad():
        actor.net.layers[-1].weight.normal_()
    return hamiltonian_loss(actor, form="log")


BOUNDS = {"low": [-1.0, -1.0], "high": [1.0, 1.0]}
LOSSES = {
    **CASES,
    "modsac": (modsac, make_batch),
    "sac without delay": (partial(lean_loss, 3, delay_qvalue=False), make_batch),
    "sac of TorchRL's networks": (lambda: SACLoss(gaussian_actor(), critic()), make_batch),
    "redq of TorchRL's networks": (lambda: REDQLoss(gaussian_actor(), critic()), make_batch),
    "td3 of TorchRL's networks": (
        lambda: TD3Loss(deterministic_actor(), critic(), bounds=(-1.0, 1.0)),
        make_batch,
    ),
    "ddpg of TorchRL's networks": (lambda: DDPGLoss(deterministic_actor(), critic()), make_batch),
    "hamiltonian, Gaussian": (partial(hamiltonian, GaussianActor, action_shape=(2,)), None),
    "hamiltonian, squashed": (partial(hamiltonian, SquashedGaussianActor, **BOUNDS), None),
    "hamiltonian, deterministic": (partial(hamiltonian, DeterministicActor, **BOUNDS), None),
}


def losses_and_batch(name):
    """Three losses with parameters of their own, and a batch for them."""
    make, rows = LOSSES[name]
    torch.manual_seed(0)
    losses = [make() for _ in range(3)]
    if isinstance(losses[0], HamiltonianLoss):
        slices = make_slices(GaussianActor(**SEEN, action_shape=(2,)))
        return losses, slices.set("action", slices["action"].clamp(-0.9, 0.9))
    return losses, make_rows(losses[0].actor_network) if rows is None else rows()


def terms_of(loss, batch) -> dict[str, torch.Tensor]:
    torch.manual_seed(1)
    out = loss(batch.clone())
    return {name: value for name, value in out.items() if name.startswith("loss")}


def gradients(terms, params) -> dict[str, torch.Tensor]:
    leaves = {str(key): x for key, x in params.items(True, True) if x.requires_grad}
    total = sum(term.sum() for term in terms.values())
    found = torch.autograd.grad(total, list(leaves.values()), allow_unused=True)
    pairs = zip(leaves.items(), found, strict=True)
    return {key: torch.zeros_like(x) if grad is None else grad for (key, x), grad in pairs}


def copied(loss) -> TensorDict:
    """Parameters of ``loss`` that share nothing with it."""
    params = TensorDict.from_module(loss)
    return params.apply(lambda x: x.detach().clone().requires_grad_(x.requires_grad))


CLOSE = {"atol": 1e-5, "rtol": 1e-4}


@pytest.mark.parametrize("name", LOSSES)
def test_parameters_put_in_are_computed_with_and_taken_out_again(name):
    losses, batch = losses_and_batch(name)
    own = [terms_of(loss, batch) for loss in losses]
    base = losses[0]
    tensors = {id(x) for x in TensorDict.from_module(base).values(True, True)}
    for loss, expected in zip(losses, own, strict=True):
        params = copied(loss)
        with params.to_module(base):
            found = terms_of(base, batch)
        torch.testing.assert_close(found, expected, **CLOSE)
        wanted = gradients(expected, TensorDict.from_module(loss))
        torch.testing.assert_close(gradients(found, params), wanted, **CLOSE)
    assert {id(x) for x in TensorDict.from_module(base).values(True, True)} == tensors
    torch.testing.assert_close(terms_of(base, batch), own[0], atol=0.0, rtol=0.0)
    for network in ("actor_network", "critic_network", "qvalue_network", "value_network"):
        if network in base.__dict__ and "TorchRL" not in name:
            assert {id(x) for x in base.__dict__[network].parameters()} <= tensors


@pytest.mark.parametrize("name", LOSSES)
def test_stacked_losses_under_vmap_are_what_each_is_alone(name):
    losses, batch = losses_and_batch(name)
    expected = [terms_of(loss, batch) for loss in losses]
    base = losses[0]
    stacked = TensorDict.from_modules(*losses)

    def terms(params, rows):
        # Without this, TensorDict leaves a temperature behind that no longer learns.
        with params.to_module(base, preserve_module_state=False):
            out = base(rows.clone())
        return {key: value for key, value in out.items() if key.startswith("loss")}

    torch.manual_seed(1)
    found = vmap(terms, (0, None), randomness="same")(stacked, batch)
    for key, values in found.items():
        torch.testing.assert_close(values, torch.stack([one[key] for one in expected]), **CLOSE)
    each = [
        gradients(one, TensorDict.from_module(loss))
        for one, loss in zip(expected, losses, strict=True)
    ]
    wanted = {key: torch.stack([grads[key] for grads in each]) for key in each[0]}
    torch.testing.assert_close(gradients(found, stacked), wanted, **CLOSE)
    # Nothing of vmap is left behind.
    torch.testing.assert_close(terms_of(base, batch), expected[0], atol=0.0, rtol=0.0)


@pytest.mark.parametrize("name", [*CASES, "sac of TorchRL's networks"])
def test_vmap_over_rows_is_what_each_row_gives(name):
    (loss, *_), batch = losses_and_batch(name)
    rows = batch[:4].unsqueeze(1)

    def terms(row):
        out = loss(row.copy())
        return {key: value for key, value in out.items() if key.startswith("loss")}

    torch.manual_seed(1)
    found = vmap(terms, randomness="same")(rows)
    expected = [terms_of(loss, row) for row in rows]
    for key, values in found.items():
        wanted = torch.stack([one[key] for one in expected])
        if "ppo" in name and key == "loss_critic":
            values, wanted = values.mean(), wanted.mean()
        torch.testing.assert_close(values, wanted, **CLOSE)


@pytest.mark.parametrize("name", CASES)
def test_terms_of_a_learner_take_the_parameters_that_were_put_in(name):
    losses, batch = losses_and_batch(name)
    params = copied(losses[1])
    torch.manual_seed(1)
    expected = losses[1].update_terms(batch.clone())
    torch.manual_seed(1)
    with params.to_module(losses[0]):
        found = losses[0].backward_terms(batch.clone())
    torch.testing.assert_close(found, {k: v.detach() for k, v in expected.items()}, **CLOSE)
    assert all(param.grad is None for param in losses[0].parameters())
    assert any(x.grad is not None for x in params.values(True, True))


def state_of(loss) -> dict[str, torch.Tensor]:
    """All tensors of ``loss`` by name, the parameters as leaves that share nothing with it."""
    named = {**dict(loss.named_parameters()), **dict(loss.named_buffers())}
    return {k: x.detach().clone().requires_grad_(x.requires_grad) for k, x in named.items()}


@pytest.mark.parametrize("name", LOSSES)
@pytest.mark.parametrize("tie_weights", [True, False])
def test_functional_call_computes_with_what_it_is_given(name, tie_weights):
    (base, other, _), batch = losses_and_batch(name)
    own, expected = terms_of(base, batch), terms_of(other, batch)
    tensors = {id(x) for x in TensorDict.from_module(base).values(True, True)}
    state = state_of(other)
    torch.manual_seed(1)
    out = functional_call(base, dict(state), (batch.clone(),), tie_weights=tie_weights)
    found = {key: value for key, value in out.items() if key.startswith("loss")}
    torch.testing.assert_close(found, expected, **CLOSE)
    wanted = gradients(expected, TensorDict(dict(other.named_parameters())))
    torch.testing.assert_close(gradients(found, TensorDict(state)), wanted, **CLOSE)
    assert {id(x) for x in TensorDict.from_module(base).values(True, True)} == tensors
    torch.testing.assert_close(terms_of(base, batch), own, atol=0.0, rtol=0.0)


@pytest.mark.parametrize("name", LOSSES)
def test_functional_call_takes_stacked_losses_under_vmap(name):
    losses, batch = losses_and_batch(name)
    expected = [terms_of(loss, batch) for loss in losses]
    states = [state_of(loss) for loss in losses]
    stacked = {key: torch.stack([state[key] for state in states]) for key in states[0]}

    def terms(state, rows):
        out = functional_call(losses[0], state, (rows.clone(),))
        return {key: value for key, value in out.items() if key.startswith("loss")}

    torch.manual_seed(1)
    found = vmap(terms, (0, None), randomness="same")(stacked, batch)
    for key, values in found.items():
        torch.testing.assert_close(values, torch.stack([one[key] for one in expected]), **CLOSE)
    torch.testing.assert_close(terms_of(losses[0], batch), expected[0], atol=0.0, rtol=0.0)


@pytest.mark.parametrize("copy", [deepcopy, lambda loss: pickle.loads(pickle.dumps(loss))])
def test_functional_call_of_a_copied_loss(copy):
    (base, other, _), batch = losses_and_batch("sac")
    own, expected = terms_of(base, batch), terms_of(other, batch)
    copied_loss = copy(base)
    torch.manual_seed(1)
    found = functional_call(copied_loss, state_of(other), (batch.clone(),))
    torch.testing.assert_close({key: found[key] for key in expected}, expected, **CLOSE)
    for loss in (base, copied_loss):
        torch.testing.assert_close(terms_of(loss, batch), own, atol=0.0, rtol=0.0)
    copied_loss.load_state_dict(other.state_dict())
    torch.testing.assert_close(terms_of(copied_loss, batch), expected, atol=0.0, rtol=0.0)


def shared_loss() -> ClipPPOLoss:
    """Actor and critic of plain layers over one trunk."""
    trunk = TensorDictModule(torch.nn.Linear(4, 8), ["observation"], ["hidden"])
    head = torch.nn.Sequential(torch.nn.Linear(8, 4), NormalParamExtractor())
    actor = ProbabilisticActor(
        TensorDictSequential(trunk, TensorDictModule(head, ["hidden"], ["loc", "scale"])),
        in_keys=["loc", "scale"],
        distribution_class=IndependentNormal,
        return_log_prob=True,
    )
    value = ValueOperator(torch.nn.Linear(8, 1), in_keys=["hidden"])
    return ClipPPOLoss(actor, TensorDictSequential(trunk, value))


def test_functional_call_ties_what_actor_and_critic_share():
    torch.manual_seed(0)
    base, other = shared_loss(), shared_loss()
    rows = make_rows(other.actor_network)
    expected = terms_of(other, rows)
    found = functional_call(base, dict(other.named_parameters()), (rows.clone(),))
    torch.testing.assert_close({key: found[key] for key in expected}, expected, **CLOSE)


class OddActor(TensorDictModuleBase):
    """Names a part of it as TensorDict names a method."""

    in_keys, out_keys = ("observation",), ("action",)

    def __init__(self) -> None:
        super().__init__()
        self.values = torch.nn.Linear(4, 2)

    def forward(self, tensordict):
        return tensordict.set("action", self.values(tensordict["observation"]).tanh())


def test_functional_call_refuses_a_part_with_the_name_of_a_method():
    loss = DDPGLoss(OddActor(), critic())
    with pytest.raises(
        TypeError, match=r"`actor_network_params\.values`(.|\n)* is not an instance of torch"
    ):
        functional_call(loss, state_of(loss), (make_batch(),))


@pytest.mark.parametrize("kind", [ValueEstimators.GAE, ValueEstimators.VTrace])
@pytest.mark.parametrize("make", [A2CLoss, ClipPPOLoss])
def test_advantages_are_estimated_with_the_parameters_that_were_put_in(make, kind):
    torch.manual_seed(0)
    loss, other = make(*lean_nets()), make(*lean_nets())
    rollout = rollout_of(other.actor_network)
    expected = other.make_value_estimator(kind, gamma=0.9).estimate(rollout.clone())
    loss.make_value_estimator(kind, gamma=0.9)
    away = loss.estimate(rollout.clone())["advantage"]
    with copied(other).to_module(loss):
        found = loss.estimate(rollout.clone())
    torch.testing.assert_close(found["advantage"], expected["advantage"])
    assert not torch.allclose(away, expected["advantage"])


def rollout_of(actor) -> TensorDict:
    flag = torch.zeros(3, 5, 1, dtype=torch.bool)
    after = {"observation": torch.randn(3, 5, 4), "reward": torch.randn(3, 5, 1)}
    data = {
        "observation": torch.randn(3, 5, 4),
        "next": {**after, "done": flag, "terminated": flag},
    }
    return actor(TensorDict(data, [3, 5])).detach()


@pytest.mark.parametrize("name", CASES)
def test_entries_that_were_set_are_computed_with(name):
    (loss, other, _), batch = losses_and_batch(name)
    expected = terms_of(other, batch)
    for key, module in other._modules.items():
        if key.endswith("_network_params"):
            for path, value in module.items(True, True):
                loss._modules[key][path] = value
    found = terms_of(loss, batch)
    for key in expected:
        if key != "loss_alpha":  # its temperature is no network's
            torch.testing.assert_close(found[key], expected[key], **CLOSE)
