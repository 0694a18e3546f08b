"""Networks, rollouts and comparisons that the tests of PPO and A2C share."""

from __future__ import annotations

from copy import deepcopy

import torch
from tensordict import TensorDict
from tensordict.nn import TensorDictModule
from torch import nn
from torchrl import objectives as torchrl_objectives
from torchrl.modules import NormalParamExtractor, ProbabilisticActor, TanhNormal, ValueOperator

from torchrl_elegant.modules import (
    CategoricalActor,
    GaussianActor,
    MultiCategoricalActor,
    StateValue,
    StochasticActor,
)
from torchrl_elegant.objectives import ClipPPOLoss

OBS, ACT, CELLS = 4, 3, 8
ACTORS = ("gaussian", "one_hot", "categorical", "multi")


def make_actor(kind="gaussian", observation=None, **options) -> StochasticActor:
    options = {
        "observation": observation or {"observation": (OBS,)},
        "num_cells": (CELLS,),
        **options,
    }
    if kind == "gaussian":
        actor = GaussianActor(action_shape=options.pop("action_shape", (ACT,)), **options)
    elif kind == "multi":
        actor = MultiCategoricalActor(choices=(ACT, 2), **options)
    else:
        actor = CategoricalActor(choices=ACT, form=kind, **options)
    with torch.no_grad():  # away from the near-zero output it starts with
        actor.net.layers[-1].weight.normal_()
        actor.net.layers[-1].bias.normal_()
    return actor


def make_value(observation=None, **options) -> StateValue:
    observation = observation or {"observation": (OBS,)}
    return StateValue(observation=observation, num_cells=(CELLS,), **options)


def lean_nets(kind="gaussian"):
    return make_actor(kind), make_value()


def torchrl_nets():
    net = nn.Sequential(nn.Linear(OBS, 2 * ACT), NormalParamExtractor())
    actor = ProbabilisticActor(
        TensorDictModule(net, in_keys=["observation"], out_keys=["loc", "scale"]),
        in_keys=["loc", "scale"],
        distribution_class=TanhNormal,
        return_log_prob=True,
    )
    return actor, ValueOperator(nn.Linear(OBS, 1), in_keys=["observation"])


@torch.no_grad()
def make_rollout(actor, *shape: int) -> TensorDict:
    """Random steps of ``actor``, some terminated, some only truncated."""
    terminated = torch.rand(*shape, 1) < 0.15
    done = terminated | (torch.rand(*shape, 1) < 0.15)
    page = actor(TensorDict({"observation": torch.randn(*shape, OBS)}, shape))
    page["next"] = TensorDict(
        {
            "observation": torch.randn(*shape, OBS),
            "reward": torch.randn(*shape, 1),
            "terminated": terminated,
            "done": done,
        },
        shape,
    )
    return page


@torch.no_grad()
def make_rows(actor, *shape: int) -> TensorDict:
    """Rows of an older policy, so that ratios lie on both sides of every bound."""
    shape = shape or (40,)
    rows = make_rollout(actor, *shape)
    rows["action_log_prob"] += 0.3 * torch.randn(shape)
    for name in ("advantage", "value_target", "state_value"):
        rows[name] = torch.randn(*shape, 1)
    return rows


def twins(make_networks=lean_nets, loss=ClipPPOLoss, **options):
    """TorchRL's loss and ours over equal networks."""
    actor, critic = make_networks()
    theirs = getattr(torchrl_objectives, loss.__name__)
    return theirs(deepcopy(actor), deepcopy(critic), **options), loss(actor, critic, **options)


def summed(out) -> torch.Tensor:
    return sum(value.sum() for name, value in out.items() if name.startswith("loss_"))


def gradients(loss, out) -> dict[str, torch.Tensor | None]:
    """Gradient of the summed loss terms, by parameter name."""
    loss.zero_grad(set_to_none=True)
    summed(out).backward()
    return {name: param.grad for name, param in loss.named_parameters()}


def assert_equal_losses(theirs, ours, rows, atol=1e-5) -> None:
    """Same entries of the same shapes, and same gradients."""
    expected, found = theirs(rows.clone()), ours(rows.clone())
    assert set(found.keys()) == set(expected.keys())
    for name in expected.keys():  # noqa: SIM118 (a TensorDict)
        torch.testing.assert_close(found[name], expected[name], atol=atol, rtol=1e-5, msg=name)
    wanted, got = gradients(theirs, expected), gradients(ours, found)
    assert list(wanted) == list(got)
    for name, grad in wanted.items():
        assert (grad is None) == (got[name] is None), name
        if grad is not None:
            torch.testing.assert_close(got[name], grad, atol=atol, rtol=1e-4, msg=name)
