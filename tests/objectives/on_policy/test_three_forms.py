"""One on-policy loss in three forms: differentiated, written out and compiled, over all options."""

from __future__ import annotations

from copy import deepcopy

import pytest
import torch
from ppo_cases import ACTORS, make_actor, make_value
from tensordict import TensorDict

from torchrl_elegant.objectives import A2CLoss, ClipPPOLoss
from torchrl_elegant.objectives.common.update_loss import minimized
from torchrl_elegant.objectives.compiled.loss import CompiledLoss

ROWS = 32


def rows_of(actor, observation):
    """Rows whose ratios lie on both sides of one and past the bounds."""
    rows = TensorDict(
        {key: torch.randn(ROWS, *shape).double() for key, shape in observation.items()}, [ROWS]
    )
    with torch.no_grad():
        rows = actor(rows)
    drawn = rows["action_log_prob"]
    rows["action_log_prob"] = drawn + 0.4 * torch.randn_like(drawn)
    rows["advantage"] = torch.randn(ROWS, 1).double()
    rows["value_target"] = 2.0 * torch.randn(ROWS, 1).double()
    return rows


def loss_of(kind, *, loss=ClipPPOLoss, activation="tanh", observation=None, **options):
    torch.manual_seed(0)
    observation = observation or {"observation": (4,)}
    actor = make_actor(kind, observation, activation=activation).double()
    critic = make_value(observation, activation=activation).double()
    return loss(actor, critic, **options).double(), rows_of(actor, observation)


def gradients(loss):
    found = {name: param.grad for name, param in loss.named_parameters()}
    assert found
    return found


def by_autograd(loss, rows):
    twin = deepcopy(loss)
    terms = twin.update_terms(rows.clone())
    minimized(terms).backward()
    return terms, gradients(twin)


def assert_same(loss, rows):
    expected, slopes = by_autograd(loss, rows)
    assert loss._written_inputs(rows) is not None
    terms = loss.backward_terms(rows)
    assert terms.keys() == expected.keys()
    for name, value in terms.items():
        torch.testing.assert_close(value, expected[name].detach())
        assert not value.requires_grad
    for name, slope in gradients(loss).items():
        torch.testing.assert_close(slope, slopes[name], rtol=1e-9, atol=1e-12)
        assert slope.abs().max() > 0


@pytest.mark.parametrize("entropy_coeff", [0.0, 0.3])
@pytest.mark.parametrize("actor", ACTORS)
@pytest.mark.parametrize("kind", [ClipPPOLoss, A2CLoss])
def test_gradients_and_terms_are_those_of_autograd(kind, actor, entropy_coeff):
    options = {"entropy_bonus": entropy_coeff > 0, "entropy_coeff": entropy_coeff}
    assert_same(*loss_of(actor, loss=kind, **options))


@pytest.mark.parametrize("activation", ["tanh", "relu", "elu", "leaky_relu"])
def test_with_every_activation_whose_slope_its_output_tells(activation):
    assert_same(*loss_of("gaussian", activation=activation, entropy_bonus=True))


@pytest.mark.parametrize("distance", ["l2", "l1", "smooth_l1"])
@pytest.mark.parametrize("normalize", [True, False])
def test_with_every_distance_and_with_advantages_as_they_are(distance, normalize):
    options = {"loss_critic_type": distance, "normalize_advantage": normalize}
    assert_same(*loss_of("one_hot", critic_coeff=0.7, clip_epsilon=0.1, **options))


def test_with_entries_that_are_joined_and_actions_of_two_dimensions():
    shapes = {"observation": (4,), "goal": (2, 2)}
    assert_same(*loss_of("gaussian", observation=shapes))
    actor = make_actor("gaussian", action_shape=(2, 2)).double()
    loss = ClipPPOLoss(actor, make_value().double()).double()
    assert_same(loss, rows_of(actor, {"observation": (4,)}))


