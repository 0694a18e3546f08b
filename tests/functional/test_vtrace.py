"""V-trace against a plain loop, by hand, against TorchRL's equation, and against GAE."""

from __future__ import annotations

import pytest
import torch
from torchrl.objectives.value.functional import vtrace_advantage_estimate

from torchrl_elegant.functional import gae, vtrace


def rollout(*shape: int) -> tuple[torch.Tensor, ...]:
    """Ratio, reward, values and flags at random; some steps terminated, some only truncated."""
    numbers = [torch.randn(shape, dtype=torch.double) for _ in range(4)]
    terminated = torch.rand(shape) < 0.15
    return (*numbers, terminated, terminated | (torch.rand(shape) < 0.15))


def flowing(*shape: int) -> tuple[torch.Tensor, ...]:
    """The same, where a next value is that of the next row unless an episode ends between."""
    ratio, reward, value, next_value, terminated, done = rollout(*shape)
    next_value[:, :-1] = torch.where(done[:, :-1], next_value[:, :-1], value[:, 1:])
    return ratio, reward, value, next_value, terminated, done


def loop(log_ratio, reward, value, next_value, terminated, done, gamma, lmbda, rho_max, c_max):
    """Equation 1 step by step, from the end backwards, over the second dimension."""
    ratio = log_ratio.exp()
    rho, c = ratio.clamp(max=rho_max), lmbda * ratio.clamp(max=c_max)
    steps, targets, advantages = value.shape[1], [], []
    target = torch.zeros_like(value[:, 0])
    for t in reversed(range(steps)):
        ends = done[:, t] | torch.tensor(t == steps - 1)
        later = torch.where(ends, next_value[:, t], target)
        goes_on = (~terminated[:, t]).double()
        error = reward[:, t] + gamma * goes_on * next_value[:, t] - value[:, t]
        more = torch.where(ends, 0.0, later - next_value[:, t])
        target = value[:, t] + rho[:, t] * error + gamma * c[:, t] * more
        mixed = lmbda * later + (1 - lmbda) * next_value[:, t]
        advantages.append(reward[:, t] + gamma * goes_on * mixed - value[:, t])
        targets.append(target)
    return torch.stack(advantages[::-1], 1), torch.stack(targets[::-1], 1), rho


@pytest.mark.parametrize("steps", [1, 2, 7, 8, 9, 33])
@pytest.mark.parametrize("lmbda", [1.0, 0.8, 0.0])
@pytest.mark.parametrize(("rho_max", "c_max"), [(1.0, 1.0), (2.0, 0.5), (1e9, 1e9)])
def test_it_is_that_of_a_loop(steps, lmbda, rho_max, c_max):
    given = flowing(4, steps, 1)
    options = {"gamma": 0.9, "lmbda": lmbda, "rho_max": rho_max, "c_max": c_max}
    torch.testing.assert_close(tuple(vtrace(*given, **options, dim=1)), loop(*given, **options))


@pytest.mark.parametrize(("rho_max", "c_max"), [(1.0, 1.0), (2.0, 0.5)])
def test_without_lambda_it_is_torchrls(rho_max, c_max):
    log_ratio, *rest = rollout(3, 17, 1)
    reward, value, next_value, terminated, done = rest
    options = {"gamma": 0.9, "rho_max": rho_max, "c_max": c_max}
    advantage, target, weight = vtrace(log_ratio, *rest, **options, lmbda=1.0, dim=1)
    log_mu = torch.randn_like(log_ratio)
    expected = vtrace_advantage_estimate(
        0.9,
        log_mu + log_ratio,
        log_mu,
        value,
        next_value,
        reward,
        done,
        terminated,
        rho_thresh=rho_max,
        c_thresh=c_max,
    )
    torch.testing.assert_close((weight * advantage, target), expected)


@pytest.mark.parametrize("lmbda", [1.0, 0.7, 0.0])
def test_of_the_policys_own_steps_it_is_gae(lmbda):
    _, *given = flowing(3, 17, 1)
    options = {"gamma": 0.9, "lmbda": lmbda, "dim": 1}
    same = torch.zeros_like(given[0])
    advantage, target, weight = vtrace(same, *given, **options, rho_max=1.0, c_max=1.0)
    expected = gae(*given, **options)
    torch.testing.assert_close(advantage, expected)
    torch.testing.assert_close(target, expected + given[1])
    assert (weight == 1).all()


