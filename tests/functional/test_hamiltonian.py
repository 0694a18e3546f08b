"""The energy of slices: by hand, against autograd, and exact where every trajectory is known."""

from __future__ import annotations

import math
from collections import Counter

import pytest
import torch
from hamiltonian_cases import F64, GAMMA, K, every_trajectory, k_step_return, tensor
from torch import Tensor

from torchrl_elegant.functional import hamiltonian, hamiltonian_slope, steps_of

OF_RATIOS = ("ratio", "log")
FORMS = (*OF_RATIOS, "imitate")


# ---- values and slopes by hand ------------------------------------------------------------------

# gains of two steps, ratios (or probabilities) of either step, energy, slopes
BY_HAND = {
    "ratio": [
        ((2.0, -1.0), (1.1, 1.5), -(2.2 - 1.65), (-(2.2 - 1.65), 1.65)),  # followed, wanted back
        ((2.0, 1.0), (1.5, 1.0), -(2.4 + 1.2), (0.0, 0.0)),  # has risen enough
        ((-2.0, -1.0), (0.5, 1.0), 1.6 + 0.8, (0.0, 0.0)),  # has fallen enough
        ((2.0, -1.0), (0.5, 1.0), -(1.0 - 0.8), (-1.0, 0.0)),  # back up, fallen enough
        ((2.0, 1.0), (1.5, 0.6), -(2.4 + 0.9), (-0.9, -0.9)),  # clipped, back within the bounds
        ((1.0, -1.0), (4.0, 3.0), -(1.2 - 10.0), (0.0, 0.0)),  # 12 is held at 10
    ],
    "log": [
        ((2.0, -1.0), (0.5, 0.25), -(2 * math.log(0.5) - math.log(0.125)), (-1.0, 1.0)),
        ((0.0, 3.0), (0.5, 1.0), -3 * math.log(0.5), (-3.0, -3.0)),
    ],
    "imitate": [
        ((2.0, 1.0), (0.5, 0.25), -3 * math.log(0.5) - math.log(0.25), (-3.0, -1.0)),
        ((2.0, -1.0), (0.5, 0.25), -math.log(0.5), (-1.0, 0.0)),  # good as a whole
        ((-3.0, 2.0), (0.5, 0.25), -2 * math.log(0.25), (0.0, -2.0)),  # good at its end
        ((-2.0, 3.0), (0.5, 0.25), -math.log(0.5) - 3 * math.log(0.25), (-1.0, -3.0)),
        ((2.0, -2.0), (0.5, 0.25), 0.0, (0.0, 0.0)),
        ((-1.0, -4.0), (0.5, 0.25), 0.0, (0.0, 0.0)),
        ((1.0, 1.0), (400.0, 300.0), -2 * math.log(400) - math.log(300), (-2.0, -1.0)),  # not held
    ],
}


@pytest.mark.parametrize(
    ("form", "case"), [(form, case) for form, cases in BY_HAND.items() for case in cases]
)
def test_value_and_slope_by_hand(form, case):
    gain, ratios, energy, slope = case
    log_prob = tensor([ratios]).log().requires_grad_()
    found = hamiltonian(log_prob, tensor([gain]), form=form, clip=0.2)
    assert found.shape == (1,)
    assert found.item() == pytest.approx(energy)
    found.sum().backward()
    assert log_prob.grad[0].tolist() == pytest.approx(slope, abs=1e-12)


@pytest.mark.parametrize("form", OF_RATIOS)
def test_only_the_difference_to_the_behavior_counts(form):
    log_prob, behavior, gain = (torch.randn(4, 5, dtype=F64) for _ in range(3))
    expected = hamiltonian(log_prob - behavior, gain, form=form, clip=0.2)
    torch.testing.assert_close(hamiltonian(log_prob, gain, behavior, form=form, clip=0.2), expected)


def test_who_is_imitated_is_of_no_consequence():
    log_prob, behavior, gain = (torch.randn(4, 5, dtype=F64) for _ in range(3))
    expected = hamiltonian_slope(log_prob, gain, form="imitate", clip=0.2)
    found = hamiltonian_slope(log_prob, gain, behavior, form="imitate", clip=0.5)
    torch.testing.assert_close(found, expected, atol=0.0, rtol=0.0)


def test_to_imitate_makes_nothing_less_likely():
    """Which the others do, of the same slices."""
    log_prob, gain, behavior = slices()
    positive = {}
    for form in FORMS:
        _, slope = hamiltonian_slope(log_prob, gain, behavior, form=form, clip=0.2)
        assert (slope < 0).any(), form
        positive[form] = bool((slope > 0).any())
    assert positive == {"ratio": True, "log": True, "imitate": False}


