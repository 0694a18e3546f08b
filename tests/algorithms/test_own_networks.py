"""Networks of one's own in a configuration."""

from __future__ import annotations

import pytest
import torch

from torchrl_elegant.algorithms import (
    D3QNConfig,
    DoubleDQNConfig,
    DQNConfig,
    PPOConfig,
    SACConfig,
)
from torchrl_elegant.envs import make_env


@pytest.mark.parametrize(
    ("config", "networks", "message"),
    [
        (SACConfig, {"actr": torch.nn.Linear(3, 2)}, "`networks` must be for actor or critic, got"),
        (DQNConfig, {"actor": torch.nn.Linear(3, 2)}, "`networks` must be for critic, got `actor`"),
        (
            SACConfig,
            {"actor": 3},
            "a callable that makes one, for the actor, got `3`",
        ),
    ],
)
def test_networks_of_ones_own_are_checked(config, networks, message):
    with pytest.raises(ValueError, match=message):
        config(networks=networks)


def test_sizes_that_no_network_has_are_refused():
    both = {"actor": torch.nn.Linear(3, 2), "critic": torch.nn.Linear(4, 1)}
    with pytest.raises(ValueError, match=r"`num_cells` must stay .* networks of its own"):
        SACConfig(num_cells=(8,), networks=both)
    with pytest.raises(ValueError, match=r"`layer_norm` must stay none with networks of its own"):
        SACConfig(layer_norm="critics", networks=both)


@pytest.mark.parametrize(
    ("config", "env", "message"),
    [
        (
            PPOConfig(log_std=-1.0, networks={"actor": torch.nn.Linear(3, 2)}),
            "Pendulum-v1",
            r"`log_std` must stay 0\.0 with an actor of one's own",
        ),
        (
            DoubleDQNConfig(twin=True, networks={"critic": torch.nn.Linear(4, 2)}),
            "CartPole-v1",
            "`twin` must be false with a critic of one's own",
        ),
        (
            D3QNConfig(networks={"critic": torch.nn.Linear(4, 2)}),
            "CartPole-v1",
            "`networks` must leave the critic of d3qn .* choose algorithm=dqn or double_dqn",
        ),
        (
            SACConfig(networks={"actor": lambda env: 1 / 0}),
            "Pendulum-v1",
            r"`networks` must make the actor .* got ZeroDivisionError: division by zero",
        ),
        (
            SACConfig(networks={"actor": torch.nn.Linear(4, 2)}),
            "CartPole-v1",
            "needs a continuous action space",
        ),
        (
            DQNConfig(networks={"critic": torch.nn.Linear(3, 2)}),
            "Pendulum-v1",
            "must value one choice among several",
        ),
    ],
)
def test_what_cannot_be_built_is_named(config, env, message):
    made = make_env(env)
    with pytest.raises(ValueError, match=message):
        config.build(made)
