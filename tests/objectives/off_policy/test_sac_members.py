"""Random subsets of target members."""

from __future__ import annotations

import pytest
import torch
from sac_cases import lean_loss, make_batch, seeded

pytestmark = pytest.mark.filterwarnings("ignore:No target network updater")


def member_targets(loss, batch):
    """The target that each member alone would give, on one draw of noise."""
    found = []
    for member in range(loss.num_qvalue_nets):
        target = loss.target_qvalue_network_params
        kept = target.clone()
        target.data.copy_(kept[:].apply(lambda x, m=member: x[m].expand_as(x).clone()))
        torch.manual_seed(0)
        found.append(loss.qvalue_loss(batch)[1]["target"])
        target.data.copy_(kept)
    return torch.stack(found)


def test_all_members_are_the_minimum():
    batch = make_batch()
    loss, named = lean_loss(4), lean_loss(4, target_members=4)
    named.load_state_dict(loss.state_dict())
    left, right = seeded(loss, batch)[0], seeded(named, batch)[0]
    torch.testing.assert_close(left.to_dict(), right.to_dict(), atol=0.0, rtol=0.0)


def test_target_is_the_minimum_over_members():
    loss, batch = lean_loss(4), make_batch()
    torch.manual_seed(0)
    target = loss.qvalue_loss(batch)[1]["target"]
    torch.testing.assert_close(target, member_targets(loss, batch).amin(0))


def test_each_member_is_drawn_equally_often():
    loss = lean_loss(4, target_members=1, fixed_alpha=True, alpha_init=1e-12)
    for i in range(2):  # constant members with values 0, 1, 2, 3
        loss.target_qvalue_network_params["net", f"weight_{i}"].data.zero_()
    loss.target_qvalue_network_params["net", "bias_1"].data.copy_(torch.arange(4.0).view(4, 1, 1))
    loss.make_value_estimator(gamma=1.0)
    batch = make_batch(2)
    batch["next", "reward"].zero_()
    batch["next", "terminated"].zero_()
    draws = [loss.qvalue_loss(batch)[1]["target"].round() for _ in range(800)]
    assert all(draw[0] == draw[1] for draw in draws)  # the batch shares its subset
    counts = torch.bincount(torch.stack(draws)[:, 0].long(), minlength=4)
    assert counts.sum() == 800
    # four standard deviations of a binomial with p = 1/4
    assert ((counts - 200).abs() < 4 * (800 * 3 / 16) ** 0.5).all()


@pytest.mark.parametrize("how", ["min", "mean"])
def test_what_the_actor_raises(how):
    loss, batch = lean_loss(4, actor_q=how), make_batch()
    torch.manual_seed(0)
    value, metadata = loss.actor_loss(batch)
    torch.manual_seed(0)
    action, log_prob = loss.actor_network.sample([batch["observation"]])
    values = loss.qvalue_network.values([batch["observation"]], action)
    reduced = values.mean(0) if how == "mean" else values.amin(0)
    torch.testing.assert_close(value, (log_prob - reduced).mean())
    torch.testing.assert_close(metadata["log_prob"], log_prob)
