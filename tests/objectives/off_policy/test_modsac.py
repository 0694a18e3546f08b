"""ModSAC's loss: the critic error and the pull of the standard deviation."""

from __future__ import annotations

import math

import pytest
import torch
from sac_cases import lean_critic, lean_loss, make_batch, seeded, torchrl_actor

from torchrl_elegant.objectives import ModSACLoss, SACLoss

pytestmark = pytest.mark.filterwarnings("ignore:No target network updater")


def modsac(num_critics=3, **options):
    return lean_loss(num_critics, loss=ModSACLoss, **options)


def test_is_sac_with_the_mean():
    loss, plain, batch = modsac(), lean_loss(3, actor_q="mean"), make_batch()
    plain.load_state_dict(loss.state_dict(), strict=False)
    actual, expected = seeded(loss, batch)[0], seeded(plain, batch)[0]
    assert set(actual.keys()) - set(expected.keys()) == {"critic_error"}
    torch.testing.assert_close(actual.exclude("critic_error").to_dict(), expected.to_dict())
    assert loss.out_keys == [*plain.out_keys, "critic_error"]


def scaled(scale):
    """The loss and its batch in a world whose rewards are ``scale`` times as large."""
    torch.manual_seed(5)
    loss, batch = modsac(loss_function="l2"), make_batch()
    batch["next", "reward"] *= scale
    loss.log_alpha.data += torch.tensor(float(scale)).log()
    for params in (loss.qvalue_network_params, loss._modules["target_qvalue_network_params"]):
        for kind in ("weight_1", "bias_1"):
            params["net", kind].data *= scale
    return loss, batch


def test_critic_error_knows_no_scale():
    errors = [
        [seeded(loss, batch, seed)[0]["critic_error"] for seed in range(4)]
        for loss, batch in (scaled(1.0), scaled(1000.0))
    ]
    torch.testing.assert_close(errors[0], errors[1], rtol=1e-3, atol=1e-5)
    assert all(error > 0 for error in errors[0])


@pytest.mark.parametrize("decay", [0.1, 0.7])
def test_running_variance_and_error(decay):
    loss, expected = modsac(decay=decay), None
    for update in range(1, 6):
        batch = make_batch()
        torch.manual_seed(update)
        metadata = loss.qvalue_loss(batch)[1]
        variance = metadata["target"].var(correction=0)
        rate = max(1.0 / update, 1.0 - decay)
        expected = variance if expected is None else (1 - rate) * expected + rate * variance
        out = seeded(loss, batch, update)[0]
        torch.testing.assert_close(loss.target_variance, expected)
        value = loss.qvalue_network.values([batch["observation"]], batch["action"])
        error = (value - metadata["target"]).square().mean() / expected
        torch.testing.assert_close(out["critic_error"], error.detach())
        assert not out["critic_error"].requires_grad


def test_constant_targets_give_a_finite_error():
    loss, batch = modsac(), make_batch()
    batch["next", "terminated"].fill_(True)
    batch["next", "reward"].fill_(1.0)
    assert torch.isfinite(loss(batch)["critic_error"])


def constant_std(loss, log_std):
    """Make the policy's log standard deviation this, everywhere."""
    layer = loss.actor_network.net.layers[-1]
    layer.weight.data.zero_()
    layer.bias.data[2:] = torch.tensor(log_std)


def test_std_regularization_by_hand():
    loss = modsac(std_regularization=0.25)
    constant_std(loss, [0.0, 0.0])
    loss.observe(make_batch())
    torch.testing.assert_close(loss.mean_std, torch.ones(2))
    # sigma = (1.5, 4) against a mean of (1, 1): 0.5^2 / 2 and 3 - 1/2, averaged
    constant_std(loss, [1.5, 4.0])
    loss.actor_network.net.layers[-1].bias.data[2:] = torch.tensor([1.5, 4.0]).log()
    batch = make_batch()
    torch.manual_seed(0)
    plain = SACLoss.actor_terms(loss, batch)["loss_actor"]
    torch.manual_seed(0)
    pull = (loss.actor_terms(batch)["loss_actor"] - plain) / 0.25
    torch.testing.assert_close(pull, torch.tensor((0.125 + 2.5) / 2))
    bias = loss.actor_network.net.layers[-1].bias
    grad = torch.autograd.grad(pull, bias)[0][2:]
    # d/d log sigma = sigma * clamp(sigma - 1, 1) / 2
    torch.testing.assert_close(grad, torch.tensor([1.5 * 0.5 / 2, 4.0 * 1.0 / 2]))


@pytest.mark.parametrize(
    ("decay", "means"),
    [
        (0.1, (1.0, 0.1 * 1.0 + 0.9 * 3.0, 0.1 * 2.8 + 0.9 * 7.0)),
        (0.6, (1.0, (1.0 + 3.0) / 2, 0.6 * 2.0 + 0.4 * 7.0)),  # the first ones' plain average
    ],
)
def test_observe_is_a_running_mean(decay, means):
    loss = modsac(std_regularization=0.1, decay=decay)
    for std, expected in zip((1.0, 3.0, 7.0), means, strict=True):
        constant_std(loss, [math.log(std)] * 2)
        loss.observe(make_batch(2, 5))
        torch.testing.assert_close(loss.mean_std, torch.full((2,), expected))
    assert not loss.mean_std.requires_grad


def test_nothing_is_pulled_before_anything_is_observed():
    loss, batch = modsac(std_regularization=0.5), make_batch()
    torch.manual_seed(0)
    plain = SACLoss.actor_terms(loss, batch)["loss_actor"]
    torch.manual_seed(0)
    assert loss.actor_terms(batch)["loss_actor"] == plain


def test_observe_without_a_pull_does_nothing():
    loss = modsac()
    before = {name: value.clone() for name, value in loss.state_dict().items()}
    loss.observe(make_batch())
    assert all(torch.equal(value, before[name]) for name, value in loss.state_dict().items())


@pytest.mark.parametrize("scalars", ["exclude", "non_tensor"])
def test_no_reduction(scalars):
    loss = modsac(reduction="none", scalar_output_mode=scalars, std_regularization=0.1)
    loss.observe(make_batch())
    out = loss(make_batch(4, 6))
    assert out["loss_actor"].shape == out["loss_qvalue"].shape == (4, 6)
    assert ("critic_error" in out) == (scalars == "non_tensor")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"std_regularization": -1.0}, "`std_regularization` must not be negative, got `-1.0`"),
        ({"decay": 1.0}, r"`decay` must lie in \[0, 1\), got `1.0`"),
    ],
)
def test_refusals(options, message):
    with pytest.raises(ValueError, match=message):
        modsac(**options)


def test_std_regularization_needs_an_actor_that_shows_its_std():
    with pytest.raises(ValueError, match="only a SquashedGaussianActor"):
        ModSACLoss(torchrl_actor(), lean_critic(), std_regularization=0.1)
