"""Advantages against a plain loop, by hand, and against TorchRL's."""

from __future__ import annotations

import pytest
import torch
from torchrl.objectives.value.functional import generalized_advantage_estimate

from torchrl_elegant.functional import discounted_sum, gae

GAMMA, LMBDA = 0.9, 0.8


def loop_sum(x, decay):
    """Over the first dimension, from the end backwards."""
    total, found = torch.zeros_like(x[0]), []
    for t in reversed(range(len(x))):
        total = x[t] + decay[t] * total
        found.append(total)
    return torch.stack(found[::-1])


@pytest.mark.parametrize("steps", [1, 2, 3, 7, 8, 9, 33])
@pytest.mark.parametrize("dim", [0, 1, 2, -1, -2])
def test_the_sum_is_that_of_a_loop(steps, dim):
    shape = [2, 3, 4]
    shape[dim] = steps
    x, decay = torch.randn(shape, dtype=torch.double), torch.rand(shape, dtype=torch.double)
    expected = loop_sum(x.movedim(dim, 0), decay.movedim(dim, 0)).movedim(0, dim)
    torch.testing.assert_close(discounted_sum(x, decay, dim=dim), expected)


def test_the_sum_leaves_its_inputs_alone():
    x, decay = torch.randn(5), torch.rand(5)
    kept = x.clone(), decay.clone()
    discounted_sum(x, decay, dim=0)
    torch.testing.assert_close((x, decay), kept, atol=0.0, rtol=0.0)


def three_steps(terminated=(0, 0, 0), done=(0, 0, 0)):
    """Rewards 1, 2, 3; values 10, 20, 30; next values 100, 200, 300."""
    reward = torch.tensor([1.0, 2.0, 3.0])
    flags = (torch.tensor(x, dtype=torch.bool) for x in (terminated, done))
    return gae(reward, 10 * reward, 100 * reward, *flags, gamma=0.5, lmbda=0.5, dim=0).tolist()


def test_an_episode_that_goes_on():
    # errors 1 + 50 - 10, 2 + 100 - 20, 3 + 150 - 30; the decay is 0.25
    assert three_steps() == [41 + 0.25 * (82 + 0.25 * 123), 82 + 0.25 * 123, 123]


def test_a_truncated_step_bootstraps_and_ends_the_sum():
    assert three_steps(done=(0, 1, 0)) == [41 + 0.25 * 82, 82, 123]


def test_a_terminated_step_ends_both():
    assert three_steps(terminated=(0, 1, 0), done=(0, 1, 0)) == [41 + 0.25 * -18, -18, 123]


def test_the_last_step_is_told_apart_too():
    assert three_steps(done=(0, 0, 1))[2] == 123
    assert three_steps(terminated=(0, 0, 1), done=(0, 0, 1))[2] == -27


def random_rollout(*shape):
    terminated = torch.rand(shape) < 0.15
    done = terminated | (torch.rand(shape) < 0.15)
    reward, value, after = torch.randn(3, *shape, dtype=torch.double)
    return reward, value, after, terminated, done


@pytest.mark.parametrize("shape", [(1, 1), (3, 1, 1), (2, 37, 1), (64, 1), (2, 3, 11, 1)])
def test_it_is_torchrls(shape):
    reward, value, after, terminated, done = random_rollout(*shape)
    found = gae(reward, value, after, terminated, done, gamma=GAMMA, lmbda=LMBDA, dim=-2)
    expected, _ = generalized_advantage_estimate(
        GAMMA, LMBDA, value, after, reward, done, terminated, time_dim=-2
    )
    # TorchRL's discounts are single precision inside.
    torch.testing.assert_close(found, expected, atol=2e-6, rtol=2e-6)


def test_time_may_be_the_first_dimension():
    rollout = random_rollout(13, 4, 1)
    found = gae(*rollout, gamma=GAMMA, lmbda=LMBDA, dim=0)
    turned = gae(*(x.transpose(0, 1) for x in rollout), gamma=GAMMA, lmbda=LMBDA, dim=1)
    torch.testing.assert_close(found, turned.transpose(0, 1))


def test_the_discount_may_differ_from_step_to_step():
    reward, value, after, terminated, done = random_rollout(9, 1)
    gamma = torch.rand(9, 1, dtype=torch.double)
    delta = reward + gamma * after * ~terminated - value
    expected = loop_sum(delta, gamma * LMBDA * ~done)
    found = gae(reward, value, after, terminated, done, gamma=gamma, lmbda=LMBDA, dim=0)
    torch.testing.assert_close(found, expected)


@pytest.mark.parametrize("odd", range(5))
def test_shapes_that_would_broadcast_are_refused(odd):
    rollout = list(random_rollout(4, 1))
    rollout[odd] = rollout[odd].squeeze(-1)
    with pytest.raises(ValueError, match=r"must have one shape, got `\[\(4,\), \(4, 1\)\]`"):
        gae(*rollout, gamma=GAMMA, lmbda=LMBDA, dim=0)