def two_steps(ratios=(1.0, 1.0), terminated=(0, 0), done=(0, 0), **options):
    """Rewards 1 and 2, values 10 and 20, next values 20 and 30."""
    options = {"gamma": 0.5, "lmbda": 1.0, "rho_max": 1.0, "c_max": 1.0, **options}
    numbers = [torch.tensor(x) for x in ((1.0, 2.0), (10.0, 20.0), (20.0, 30.0))]
    flags = [torch.tensor(x, dtype=torch.bool) for x in (terminated, done)]
    return [
        x.tolist() for x in vtrace(torch.tensor(ratios).log(), *numbers, *flags, **options, dim=0)
    ]


def test_by_hand():
    # errors 1 + 10 - 10 = 1 and 2 + 15 - 20 = -3
    assert two_steps() == [[1 + 0.5 * -3, -3], [10 - 0.5, 17], [1, 1]]
    assert two_steps(done=(0, 1)) == two_steps()  # bootstraps, and sums no further
    # without its bootstrap the last error is -18
    assert two_steps(terminated=(0, 1), done=(0, 1)) == [[1 + 0.5 * -18, -18], [10 - 8, 2], [1, 1]]
    assert two_steps(done=(1, 0)) == [[1, -3], [11, 17], [1, 1]]
    assert two_steps(terminated=(1, 0), done=(1, 0)) == [[-9, -3], [1, 17], [1, 1]]


def test_an_older_policys_steps_count_by_their_ratio():
    advantage, target, weight = two_steps((0.5, 4.0))
    assert weight == pytest.approx([0.5, 1.0])
    assert target == pytest.approx([10 + 0.5 * 1 + 0.5 * 0.5 * -3, 17])
    assert advantage == pytest.approx([1 + 0.5 * (17 - 20), -3])
    _, target, weight = two_steps((0.5, 4.0), rho_max=2.0)
    assert weight == pytest.approx([0.5, 2.0])
    assert target[1] == pytest.approx(20 + 2 * -3)


def test_a_missing_dimension_is_refused():
    log_ratio, *rest = rollout(3, 5, 1)
    options = {"gamma": 0.9, "lmbda": 1.0, "rho_max": 1.0, "c_max": 1.0, "dim": 1}
    with pytest.raises(ValueError, match=r"`log_ratio`, .* must have one shape"):
        vtrace(log_ratio.squeeze(-1), *rest, **options)


def test_below_one_targets_are_the_papers_and_advantages_are_mixed():
    """Remark 2 puts lambda inside c; section 4.2 has the next target alone in the advantage."""
    log_ratio, reward, value, next_value, terminated, done = flowing(4, 9, 1)
    options = {"gamma": 0.9, "rho_max": 1.0, "c_max": 1.0, "dim": 1}
    found = vtrace(log_ratio, reward, value, next_value, terminated, done, lmbda=0.6, **options)
    rho = c = log_ratio.exp().clamp(max=1.0)
    ahead = 0.9 * (~terminated).double()
    delta = rho * (reward + ahead * next_value - value)
    expected = torch.zeros_like(value)
    for t in range(9):  # the sum of equation 1, with products of c_s = lambda min(c_max, pi/mu)
        weight = torch.ones_like(value[:, 0])
        for k in range(t, 9):
            expected[:, t] += weight * delta[:, k]
            weight = weight * 0.9 * 0.6 * c[:, k] * (~done[:, k]).double()
    torch.testing.assert_close(found.target, value + expected)
    later = torch.where(done, next_value, torch.cat([found.target[:, 1:], next_value[:, -1:]], 1))
    papers = reward + ahead * later - value
    assert not torch.allclose(found.advantage, papers)
    whole = vtrace(log_ratio, reward, value, next_value, terminated, done, lmbda=1.0, **options)
    later = torch.where(done, next_value, torch.cat([whole.target[:, 1:], next_value[:, -1:]], 1))
    torch.testing.assert_close(whole.advantage, reward + ahead * later - value)