def test_to_imitate_is_to_follow_log_where_all_went_well_and_nothing_where_nothing_did():
    log_prob, gain, _ = slices()
    well = hamiltonian_slope(log_prob, gain.abs(), form="imitate", clip=0.2)
    expected = hamiltonian_slope(log_prob, gain.abs(), form="log", clip=0.2)
    torch.testing.assert_close(well, expected, atol=1e-10, rtol=1e-10)
    badly = hamiltonian_slope(log_prob, -gain.abs(), form="imitate", clip=0.2)
    assert all(part.abs().max() < 1e-12 for part in badly)


# ---- against autograd of the plain formula ------------------------------------------------------


def plain(log_prob, gain, behavior, form, clip):
    """As the docstring writes it, one operation at a time."""
    if form == "imitate":
        later = [gain[:, j:].sum(1).relu() for j in range(gain.shape[1])]
        return -sum(each * log_prob[:, j] for j, each in enumerate(later))
    summed = (log_prob - behavior).cumsum(1)
    if form == "log":
        return -(gain * summed).sum(1)
    phi = summed.exp().clamp(max=10.0)
    return -torch.minimum(gain * phi, gain * phi.clamp(1 - clip, 1 + clip)).sum(1)


def slices(count=200, steps=6, spread=0.4):
    """Log-probabilities, those of the behavior and gains of slices, some of them shorter."""
    log_prob, behavior = (spread * torch.randn(count, steps, dtype=F64) for _ in range(2))
    short = torch.arange(steps) >= torch.randint(1, steps + 1, (count, 1))
    gain = torch.randn(count, steps, dtype=F64).masked_fill(short, 0.0)
    return log_prob.masked_fill(short, 0.0), gain, behavior.masked_fill(short, 0.0)


@pytest.mark.parametrize("clip", [0.1, 0.5])
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("spread", [0.02, 0.4, 1.5])
def test_value_and_slope_against_autograd(form, clip, spread):
    log_prob, gain, behavior = slices(spread=spread)
    if spread > 0.02:  # or the test does not see what it is for
        ratio = (log_prob - behavior).cumsum(1).exp()
        assert ((ratio > 1 + clip) & (gain > 0)).any()
        assert ((ratio < 1 - clip) & (gain < 0)).any()
        assert spread < 1 or ((ratio > 10) & (gain != 0)).any()
        later = gain.flip(1).cumsum(1).flip(1)
        assert ((later > 0) & (gain < 0)).any()
        assert ((later < 0) & (gain > 0)).any()
    weights = torch.randn(len(gain), dtype=F64)
    results = []
    for function in (plain, lambda a, g, b, f, c: hamiltonian(a, g, b, form=f, clip=c)):
        x = log_prob.clone().requires_grad_()
        energy = function(x, gain, behavior, form, clip)
        results.append((energy, *torch.autograd.grad((weights * energy).sum(), x)))
    torch.testing.assert_close(results[1], results[0], atol=1e-10, rtol=1e-10)


@pytest.mark.parametrize("form", FORMS)
def test_gradcheck(form):
    log_prob, gain, behavior = slices(count=20)
    log_prob.requires_grad_()
    assert torch.autograd.gradcheck(
        lambda x: hamiltonian(x, gain, behavior, form=form, clip=0.2), log_prob
    )


@pytest.mark.parametrize("form", FORMS)
def test_gain_and_behavior_are_constants_and_left_alone(form):
    given = [x.requires_grad_() for x in slices(count=5)]
    kept = [x.detach().clone() for x in given]
    hamiltonian(*given, form=form, clip=0.2).sum().backward()
    assert given[0].grad is not None
    assert given[1].grad is given[2].grad is None
    assert all(torch.equal(x, y) for x, y in zip(given, kept, strict=True))


def test_it_is_differentiated_once():
    log_prob, weight = tensor([[0.1]]).requires_grad_(), tensor(2.0).requires_grad_()
    energy = weight * hamiltonian(log_prob, tensor([[1.0]]), form="log").sum()
    (slope,) = torch.autograd.grad(energy, log_prob, create_graph=True)
    with pytest.raises(RuntimeError, match="once_differentiable"):
        slope.sum().backward()


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("gain", [(1.0, -1.0), (-1.0, 2.0)])
def test_far_out_it_stays_finite(form, gain):
    log_prob = torch.tensor([[500.0, 500.0], [-500.0, -500.0]], requires_grad=True)
    energy = hamiltonian(log_prob, torch.tensor([gain, gain]), form=form, clip=0.2)
    energy.sum().backward()
    assert energy.isfinite().all()
    assert log_prob.grad.isfinite().all()


@pytest.mark.parametrize("form", FORMS)
def test_slices_without_steps_and_no_slices(form):
    assert hamiltonian(torch.zeros(0, 3), torch.zeros(0, 3), form=form, clip=0.2).shape == (0,)
    log_prob = torch.zeros(2, 3, requires_grad=True)
    energy = hamiltonian(log_prob, torch.zeros(2, 3), form=form, clip=0.2)
    energy.sum().backward()
    assert not energy.any()
    assert not log_prob.grad.any()


