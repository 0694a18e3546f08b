"""Networks that are called directly compute with the parameters that are assigned to their loss."""

from __future__ import annotations

import pytest
import torch
from loss_cases import CASES
from ppo_cases import make_rows
from sac_cases import seeded

pytestmark = pytest.mark.filterwarnings("ignore:No target network updater")


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
