"""The H-term's gradient, written out: that of autograd, for every form and actor that it knows."""

from __future__ import annotations

from copy import deepcopy

import pytest
import torch
from hamiltonian_cases import hamiltonian_loss
from tensordict import TensorDict

from torchrl_elegant.modules import (
    CategoricalActor,
    GaussianActor,
    MultiCategoricalActor,
    SquashedGaussianActor,
)
from torchrl_elegant.objectives import HamiltonianLoss
from torchrl_elegant.objectives.hamiltonian import loss as hamiltonian_module

SHAPES = {"observation": (3,), "more": (2, 2)}
ACTORS = {
    "gaussian": lambda: GaussianActor(observation=SHAPES, action_shape=(2,), num_cells=(8, 8)),
    "table": lambda: GaussianActor(observation=SHAPES, action_shape=(2, 2), num_cells=(8,)),
    "choice": lambda: CategoricalActor(observation=SHAPES, choices=3, num_cells=(8,)),
    "choices": lambda: MultiCategoricalActor(observation=SHAPES, choices=(3, 2), num_cells=(8,)),
    "squashed": lambda: SquashedGaussianActor(
        observation=SHAPES, low=[-1.0, -2.0], high=[1.0, 2.0], num_cells=(8,)
    ),
}
WRITTEN = ("gaussian", "table", "choice", "choices")


def slices_of(actor, count: int = 6, horizon: int = 5) -> TensorDict:
    """Whole ones, ones that a termination or a time limit ends midway, and padding."""
    torch.manual_seed(1)
    shape = (count, horizon)
    slices = TensorDict({key: torch.randn(*shape, *size) for key, size in SHAPES.items()}, shape)
    done = torch.zeros(*shape, 1, dtype=torch.bool)
    done[1:4, 2] = True
    terminated = done.clone()
    terminated[2] = False
    mask = torch.ones(shape, dtype=torch.bool)
    mask[3:5, 3:] = False
    after = {"reward": torch.randn(*shape, 1), "done": done, "terminated": terminated}
    with torch.no_grad():
        actor(slices)
    slices.set("next", TensorDict(after, shape)).set("mask", mask)
    drift = slices.get("action_log_prob", torch.zeros(shape)) + 0.3 * torch.randn(shape)
    for key in ("state_value", ("next", "state_value")):
        slices.set(key, torch.randn(*shape, 1))
    return slices.set("action_log_prob", drift)


def gradients(loss: HamiltonianLoss) -> list[torch.Tensor | None]:
    found = [param.grad for param in loss.parameters()]
    for param in loss.parameters():
        param.grad = None
    return found


def term_of(loss: HamiltonianLoss, slices: TensorDict, times: int = 1) -> torch.Tensor:
    for _ in range(times):
        term = loss(slices)["loss_hamiltonian"]
        term.sum().backward()
    return term.detach()


@pytest.mark.parametrize("form", ["ratio", "log", "imitate", None])
@pytest.mark.parametrize("baseline", ["mean", "value", "zero"])
@pytest.mark.parametrize("kind", ACTORS)
def test_it_is_that_of_autograd(kind, form, baseline, monkeypatch):
    actor = ACTORS[kind]()
    loss = hamiltonian_loss(actor, form=form, gamma=0.9, weight=0.3, baseline=baseline)
    slices = slices_of(actor)
    loss.observe(slices)
    expected, wanted = term_of(loss, slices), gradients(loss)
    if kind in WRITTEN:
        monkeypatch.setattr(HamiltonianLoss, "forward", None)
    before = deepcopy(slices)
    found = loss.backward_term(slices)
    assert found.shape == ()
    assert not found.requires_grad
    torch.testing.assert_close(found, expected)
    torch.testing.assert_close(gradients(loss), wanted, rtol=1e-4, atol=1e-8)
    assert all(grad.abs().max() > 0 for grad in wanted)
    assert (slices == before).all()


@pytest.mark.parametrize("kind", ["gaussian", "squashed"])
def test_it_is_added_to_what_is_there(kind):
    actor = ACTORS[kind]()
    loss, slices = hamiltonian_loss(actor), slices_of(actor)
    term_of(loss, slices, times=2)
    wanted = gradients(loss)
    for _ in range(2):
        loss.backward_term(slices)
    torch.testing.assert_close(gradients(loss), wanted)


@pytest.mark.parametrize("form", ["ratio", "log", "imitate"])
def test_steps_that_are_not_there_have_no_part(form):
    """Whatever was done in them, and however good it is to be dead."""
    actor = ACTORS["gaussian"]()
    loss, slices = hamiltonian_loss(actor, form=form), slices_of(actor)
    loss.scale.mean.fill_(-3.0)
    loss.backward_term(slices)
    wanted = gradients(loss)
    done = slices["next", "done"].squeeze(-1)
    gone = ~slices["mask"] | (done.cumsum(1) - done.long() > 0)
    assert gone.sum() == 3 * 2 + 2
    for key in ("observation", "action"):
        slices[key][gone] = torch.randn_like(slices[key][gone])
    loss.backward_term(slices)
    torch.testing.assert_close(gradients(loss), wanted, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("form", ["ratio", "imitate"])
def test_nothing_real_gives_nothing(form):
    actor = ACTORS["gaussian"]()
    loss, slices = hamiltonian_loss(actor, form=form), slices_of(actor)
    slices["mask"] = torch.zeros(6, 5, dtype=torch.bool)
    assert loss.backward_term(slices).item() == 0.0
    assert all(grad.abs().max() == 0.0 for grad in gradients(loss))


@pytest.mark.parametrize("odd", ["sum", "frozen", "activation"])
def test_what_it_does_not_know_takes_autograd(odd, monkeypatch):
    options = {"activation": "silu"} if odd == "activation" else {}
    actor = GaussianActor(observation=SHAPES, action_shape=(2,), num_cells=(8,), **options)
    if odd == "frozen":
        actor.log_std.requires_grad_(False)
    loss = hamiltonian_loss(actor, reduction="sum" if odd == "sum" else "mean")
    slices = slices_of(actor)
    expected, wanted = term_of(loss, slices), gradients(loss)
    write, written = hamiltonian_module.backward_policy, []
    monkeypatch.setattr(
        hamiltonian_module,
        "backward_policy",
        lambda *args: written.append(write(*args)) or written[-1],
    )
    torch.testing.assert_close(loss.backward_term(slices), expected)
    assert all(found is None for found in written)
    torch.testing.assert_close(gradients(loss), wanted)


def test_values_that_are_not_there_are_named():
    actor = ACTORS["gaussian"]()
    loss, slices = hamiltonian_loss(actor, baseline="value"), slices_of(actor)
    with pytest.raises(KeyError, match="must hold `state_value`, in `next` too"):
        loss.backward_term(slices.exclude("state_value"))
    assert all(grad is None for grad in gradients(loss))


def test_to_imitate_needs_nobodys_log_probability():
    actor = ACTORS["gaussian"]()
    loss, slices = hamiltonian_loss(actor, form="imitate"), slices_of(actor)
    wanted = loss.backward_term(slices)
    found = loss.backward_term(slices.exclude("action_log_prob"))
    assert found == wanted != 0.0


def test_a_ratio_needs_what_the_behavior_found():
    actor = ACTORS["gaussian"]()
    loss, slices = hamiltonian_loss(actor, form="ratio"), slices_of(actor)
    with pytest.raises(KeyError, match="action_log_prob"):
        loss.backward_term(slices.exclude("action_log_prob"))