# ---- which steps count --------------------------------------------------------------------------

N, Y = False, True


@pytest.mark.parametrize(
    ("done", "terminated", "mask", "real", "rewarded"),
    [
        ((N, N, N), (N, N, N), None, (Y, Y, Y), (Y, Y, Y)),
        ((N, N, Y), (N, N, Y), None, (Y, Y, Y), (Y, Y, Y)),
        ((Y, N, N), (Y, N, N), None, (Y, N, N), (Y, Y, Y)),  # absorbed
        ((Y, N, N), (N, N, N), None, (Y, N, N), (Y, N, N)),  # truncated: the rest is unknown
        ((Y, Y, N), (N, Y, N), None, (Y, N, N), (Y, N, N)),  # of another episode
        ((N, Y, Y), (N, Y, Y), (Y, Y, N), (Y, Y, N), (Y, Y, Y)),  # padded, and absorbed
        ((N, Y, Y), (N, N, N), (Y, Y, N), (Y, Y, N), (Y, Y, N)),
        ((N, N, N), (N, N, N), (Y, N, N), (Y, N, N), (Y, N, N)),  # padded, cut in mid-episode
        ((N, N, N), (N, N, N), (N, N, N), (N, N, N), (N, N, N)),
    ],
)
def test_steps_by_hand(done, terminated, mask, real, rewarded):
    flags = [None if x is None else torch.tensor([x]) for x in (done, terminated, mask)]
    found = steps_of(*flags)
    assert found.real[0].tolist() == list(real)
    assert found.rewarded[0].tolist() == list(rewarded)


# ---- exactness, by enumeration ------------------------------------------------------------------
LOGITS = tensor([[0.4, -0.2], [-0.7, 0.5]])


def exact_gradient() -> Tensor:
    logits = LOGITS.clone().requires_grad_()
    return torch.autograd.grad(k_step_return(logits), logits)[0]


def expected_gradient(form, *, baseline=0.0, behavior=False, absorbing=True) -> Tensor:
    """Minus the gradient of the energy, averaged over all trajectories of the policy."""
    every, logits = every_trajectory(), LOGITS.clone().requires_grad_()
    steps = steps_of(every.done, every.done, every.mask)
    counts = steps.rewarded if absorbing else steps.real
    chosen = logits.log_softmax(-1)[every.state, every.action].masked_fill(~steps.real, 0.0)
    chance = every.moves * chosen.sum(1).exp().detach()
    torch.testing.assert_close(chance.sum(), tensor(1.0))
    gain = GAMMA ** torch.arange(K, dtype=F64) * counts * (every.reward * steps.real - baseline)
    energy = hamiltonian(chosen, gain, chosen.detach() if behavior else None, form=form, clip=0.2)
    return -torch.autograd.grad((chance * energy).sum(), logits)[0]


def test_the_enumeration_is_of_what_it_should_be():
    every = every_trajectory()
    # From either state, 2 of the 6 that can happen in a step end it.
    assert Counter(every.mask.sum(1).tolist()) == {1: 2 * 2, 2: 2 * 4 * 2, 3: 2 * 4 * 4 * 6}
    assert not torch.allclose(exact_gradient(), torch.zeros(2, 2, dtype=F64), atol=0.05)


@pytest.mark.parametrize("baseline", [0.0, 0.9, -3.0])
@pytest.mark.parametrize(("form", "behavior"), [("log", False), ("log", True), ("ratio", True)])
def test_its_expectation_is_the_gradient_of_the_k_step_return(form, behavior, baseline):
    found = expected_gradient(form, behavior=behavior, baseline=baseline)
    torch.testing.assert_close(found, exact_gradient(), atol=1e-12, rtol=1e-12)


def test_to_imitate_has_another_expectation_but_where_all_went_well():
    found, exact = expected_gradient("imitate", baseline=-3.0), exact_gradient()
    torch.testing.assert_close(found, exact, atol=1e-12, rtol=1e-12)
    assert (expected_gradient("imitate", baseline=0.9) - exact).abs().max() > 0.05


@pytest.mark.parametrize(("form", "behavior"), [("log", False), ("ratio", True)])
def test_a_baseline_is_biased_where_steps_after_a_termination_do_not_count(form, behavior):
    options = {"behavior": behavior, "absorbing": False}
    # Without a baseline the two are the same: what follows a termination is worth 0.
    torch.testing.assert_close(expected_gradient(form, **options), exact_gradient())
    found = expected_gradient(form, baseline=3.0, **options)
    assert (found - exact_gradient()).abs().max() > 0.1


def test_a_ratio_needs_its_clip():
    with pytest.raises(ValueError, match="`clip` must be given for form='ratio', got `None`"):
        hamiltonian(torch.zeros(1, 2), torch.zeros(1, 2), form="ratio")
