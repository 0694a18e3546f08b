"""A recording is not used for a loss that has changed since."""

from __future__ import annotations

import pytest
import torch
from sac_cases import OBS, lean_loss, make_batch
from tensordict import TensorDict
from torch import nn
from torchrl.objectives import LossModule
from torchrl.objectives import SACLoss as TorchRLSACLoss
from torchrl_nets import ACT, critic, gaussian_actor, mlp

from torchrl_elegant.objectives import CompiledLoss, SACLoss
from torchrl_elegant.objectives.common.whole_loss import as_update_loss
from torchrl_elegant.objectives.compiled.parts import Parts

pytestmark = pytest.mark.filterwarnings("ignore:No target network updater")


class Dropping(LossModule):
    """A loss of a third party, whose network draws what it leaves out."""

    in_keys, out_keys = ("observation",), ("loss_own",)

    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(OBS, 8), nn.Dropout(0.5), nn.Linear(8, 1))
        self.scale = nn.Parameter(torch.tensor(2.0))
        self.size = (3, 1.0)

    def forward(self, tensordict):
        says = self.scale * self.size[1] * self.net(tensordict["observation"])
        return TensorDict({"loss_own": says.square().mean()}, [])


def dropping_actor():
    return gaussian_actor(body=mlp(OBS, 2 * ACT, dropout=0.5))


LOSSES = {
    "own": Dropping,
    "ours": lean_loss,
    "ours, dropping": lambda: SACLoss(dropping_actor(), critic()),
    "torchrl": lambda: TorchRLSACLoss(gaussian_actor(), critic()),
    "torchrl, dropping": lambda: TorchRLSACLoss(dropping_actor(), critic()),
}


def made(name):
    torch.manual_seed(0)
    loss = LOSSES[name]()
    batch = make_batch()
    batch.set(("next", "other"), 2.0 + batch["next", "reward"])
    return loss, CompiledLoss(loss), batch


def terms_of(loss, compiled, batch):
    """Terms by the loss itself, which with their gradients are those of the compiled one."""
    found = []
    for backward in (as_update_loss(loss).backward_terms, compiled.backward_terms):
        loss.zero_grad()
        torch.manual_seed(4)
        terms = {name: value.detach() for name, value in backward(batch.clone()).items()}
        grads = {name: p.grad.clone() for name, p in loss.named_parameters() if p.grad is not None}
        found.append((terms, grads))
    torch.testing.assert_close(found[1], found[0], rtol=1e-4, atol=1e-5)
    return torch.stack(list(found[0][0].values()))


def other_number(loss):
    loss.size = (3, 0.5)


def equal_parameter(loss):
    loss.scale = nn.Parameter(loss.scale.detach().clone())


def one_layer_more(loss):
    loss.net.append(nn.Tanh())


def one_layer_less(loss):
    del loss.net[2:]


CHANGES = {
    "mode": ("own", lambda loss: loss.eval()),
    "mode of a part": ("own", lambda loss: loss.net[1].eval()),
    "one layer more": ("own", one_layer_more),
    "one layer less": ("own", one_layer_less),
    "number": ("own", other_number),
    "hidden mode": ("ours, dropping", lambda loss: loss.actor_network.eval()),
    "hidden mode, TorchRL's": ("torchrl, dropping", lambda loss: loss.actor_network.eval()),
    "keys": ("ours", lambda loss: loss.set_keys(reward="other")),
    "keys, TorchRL's": ("torchrl", lambda loss: loss.set_keys(reward="other")),
    "discount": ("ours", lambda loss: loss.make_value_estimator(gamma=0.5)),
    "discount, TorchRL's": ("torchrl", lambda loss: loss.make_value_estimator(gamma=0.5)),
}


@pytest.mark.parametrize("change", CHANGES)
def test_what_changes_the_terms_is_recorded_again(change, graphs):
    name, apply = CHANGES[change]
    loss, compiled, batch = made(name)
    before = terms_of(loss, compiled, batch)
    apply(loss)
    after = terms_of(loss, compiled, batch)
    assert not torch.allclose(before, after)
    assert len(graphs) == 2
    terms_of(loss, compiled, batch)
    assert len(graphs) == 2


def test_an_equal_parameter_in_the_place_of_another_gets_the_gradient(graphs):
    loss, compiled, batch = made("own")
    before = terms_of(loss, compiled, batch)
    equal_parameter(loss)
    torch.testing.assert_close(terms_of(loss, compiled, batch), before)
    assert len(graphs) == 2


@pytest.mark.parametrize("name", LOSSES)
def test_parameters_that_are_put_in_for_a_while_are_computed_with(name, graphs):
    loss, compiled, batch = made(name)
    before = terms_of(loss, compiled, batch)
    own = TensorDict.from_module(loss)
    others = own.apply(lambda x: (1.5 * x.detach()).requires_grad_(x.requires_grad))
    with others.to_module(loss):
        inside = terms_of(loss, compiled, batch)
    assert not torch.allclose(inside, before)
    torch.testing.assert_close(terms_of(loss, compiled, batch), before, rtol=0, atol=0)
    assert len(graphs) == 3


def test_numbers_that_training_moves_are_no_change(graphs):
    loss, compiled, batch = made("ours")
    for _ in range(3):
        terms_of(loss, compiled, batch)
        with torch.no_grad():
            for tensor in (*loss.parameters(), *loss.buffers()):
                if tensor.is_floating_point():
                    tensor.mul_(1.01)
    assert len(graphs) == 1


@pytest.mark.parametrize("last", [False, True])
def test_one_more_or_less_in_the_last_table_is_seen(last):
    module = nn.Sequential(nn.Linear(2, 1), nn.Linear(2, 1))
    parts = Parts(module)
    assert parts.are_the_same()
    part = module[1] if last else module[0]
    part.register_parameter("more", nn.Parameter(torch.ones(1)))
    assert not parts.are_the_same()
    del part._parameters["more"]
    assert parts.are_the_same()
    del part._parameters["bias"]
    assert not parts.are_the_same()
