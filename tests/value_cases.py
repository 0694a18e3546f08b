"""Networks, batches and comparisons that the tests of losses over discrete actions share."""

from __future__ import annotations

import torch
from sameness import as_written_by
from tensordict import TensorDict
from tensordict.nn import TensorDictModule
from torch import nn
from torch.nn.functional import one_hot
from torchrl.data import Categorical, MultiOneHot, OneHot
from torchrl.modules import OneHotCategorical, ProbabilisticActor, QValueActor

from torchrl_elegant.modules import CategoricalActor, QNetwork

OBS, ACTS, CELLS = 3, 4, 8
SPECS = {
    "one_hot": OneHot(ACTS),
    "categorical": Categorical(ACTS),
    "mult_one_hot": MultiOneHot([2, 2]),
}


def q_network(form="one_hot", num_members=1, **options) -> QNetwork:
    options = {"observation": {"observation": (OBS,)}, "num_cells": (CELLS,), **options}
    net = QNetwork(choices=ACTS, num_members=num_members, form=form, **options)
    with torch.no_grad():
        for name, param in net.named_parameters():
            if "bias" in name:
                param.normal_()
    return net


def categorical_actor(form="one_hot") -> CategoricalActor:
    actor = CategoricalActor(
        observation={"observation": (OBS,)}, choices=ACTS, form=form, num_cells=(CELLS,)
    )
    with torch.no_grad():  # away from the near-zero output it starts with
        actor.net.layers[-1].weight.normal_()
        actor.net.layers[-1].bias.normal_()
    return actor


def perceptron() -> nn.Module:
    return nn.Sequential(nn.Linear(OBS, CELLS), nn.Tanh(), nn.Linear(CELLS, ACTS))


def q_value_actor(form="one_hot", observation="observation", **keys) -> QValueActor:
    """TorchRL's ordinary Q network."""
    if form == "mult_one_hot":
        # Its constructor does not take the number of choices of each part.
        actor = QValueActor(perceptron(), in_keys=[observation], action_space=form)
        actor.module[1].var_nums = [2, 2]
        return actor
    return QValueActor(perceptron(), in_keys=[observation], spec=SPECS[form], **keys)


def torchrl_networks(form="one_hot", observation="observation", action="action", value=None):
    """TorchRL's ordinary actor over categories, and a network of action values."""
    actor = ProbabilisticActor(
        TensorDictModule(perceptron(), in_keys=[observation], out_keys=["logits"]),
        in_keys=["logits"],
        out_keys=[action],
        distribution_class=OneHotCategorical
        if form == "one_hot"
        else torch.distributions.Categorical,
    )
    values = TensorDictModule(
        perceptron(), in_keys=[observation], out_keys=[value or "action_value"]
    )
    return actor, values


def make_batch(*shape: int, form="one_hot") -> TensorDict:
    """Random transitions, some terminated, some only truncated."""
    shape = shape or (24,)
    terminated = torch.rand(*shape, 1) < 0.2
    truncated = (torch.rand(*shape, 1) < 0.2) & ~terminated
    after = {
        "observation": torch.randn(*shape, OBS),
        "reward": torch.randn(*shape, 1),
        "terminated": terminated,
        "truncated": truncated,
        "done": terminated | truncated,
    }
    index = torch.randint(ACTS, shape)
    action = {
        "one_hot": one_hot(index, ACTS),
        "categorical": index,
        "mult_one_hot": torch.cat([one_hot(index % 2, 2), one_hot(index // 2, 2)], -1),
    }[form]
    now = {"observation": torch.randn(*shape, OBS), "action": action}
    return TensorDict({**now, "next": after}, batch_size=shape)


def move_targets(loss) -> None:
    """Give the targets values of their own."""
    for name, module in loss._modules.items():
        if name.startswith("target_"):
            for value in module.values(True, True):
                value.data.add_(0.5 * torch.randn_like(value))


def twins(theirs, ours, make, **options):
    """TorchRL's loss and ours over networks of the same architecture and values."""
    first, second = theirs(*make(), **options), ours(*make(), **options)
    move_targets(first)
    second.load_state_dict(first.state_dict())
    return first, second


def gradients(loss, out) -> dict[str, torch.Tensor | None]:
    """Gradient of the summed loss terms, by parameter name."""
    loss.zero_grad(set_to_none=True)
    terms = [value.sum() for name, value in out.items() if name.startswith("loss")]
    sum(terms[1:], terms[0]).backward()
    return {name: param.grad for name, param in loss.named_parameters()}


def assert_equal_losses(theirs, ours, batch) -> None:
    """Same terms, priorities and gradients; nothing else is written."""
    batch_a, batch_b = batch.clone(), batch.clone()
    expected, actual = theirs(batch_a), ours(batch_b)
    assert set(expected.keys()) == set(actual.keys())
    close = {"atol": 1e-5, "rtol": 1e-5}
    torch.testing.assert_close(actual.to_dict(), expected.to_dict(), **close)
    key = theirs.tensor_keys.priority
    priority = as_written_by(theirs, batch_b.get(key))
    torch.testing.assert_close(priority, batch_a.get(key), **close)
    known = batch.keys(True, True)
    assert {name for name in batch_b.keys(True, True) if name not in known} == {key}
    wanted, found = gradients(theirs, expected), gradients(ours, actual)
    assert wanted.keys() == found.keys()
    for name, grad in wanted.items():
        torch.testing.assert_close(found[name], grad, msg=name, **close)
