"""Mixers: never worse for the team than for an agent, and as in TorchRL where both exist."""

from __future__ import annotations

import pytest
import torch
from torchrl.modules.models import multiagent

from torchrl_elegant.modules.multiagent import QMixer


@pytest.mark.parametrize("hypernet_dim", [0, 64])
def test_a_better_agent_is_never_a_worse_team(hypernet_dim):
    torch.manual_seed(0)
    mixer = QMixer(state_shape=(5,), n_agents=4, hypernet_dim=hypernet_dim)
    values = torch.randn(200, 4, 1, requires_grad=True)
    total = mixer(values, torch.randn(200, 5) * 3)
    (slopes,) = torch.autograd.grad(total.sum(), values)
    assert (slopes >= 0).all()
    assert (slopes > 0).any()


def test_without_a_hidden_layer_it_is_torchrls():
    torch.manual_seed(0)
    ours = QMixer(state_shape=(2, 3), n_agents=3, mixing_embed_dim=8, hypernet_dim=0)
    theirs = multiagent.QMixer(state_shape=(2, 3), n_agents=3, mixing_embed_dim=8, device="cpu")
    theirs.load_state_dict(ours.state_dict())
    values, state = torch.randn(4, 7, 3, 1), torch.randn(4, 7, 2, 3)
    torch.testing.assert_close(ours(values, state), theirs(values, state))


def test_its_value_by_hand():
    mixer = QMixer(state_shape=(1,), n_agents=2, mixing_embed_dim=1, hypernet_dim=0)
    with torch.no_grad():
        mixer.hyper_w_1.weight.copy_(torch.tensor([[-2.0], [3.0]]))
        mixer.hyper_w_final.weight.copy_(torch.tensor([[-4.0]]))
        for each in (mixer.hyper_w_1, mixer.hyper_w_final, mixer.hyper_b_1):
            each.bias.zero_()
        mixer.hyper_b_1.weight.fill_(0.5)
        for part in mixer.V:
            if hasattr(part, "weight"):
                part.weight.fill_(1.0)
                part.bias.fill_(1.0)
    # |-2| 1 + |3| 2 + 0.5 = 8.5, times |-4|; V(1) = relu(1 + 1) + 1 = 3.
    total = mixer(torch.tensor([[[1.0], [2.0]]]), torch.ones(1, 1))
    assert total.item() == 8.5 * 4 + 3
