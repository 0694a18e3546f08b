"""TorchRL's usual networks, as its example scripts build them."""

from __future__ import annotations

import torch
from sac_cases import ACT, CELLS, OBS
from tensordict.nn import (
    AddStateIndependentNormalScale,
    NormalParamExtractor,
    TensorDictModule,
    TensorDictSequential,
)
from torch import nn
from torchrl.data import Bounded
from torchrl.modules import MLP, Actor, ProbabilisticActor, TanhModule, TanhNormal, ValueOperator

LOW, HIGH = torch.tensor([-2.0, -1.0]), torch.tensor([1.0, 3.0])
UNIT = (-torch.ones(ACT), torch.ones(ACT))


def mlp(inputs: int, outputs: int, **options) -> MLP:
    options = {"activation_class": nn.ReLU, "num_cells": [CELLS, CELLS], **options}
    return MLP(in_features=inputs, out_features=outputs, **options)


def gaussian_actor(bounds=(LOW, HIGH), state_independent=False, body=None, **kwargs):
    """Actor with a TanhNormal."""
    body = body or mlp(OBS, ACT if state_independent else 2 * ACT)
    scale = AddStateIndependentNormalScale(ACT) if state_independent else NormalParamExtractor()
    low, high = bounds
    return ProbabilisticActor(
        TensorDictModule(
            nn.Sequential(body, scale), in_keys=["observation"], out_keys=["loc", "scale"]
        ),
        in_keys=["loc", "scale"],
        spec=Bounded(low, high),
        distribution_class=TanhNormal,
        distribution_kwargs={"low": low, "high": high, **kwargs},
    )


def deterministic_actor(bounds=(LOW, HIGH), body=None):
    """Perceptron before a TanhModule."""
    first = TensorDictModule(body or mlp(OBS, ACT), in_keys=["observation"], out_keys=["param"])
    spec = Bounded(*bounds)
    return TensorDictSequential(
        first, TanhModule(in_keys=["param"], out_keys=["action"], spec=spec)
    )


def plain_actor():
    """``Actor`` whose last layer is a tanh."""
    net = nn.Sequential(nn.Linear(OBS, CELLS), nn.ELU(), nn.Linear(CELLS, ACT), nn.Tanh())
    return Actor(net, in_keys=["observation"], spec=Bounded(*UNIT))


def critic(body=None):
    """Q network over action and observation."""
    return ValueOperator(body or mlp(OBS + ACT, 1), in_keys=["action", "observation"])
