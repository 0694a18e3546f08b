"""Networks that are called directly compute with the parameters that are assigned to their loss."""

from __future__ import annotations

from functools import partial

import pytest
import torch
from deterministic_cases import lean_ddpg, lean_td3
from ppo_cases import lean_nets, make_rows
from sac_cases import lean_loss, make_batch, seeded
from value_cases import categorical_actor, q_network
from value_cases import make_batch as make_choices

from torchrl_elegant.objectives import A2CLoss, ClipPPOLoss, DiscreteSACLoss, DQNLoss, REDQLoss

pytestmark = pytest.mark.filterwarnings("ignore:No target network updater")


CASES = {
    "ddpg": (partial(lean_ddpg, delay_actor=True), make_batch),
    "td3": (lean_td3, make_batch),
    "sac": (partial(lean_loss, 3), make_batch),
    "redq": (partial(lean_loss, 5, loss=REDQLoss), make_batch),
    "dqn": (lambda: DQNLoss(q_network()), make_choices),
    "discrete_sac": (
        lambda: DiscreteSACLoss(categorical_actor(), q_network(num_members=2)),
        make_choices,
    ),
    "ppo": (lambda: ClipPPOLoss(*lean_nets()), None),
    "a2c": (lambda: A2CLoss(*lean_nets()), None),
}


@pytest.mark.parametrize("name", CASES)
def test_assigned_parameters_are_computed_with_and_trained(name):
    make, rows = CASES[name]
    source, loss = make(), make()
    names = [one for one in source._modules if one.endswith("_network_params")]
    for one in names:
        source._modules[one].data.add_(0.1)
    batch = make_rows(source.actor_network) if rows is None else rows()
    expected = seeded(source, batch)[0].detach().to_dict()
    assert str(seeded(loss, batch)[0].detach().to_dict()) != str(expected)
    for one in names:
        setattr(loss, one, source._modules[one])
    out = seeded(loss, batch)[0]
    torch.testing.assert_close(out.detach().to_dict(), expected, atol=0.0, rtol=0.0)
    sum(value for key, value in out.items() if key.startswith("loss")).backward()
    assert all(
        param.grad is not None
        for one in names
        if not one.startswith("target_")
        for param in loss._modules[one].parameters()
    )
