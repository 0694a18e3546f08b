"""What a TorchRL user builds by hand before collecting with or training a 64x64 tanh policy."""

from __future__ import annotations

from functools import partial

import torch
from tensordict.nn import AddStateIndependentNormalScale, TensorDictModule
from torch import nn
from torchrl.envs import DoubleToFloat, EnvBase, ExplorationType, GymEnv, SerialEnv, TransformedEnv
from torchrl.modules import (
    MLP,
    IndependentNormal,
    OneHotCategorical,
    ProbabilisticActor,
    ValueOperator,
)

CELLS = [64, 64]


def gym_envs(name: str, count: int, *, threads: int) -> EnvBase:
    """``GymEnv`` for one environment, ``SerialEnv`` over it for more, in single precision."""
    one = partial(GymEnv, name)
    base = one() if count == 1 else SerialEnv(count, one, num_threads=threads)
    env = TransformedEnv(base, DoubleToFloat()) if _is_double(base) else base
    env.reset()
    # SerialEnv sets it for the whole process when it starts.
    torch.set_num_threads(threads)
    return env


def _is_double(env: EnvBase) -> bool:
    return env.observation_spec["observation"].dtype == torch.float64


def actor(env: EnvBase) -> ProbabilisticActor:
    """Gaussian with a spread of its own, or one-hot categorical, with log-probabilities."""
    spec, features = env.action_spec, env.observation_spec["observation"].shape[-1]
    net = MLP(
        in_features=features,
        out_features=spec.shape[-1],
        num_cells=CELLS,
        activation_class=nn.Tanh,
    )
    if spec.dtype.is_floating_point:
        net = nn.Sequential(net, AddStateIndependentNormalScale(spec.shape[-1]))
        names, distribution = ["loc", "scale"], IndependentNormal
    else:
        names, distribution = ["logits"], OneHotCategorical
    return ProbabilisticActor(
        TensorDictModule(net, ["observation"], names),
        spec=spec,
        in_keys=names,
        distribution_class=distribution,
        return_log_prob=True,
        default_interaction_type=ExplorationType.RANDOM,
    )


def critic(env: EnvBase) -> ValueOperator:
    features = env.observation_spec["observation"].shape[-1]
    net = MLP(in_features=features, out_features=1, num_cells=CELLS, activation_class=nn.Tanh)
    return ValueOperator(net, in_keys=["observation"])
