"""Configurations of algorithms over discrete actions, and what they build."""

from __future__ import annotations

import pytest
import torch

from torchrl_elegant.algorithms import (
    ALGORITHMS,
    D3QNConfig,
    DiscreteSACConfig,
    DoubleDQNConfig,
    DQNConfig,
    DuelingDQNConfig,
    that_take,
)
from torchrl_elegant.config.options import options_of
from torchrl_elegant.envs import make_env
from torchrl_elegant.modules import DuelingMLP, EnsembleMLP, FixedTemperature
from torchrl_elegant.objectives import LeanHardUpdate, LeanSoftUpdate
from torchrl_elegant.trainers.learner import Learner

NAMES = {
    "dqn": DQNConfig,
    "double_dqn": DoubleDQNConfig,
    "dueling_dqn": DuelingDQNConfig,
    "d3qn": D3QNConfig,
    "discrete_sac": DiscreteSACConfig,
}
CONFIGS = pytest.mark.parametrize("config", NAMES.values(), ids=NAMES)
VALUE = pytest.mark.parametrize("config", list(NAMES.values())[:4], ids=list(NAMES)[:4])


def build(config, **options):
    return config(num_cells=(8,), **options).build(make_env("CartPole-v1"))


def test_registry():
    assert NAMES.items() <= ALGORITHMS.items()
    assert set(NAMES) <= set(that_take("discrete"))
    assert not set(NAMES) & set(that_take("continuous"))
    assert {"sac", "modsac"} <= set(that_take("continuous")) - set(that_take("discrete"))
    assert "ppo" in {*that_take("continuous")} & {*that_take("discrete")}


@CONFIGS
def test_every_parameter_is_optimised_once(config):
    parts = build(config)
    held = [p for group in parts.optimizer.param_groups for p in group["params"]]
    assert len(held) == len({id(p) for p in held})
    assert {id(p) for p in held} == {id(p) for p in parts.loss.parameters()}
    assert {id(p) for p in parts.policy.parameters()} <= {id(p) for p in held}
    assert all(item.help for item in options_of(config).values())


@pytest.mark.parametrize(
    ("config", "options", "double", "net", "members"),
    [
        (DQNConfig, {}, False, EnsembleMLP, 1),
        (DoubleDQNConfig, {}, True, EnsembleMLP, 1),
        (DoubleDQNConfig, {"twin": True}, False, EnsembleMLP, 2),
        (DuelingDQNConfig, {}, False, DuelingMLP, 1),
        (D3QNConfig, {}, True, DuelingMLP, 1),
        (D3QNConfig, {"twin": True}, False, DuelingMLP, 2),
    ],
)
def test_what_each_of_the_family_is(config, options, double, net, members):
    loss = build(config, **options).loss
    assert loss.double_dqn is double
    assert type(loss.value_network.net) is net
    assert loss.value_network.num_members == members


@VALUE
def test_options_arrive(config):
    parts = build(config, gamma=0.9, tau=0.1, lr=0.2, loss_function="l1", activation="tanh")
    assert parts.loss.value_estimator.gamma.item() == pytest.approx(0.9)
    assert parts.loss.loss_function == "l1"
    assert parts.policy.network.net.activation == "tanh"
    assert [group["lr"] for group in parts.optimizer.param_groups] == [0.2]
    assert isinstance(parts.target_updater, LeanSoftUpdate)
    assert parts.target_updater.eps == pytest.approx(0.9)
    hard = build(config, target_period=7).target_updater
    assert isinstance(hard, LeanHardUpdate)
    assert hard.period == 7


@VALUE
def test_epsilon_falls_over_a_part_of_the_run(config):
    learner = Learner(build(config, epsilon=(0.8, 0.2), exploration_fraction=0.5))
    seen = []
    for progress in (0.0, 0.25, 0.5, 1.0):
        learner.at(progress)
        seen.append(learner.policy.epsilon.item())
    assert seen == pytest.approx([0.8, 0.5, 0.2, 0.2])


def test_options_of_discrete_sac_arrive():
    parts = build(
        DiscreteSACConfig,
        num_critics=3,
        alpha=0.25,
        target_entropy_weight=0.5,
        loss_function="l1",
        actor_lr=0.1,
        critic_lr=0.2,
        alpha_lr=0.3,
    )
    loss = parts.loss
    assert (loss.num_qvalue_nets, loss.loss_function) == (3, "l1")
    assert loss.log_alpha.exp().item() == pytest.approx(0.25)
    assert loss.target_entropy.item() == pytest.approx(0.5 * torch.tensor(2.0).log().item())
    assert [group["lr"] for group in parts.optimizer.param_groups] == [0.1, 0.2, 0.3]
    fixed = DiscreteSACConfig(temperature="fixed", alpha=0.3)
    assert fixed.build_temperature() == FixedTemperature(alpha=0.3)
    assert len(build(DiscreteSACConfig, temperature="fixed").optimizer.param_groups) == 2


@VALUE
@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("lr", 0.0),
        ("target_period", 0),
        ("epsilon", 1.5),
        ("epsilon", -0.1),
        ("exploration_fraction", 0.0),
        ("loss_function", "l3"),
        ("gamma", 1.5),
    ],
)
def test_refusals(config, name, value):
    with pytest.raises(ValueError, match=f"`{name}` must .*, got `{value}`"):
        config(**{name: value})


def test_a_period_has_no_use_for_tau():
    message = "`tau` must stay 0.005 with target_period=10, got `0.1`; set target_period=none"
    with pytest.raises(ValueError, match=message):
        DQNConfig(target_period=10, tau=0.1)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("actor_lr", 0.0),
        ("critic_lr", 0.0),
        ("alpha_lr", -1.0),
        ("alpha", 0.0),
        ("num_critics", 0),
        ("target_entropy_weight", 1.5),
        ("temperature", "learnt"),
    ],
)
def test_discrete_sac_refusals(name, value):
    with pytest.raises(ValueError, match=f"`{name}` must .*, got `{value}`"):
        DiscreteSACConfig(**{name: value})
    with pytest.raises(ValueError, match="`alpha_lr` must stay"):
        DiscreteSACConfig(temperature="fixed", alpha_lr=0.1)