@pytest.mark.parametrize("actor", ACTORS)
@pytest.mark.parametrize(
    ("kind", "options"),
    [
        (A2CLoss, {}),
        (ClipPPOLoss, {"normalize_advantage": False}),
        (ClipPPOLoss, {"normalize_advantage": True}),
    ],
)
def test_rows_are_left_as_they_were(kind, options, actor):
    """Another epoch learns from them."""
    loss, rows = loss_of(actor, loss=kind, **options)
    kept = rows.clone()
    assert loss.backward_terms(rows) is not None
    assert set(rows.keys()) == set(kept.keys())
    assert (rows == kept).all()


def test_they_are_added_to_those_that_are_there():
    loss, rows = loss_of("gaussian")
    loss.backward_terms(rows)
    once = {name: grad.clone() for name, grad in gradients(loss).items()}
    loss.backward_terms(rows)
    for name, grad in gradients(loss).items():
        torch.testing.assert_close(grad, 2.0 * once[name])


@pytest.mark.parametrize(
    "case",
    ["gelu", "clip_value", "frozen", "pixels", "sequences", "separate"],
)
def test_autograd_works_where_they_cannot_be_written(case):
    options = {"clip_value": 0.2} if case == "clip_value" else {}
    if case == "separate":
        options = {"separate_losses": True}
    if case == "pixels":
        options = {"observation": {"pixels": (3, 16, 16)}}
    loss, rows = loss_of("gaussian", activation="gelu" if case == "gelu" else "tanh", **options)
    rows["state_value"] = torch.zeros(ROWS, 1).double()
    if case == "frozen":
        loss.critic_network.net.layers[0].weight.requires_grad_(False)
    if case == "sequences":
        rows = rows.reshape(4, ROWS // 4)
    assert loss._written_inputs(rows) is None
    expected, slopes = by_autograd(loss, rows)
    terms = loss.backward_terms(rows)
    assert terms.keys() == expected.keys()
    for name, value in terms.items():
        torch.testing.assert_close(value, expected[name].detach())
        assert not value.requires_grad
    torch.testing.assert_close(gradients(loss), slopes)


CLOSE = {"rtol": 1e-9, "atol": 1e-12}
OPTIONS = {
    "plain": {},
    "entropy": {"entropy_bonus": True, "entropy_coeff": 0.3},
    "l1": {"loss_critic_type": "l1", "critic_coeff": 0.7},
    "smooth_l1": {"loss_critic_type": "smooth_l1"},
}
OF_PPO = {
    "normalized": {"normalize_advantage": True},
    "narrow": {"clip_epsilon": 0.05},
    "asymmetric": {"clip_epsilon": (0.1, 0.3)},
    "all": {**OPTIONS["entropy"], **OPTIONS["l1"], "normalize_advantage": True},
}
CASES = [(kind, name, "gaussian") for kind in (ClipPPOLoss, A2CLoss) for name in OPTIONS]
CASES += [(ClipPPOLoss, name, "gaussian") for name in OF_PPO]
for other in ACTORS[1:]:
    CASES += [(ClipPPOLoss, "all", other), (A2CLoss, "entropy", other)]


def differentiated(loss, rows, form):
    """Terms and gradients of a copy of ``loss`` in one of the forms."""
    twin = deepcopy(loss)
    if form == "differentiated":
        terms = twin.update_terms(rows.clone())
        minimized(terms).backward()
    else:
        assert twin._written_inputs(rows) is not None
        learns = CompiledLoss(twin) if form == "compiled" else twin
        terms = learns.backward_terms(rows.clone())
    return {name: value.detach() for name, value in terms.items()}, gradients(twin)


@pytest.mark.usefixtures("graphs")
@pytest.mark.parametrize(("kind", "name", "actor"), CASES)
def test_all_forms_agree(kind, name, actor):
    loss, rows = loss_of(actor, loss=kind, **(OPTIONS | OF_PPO)[name])
    recorded = differentiated(loss, rows, "differentiated")
    assert all(grad.abs().max() > 0 for grad in recorded[1].values())
    for form in ("written", "compiled"):
        terms, grads = differentiated(loss, rows, form)
        assert list(terms) == list(recorded[0]), form
        torch.testing.assert_close(terms, recorded[0], **CLOSE)
        torch.testing.assert_close(grads, recorded[1], **CLOSE)
