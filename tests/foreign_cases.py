"""Networks as users of TorchRL write them, for Pendulum-v1 and CartPole-v1."""

from __future__ import annotations

from typing import Any

from tensordict.nn import TensorDictModule
from torch import nn
from torchrl.modules import (
    MLP,
    Actor,
    NormalParamExtractor,
    ProbabilisticActor,
    QValueActor,
    TanhNormal,
    ValueOperator,
)

SEEN = ["observation"]


def stochastic(env: Any = None, **options: Any) -> ProbabilisticActor:
    body = nn.Sequential(nn.Linear(3, 8), nn.LayerNorm(8), nn.SiLU(), nn.Linear(8, 2))
    net = nn.Sequential(body, NormalParamExtractor())
    return ProbabilisticActor(
        TensorDictModule(net, SEEN, ["loc", "scale"]),
        in_keys=["loc", "scale"],
        distribution_class=TanhNormal,
        **options,
    )


def with_log_prob(env: Any) -> ProbabilisticActor:
    return stochastic(return_log_prob=True)


def deterministic(env: Any) -> Actor:
    return Actor(nn.Sequential(nn.Linear(3, 8), nn.ReLU(), nn.Linear(8, 1), nn.Tanh()), SEEN)


def critic(env: Any) -> ValueOperator:
    return ValueOperator(MLP(in_features=4, out_features=1, num_cells=[8]), [*SEEN, "action"])


def value(env: Any) -> ValueOperator:
    return ValueOperator(MLP(in_features=3, out_features=1, num_cells=[8]), SEEN)


def q_values(env: Any) -> QValueActor:
    net = MLP(in_features=4, out_features=2, num_cells=[8])
    return QValueActor(net, in_keys=SEEN, spec=env.action_spec)
