"""The squashed Gaussian's density and its hand-written gradient."""

from __future__ import annotations

import math

import pytest
import torch
from torchrl.modules import TanhNormal

from torchrl_elegant.functional import squashed_log_prob, squashed_mode, squashed_sample


def naive(loc, log_std, noise):
    """As the paper writes it, differentiated by autograd."""
    pre = loc + log_std.exp() * noise
    action = pre.tanh()
    normal = torch.distributions.Normal(loc, log_std.exp()).log_prob(pre)
    return action, (normal - torch.log1p(-action.square())).sum(-1)


def inputs(*shape, dtype=torch.float64):
    loc, log_std, noise = (torch.randn(*shape, dtype=dtype) for _ in range(3))
    return loc.requires_grad_(), (0.3 * log_std).requires_grad_(), noise


@pytest.mark.parametrize("shape", [(1,), (4, 3), (2, 4, 3)])
def test_value_and_gradient(shape):
    loc, log_std, noise = inputs(*shape)
    expected, actual = naive(loc, log_std, noise), squashed_sample(loc, log_std, noise)
    for left, right in zip(actual, expected, strict=True):
        torch.testing.assert_close(left, right)
    weights = [torch.randn_like(x) for x in expected]
    wanted = torch.autograd.grad(expected, (loc, log_std), weights)
    found = torch.autograd.grad(actual, (loc, log_std), weights)
    torch.testing.assert_close(found, wanted)


@pytest.mark.parametrize("only", [0, 1])
def test_gradient_of_one_output_alone(only):
    loc, log_std, noise = inputs(5, 2)
    wanted = torch.autograd.grad(naive(loc, log_std, noise)[only].sum(), (loc, log_std))
    found = torch.autograd.grad(squashed_sample(loc, log_std, noise)[only].sum(), (loc, log_std))
    torch.testing.assert_close(found, wanted)


def test_gradcheck():
    loc, log_std, noise = inputs(3, 2)
    assert torch.autograd.gradcheck(lambda a, b: squashed_sample(a, b, noise), (loc, log_std))


def test_against_torchrl():
    loc, log_std, noise = inputs(6, 3)
    action, log_prob = squashed_sample(loc, log_std, noise)
    torch.testing.assert_close(log_prob, TanhNormal(loc, log_std.exp()).log_prob(action))


@pytest.mark.parametrize("pre", [-50.0, -20.0, -9.0, 0.0, 9.0, 20.0, 50.0])
def test_far_out_it_stays_finite_and_right(pre):
    loc = torch.full((1, 1), pre, requires_grad=True)
    log_std = torch.zeros(1, 1, requires_grad=True)
    action, log_prob = squashed_sample(loc, log_std, torch.zeros(1, 1))
    # log(1 - tanh(u)^2) = -2 log cosh u, and log cosh u = |u| + log1p(exp(-2|u|)) - log 2
    log_cosh = abs(pre) + math.log1p(math.exp(-2 * abs(pre))) - math.log(2.0)
    assert log_prob.item() == pytest.approx(-0.5 * math.log(2 * math.pi) + 2 * log_cosh, rel=1e-5)
    grad = torch.autograd.grad((log_prob.sum(), action.sum()), (loc, log_std))
    assert all(torch.isfinite(g).all() for g in grad)
    assert grad[0].item() == pytest.approx(2 * math.tanh(pre) + 1 - math.tanh(pre) ** 2, abs=1e-5)


def test_mode():
    assert squashed_mode(torch.tensor([0.5])).item() == pytest.approx(math.tanh(0.5))


def test_samples_have_the_density_they_report():
    # E[1 / p(a)] over a ~ p is the volume of the support, here (-1, 1)
    torch.manual_seed(0)
    shape = torch.zeros(200_000, 1, dtype=torch.float64)
    _, log_prob = squashed_sample(shape + 0.2, shape - 0.3, torch.randn_like(shape))
    assert (-log_prob).exp().mean().item() == pytest.approx(2.0, rel=0.02)


@pytest.mark.parametrize("shape", [(1,), (4, 3), (2, 4, 3)])
def test_given_actions_against_torchrl(shape):
    loc, log_std, noise = inputs(*shape)
    action = squashed_sample(loc, log_std, noise)[0].detach()
    expected = TanhNormal(loc, log_std.exp()).log_prob(action)
    found = squashed_log_prob(loc, log_std, action)
    torch.testing.assert_close(found, expected, atol=1e-6, rtol=1e-6)
    weights = torch.randn_like(expected)
    wanted = torch.autograd.grad(expected, (loc, log_std), weights)
    given = torch.autograd.grad(found, (loc, log_std), weights)
    torch.testing.assert_close(given, wanted, atol=1e-6, rtol=1e-6)


def test_a_sample_is_as_likely_given_as_it_was_drawn():
    loc, log_std, noise = inputs(50, 3)
    action, log_prob = squashed_sample(loc, log_std, noise)
    torch.testing.assert_close(squashed_log_prob(loc, log_std, action), log_prob)


def test_an_action_is_as_likely_by_itself_as_among_others():
    loc, log_std, noise = inputs(5, 3)
    action = squashed_sample(loc, log_std, noise)[0]
    alone = [squashed_log_prob(*row) for row in zip(loc, log_std, action, strict=True)]
    torch.testing.assert_close(squashed_log_prob(loc, log_std, action), torch.stack(alone))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("action", [-1.1, -1.0, 1.0, 1.0 + 1e-6])
def test_given_actions_at_the_bounds(action, dtype):
    loc, log_std = (torch.zeros(1, 1, dtype=dtype, requires_grad=True) for _ in range(2))
    log_prob = squashed_log_prob(loc, log_std, torch.full((1, 1), action, dtype=dtype))
    held = math.copysign(math.atanh(1 - 1e-6), action)
    expected = -0.5 * (held**2 + math.log(2 * math.pi)) - math.log1p(-((1 - 1e-6) ** 2))
    assert log_prob.item() == pytest.approx(expected, abs=0.1)
    # The way back leads towards it, and to a wider spread.
    grad = torch.autograd.grad(log_prob.sum(), (loc, log_std))
    assert grad[0].item() == pytest.approx(held, rel=0.02)
    assert grad[1].item() == pytest.approx(held**2 - 1, rel=0.03)
