"""Log-probabilities, entropies and samples of the two policies' distributions."""

from __future__ import annotations

import math

import pytest
import torch
from torch.distributions import Categorical, Independent, Normal

from torchrl_elegant.functional import (
    categorical_entropy,
    categorical_sample,
    normal_entropy,
    normal_log_prob,
)


def doubles(*shape, grad=True):
    return torch.randn(*shape, dtype=torch.double, requires_grad=grad)


@pytest.mark.parametrize("batch", [(), (4,), (2, 3)])
def test_normal_log_prob_and_its_gradient(batch):
    loc, log_std, action = doubles(*batch, 3), doubles(3), doubles(*batch, 3, grad=False)
    found = normal_log_prob(loc, log_std, action)
    expected = Independent(Normal(loc, log_std.exp().expand_as(loc)), 1).log_prob(action)
    torch.testing.assert_close(found, expected)
    assert torch.autograd.gradcheck(lambda mu, s: normal_log_prob(mu, s, action), (loc, log_std))


def test_normal_log_prob_by_hand():
    # z = (3 - 1) / 2 = 1
    found = normal_log_prob(*(torch.tensor([x]) for x in (1.0, math.log(2.0), 3.0)))
    assert found.item() == pytest.approx(-0.5 - math.log(2.0) - 0.5 * math.log(2 * math.pi))


def test_normal_log_prob_leaves_its_inputs_alone():
    given = [torch.randn(4, 2), torch.randn(2), torch.randn(4, 2)]
    kept = [x.clone() for x in given]
    normal_log_prob(*given)
    torch.testing.assert_close(given, kept, atol=0.0, rtol=0.0)


def test_normal_entropy_and_its_gradient():
    log_std = doubles(3)
    expected = Independent(Normal(torch.zeros(3, dtype=torch.double), log_std.exp()), 1).entropy()
    torch.testing.assert_close(normal_entropy(log_std), expected)
    assert torch.autograd.gradcheck(normal_entropy, (log_std,))


def test_choices_are_drawn_with_their_probabilities():
    probs, count = torch.tensor([0.1, 0.6, 0.0, 0.3]), 20_000
    drawn = categorical_sample(probs.log().expand(count, 4))
    found = torch.bincount(drawn, minlength=4)
    assert found[2] == 0
    possible = probs > 0
    expected = count * probs[possible]
    # Three choices: 13.8 is exceeded once in a thousand seeds.
    assert ((found[possible] - expected) ** 2 / expected).sum() < 13.8


def test_rows_are_drawn_apart_and_logits_need_no_norm():
    logits = torch.tensor([[0.0, 100.0], [100.0, 0.0]]).repeat(50, 1) + 1_000.0
    assert categorical_sample(logits).tolist() == [1, 0] * 50
    mixed = categorical_sample(torch.zeros(200, 2))
    assert 50 < mixed.sum() < 150


def test_categorical_entropy_and_its_gradient():
    logits = doubles(5, 4)
    found = categorical_entropy(logits.log_softmax(-1))
    torch.testing.assert_close(found, Categorical(logits=logits).entropy())
    assert torch.autograd.gradcheck(lambda x: categorical_entropy(x.log_softmax(-1)), (logits,))


@pytest.mark.parametrize("least", [-torch.inf, -1e4])
def test_an_impossible_choice_adds_nothing(least):
    logits = torch.tensor([[0.0, 0.0, least]], requires_grad=True)
    entropy = categorical_entropy(logits.log_softmax(-1))
    assert entropy.item() == pytest.approx(math.log(2.0))
    entropy.sum().backward()
    # At the largest entropy of two choices nothing pulls.
    torch.testing.assert_close(logits.grad, torch.zeros(1, 3))
