"""Algorithm configurations and what they build."""

from __future__ import annotations

import math
from dataclasses import FrozenInstanceError, dataclass, fields
from inspect import get_annotations
from typing import Literal

import numpy as np
import pytest
import torch
from tensordict import TensorDict

from torchrl_elegant.algorithms import (
    ALGORITHMS,
    CriticTrust,
    EveryUpdate,
    HTermConfig,
    ModSACConfig,
    OffPolicyConfig,
    SACConfig,
    register,
)
from torchrl_elegant.algorithms.base import check, option
from torchrl_elegant.cli.training import parse_training
from torchrl_elegant.config.options import options_of
from torchrl_elegant.config.text import UsageError
from torchrl_elegant.envs import make_env
from torchrl_elegant.objectives import ModSACLoss

CONFIGS = pytest.mark.parametrize("config", [SACConfig, ModSACConfig])


def build(config, **options):
    return config(num_cells=(8,), **options).build(make_env("Pendulum-v1"))


def test_registry():
    assert ALGORITHMS["sac"] is SACConfig
    assert ALGORITHMS["modsac"] is ModSACConfig
    assert SACConfig.name == "sac"
    with pytest.raises(ValueError, match="`name` must be new, got `sac`"):
        register("sac")(type("Other", (SACConfig,), {}))


@CONFIGS
def test_fields_are_documented_and_frozen(config):
    # Networks of one's own are given in Python alone.
    names = [item.name for item in fields(config) if item.name != "networks"]
    assert [*options_of(config)] == names
    assert all(item.help and item.topic for item in options_of(config).values())
    with pytest.raises(FrozenInstanceError):
        config().gamma = 0.5


@CONFIGS
def test_every_parameter_is_optimised_once(config):
    parts = build(config)
    held = [p for group in parts.optimizer.param_groups for p in group["params"]]
    assert len(held) == len({id(p) for p in held})
    assert {id(p) for p in held} == {id(p) for p in parts.loss.parameters()}
    assert {id(p) for p in parts.policy.parameters()} < {id(p) for p in held}


def test_options_arrive():
    parts = build(
        SACConfig,
        gamma=0.9,
        tau=0.1,
        num_critics=5,
        target_members=2,
        actor_q="mean",
        alpha=0.25,
        target_entropy=-7.0,
        loss_function="l1",
        actor_lr=0.1,
        critic_lr=0.2,
        alpha_lr=0.3,
        activation="tanh",
    )
    loss = parts.loss
    assert loss.value_estimator.gamma.item() == pytest.approx(0.9)
    assert (loss.num_qvalue_nets, loss.target_members, loss.actor_q) == (5, 2, "mean")
    assert loss.log_alpha.exp().item() == pytest.approx(0.25)
    assert loss.target_entropy.item() == -7.0
    assert loss.loss_function == "l1"
    assert [group["lr"] for group in parts.optimizer.param_groups] == [0.1, 0.2, 0.3]
    assert parts.policy.net.activation == loss.qvalue_network.net.activation == "tanh"
    assert isinstance(parts.schedule, EveryUpdate)
    before = loss.target_qvalue_network_params["net", "weight_0"].clone()
    loss.qvalue_network_params.data.add_(1.0)
    parts.target_updater.step()
    moved = loss.target_qvalue_network_params["net", "weight_0"] - before
    torch.testing.assert_close(moved, torch.full_like(moved, 0.1))


def test_fixed_temperature_has_no_optimiser_group():
    parts = build(SACConfig, temperature="fixed", alpha=0.2)
    assert len(parts.optimizer.param_groups) == 2
    assert not parts.loss.log_alpha.requires_grad


def test_the_actor_learns_at_every_so_manieth_update():
    assert build(SACConfig).schedule.period == 1
    schedule = build(SACConfig, actor_period=3).schedule
    assert [(schedule.due(), schedule.observe({}))[0] for _ in range(6)] == [False, False, True] * 2


def test_a_schedule_of_its_own_has_no_period():
    for name in ("modsac", "redq"):
        assert "actor_period" not in options_of(ALGORITHMS[name])
        told = f"`actor_period`: an option of ddpg, .*sac, td3, not of {name}"
        with pytest.raises(UsageError, match=told):
            parse_training(["actor_period=2"], default=name)
    assert "actor_q" not in options_of(ALGORITHMS["redq"])


@CONFIGS
def test_fixed_temperature_takes_all_or_says_what_it_does_not(config):
    parts = build(config, temperature="fixed", target_entropy=-7.0)
    assert parts.loss.target_entropy.item() == -7.0
    assert config(temperature="fixed", alpha_lr=3e-4).alpha_lr == 3e-4
    message = "`alpha_lr` must stay 0.0003 with temperature=fixed, got `0.1`; set temperature=learn"
    with pytest.raises(ValueError, match=message):
        config(temperature="fixed", alpha_lr=0.1)


def test_modsac():
    parts = build(ModSACConfig, trust_decay=0.9, trust_window=50, std_regularization=0.0625)
    assert isinstance(parts.loss, ModSACLoss)
    assert isinstance(parts.schedule, CriticTrust)
    assert (parts.schedule.decay, parts.schedule.window) == (0.9, 50)
    assert (parts.loss.std_regularization, parts.loss.actor_q, parts.loss.num_qvalue_nets) == (
        0.0625,
        "mean",
        8,
    )


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("gamma", 1.5),
        ("tau", 0.0),
        ("batch_size", 0),
        ("buffer_size", 0),
        ("warmup", -1),
        ("updates_per_frame", 0.0),
        ("num_cells", ()),
        ("num_cells", (8, 0)),
        ("max_grad_norm", 0.0),
        ("actor_lr", 0.0),
        ("critic_lr", -1.0),
        ("alpha_lr", 0.0),
        ("alpha", 0.0),
        ("num_critics", 0),
        ("target_members", 3),
        ("target_members", 0),
        ("activation", "swash"),
        ("actor_q", "max"),
        ("temperature", "learnt"),
        ("temperature", None),
        ("loss_function", "l3"),
        ("actor_lr", math.inf),
        ("alpha_lr", math.inf),
        ("alpha", math.inf),
        ("target_entropy", math.inf),
        ("target_entropy", math.nan),
    ],
)
@CONFIGS
def test_refusals(config, name, value):
    options = {"num_critics": 2, name: value}
    with pytest.raises(ValueError, match=f"`{name}` must .*, got `"):
        config(**options)


@pytest.mark.parametrize("config", ALGORITHMS.values(), ids=ALGORITHMS)
def test_a_default_is_that_of_the_nearest_class_that_writes_it(config):
    """Among several bases, a dataclass may take a default from one that only inherits it."""
    for field in fields(config):
        owner = next(one for one in config.__mro__ if field.name in get_annotations(one))
        written = {one.name: one.default for one in fields(owner)}[field.name]
        assert field.default is written or field.default == written, field.name


def test_an_actor_learns_at_least_at_times():
    with pytest.raises(ValueError, match="`actor_period` must be an integer of 1 or more, got `0`"):
        SACConfig(actor_period=0)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("trust_decay", 1.0),
        ("trust_window", 0),
        ("std_regularization", -0.1),
        ("std_regularization", math.inf),
    ],
)
def test_modsac_refusals(name, value):
    with pytest.raises(ValueError, match=f"`{name}` must .*, got `{value}`"):
        ModSACConfig(**{name: value})


@dataclass(frozen=True, kw_only=True)
class Choosy(OffPolicyConfig):
    maybe: Literal["a", "b"] | None = option(None, "listed, or nothing")
    number: Literal[1, 2] = option(1, "listed")
    free: str | None = option(None, "anything")

    def build(self, env):
        raise NotImplementedError


def test_every_literal_of_a_subclass_is_checked():
    assert Choosy(maybe="b", number=2, free="c").maybe == "b"
    with pytest.raises(ValueError, match="`maybe` must be one of a, b, or none, got `c`"):
        Choosy(maybe="c")
    with pytest.raises(ValueError, match="`number` must be one of 1, 2, got `3`"):
        Choosy(number=3)


COUNT = "an integer of 1 or more"


@pytest.mark.parametrize(
    ("config", "options", "message"),
    [
        (
            SACConfig,
            {"batch_size": 16.0},
            f"`batch_size` must be {COUNT}, got `16.0`",
        ),
        (
            SACConfig,
            {"batch_size": True},
            f"`batch_size` must be {COUNT}, got `True`",
        ),
        (SACConfig, {"gamma": "0.9"}, r"`gamma` must be a number in \[0, 1\], got `'0.9'`"),
        (SACConfig, {"normalize_value": "false"}, "`normalize_value` must be true or false"),
        (
            SACConfig,
            {"num_cells": 64},
            f"`num_cells` must be a list .* each {COUNT}, got `64`",
        ),
        (
            SACConfig,
            {"num_cells": (64, 0.5)},
            f"`num_cells` must be a list .* each {COUNT}, got",
        ),
        (
            SACConfig,
            {"max_grad_norm": "1"},
            "must be a finite number above 0, or none, got `'1'`",
        ),
        (
            HTermConfig,
            {"period": 2.5},
            r"`period` must be an integer in \[1, .*\), got `2.5`",
        ),
        (Choosy, {"free": 3}, "`free` must be a text, or none, got `3`"),
    ],
)
def test_types_are_checked_wherever_values_come_from(config, options, message):
    with pytest.raises(ValueError, match=message):
        config(**options)


def test_numbers_of_numpy_are_numbers():
    config = SACConfig(batch_size=np.int64(8), gamma=np.float32(0.5), num_cells=[np.int32(8)])
    assert (config.batch_size, config.gamma) == (8, 0.5)
    assert SACConfig(actor_lr=1, gamma=0).actor_lr == 1


def test_fields_of_a_class_that_is_no_dataclass_are_refused():
    class Plain(SACConfig):
        actor_lr: float = 1e-2
        num_critics = 7
        mine: int = 3

    with pytest.raises(ValueError, match="for actor_lr, mine, num_critics to count, got a plain"):
        register("plain")(Plain)
    assert "plain" not in ALGORITHMS


def test_the_way_out_ends_the_error():
    with pytest.raises(ValueError, match=r"^`tau` must be small, got `2`; use less$"):
        check(False, "tau", "be small", 2, "use less")
    with pytest.raises(ValueError, match=r"^`tau` must be small, got `2`$"):
        check(False, "tau", "be small", 2)


@pytest.mark.parametrize(
    "kind",
    [kind for kind in ALGORITHMS.values() if issubclass(kind, OffPolicyConfig) and not kind.teams],
)
def test_rewards_of_several_steps_are_discounted_as_configured(kind):
    never = torch.zeros(4, 1, dtype=torch.bool)
    after = {"reward": torch.tensor([[1.0], [2.0], [4.0], [8.0]]), "done": never}
    steps = TensorDict({"t": torch.arange(4), "next": after}, [4])
    config = kind(gamma=0.5, n_steps=2, long_return_weight=0.1, long_return_steps=3)
    rows = config.fold()(steps)
    assert rows["next", "reward"].flatten().tolist() == [1 + 0.5 * 2, 2 + 0.5 * 4]
    assert rows["ahead", "reward"].flatten().tolist() == [
        1 + 0.5 * 2 + 0.25 * 4,
        2 + 0.5 * 4 + 0.25 * 8,
    ]


@pytest.mark.parametrize("part", [0.0, 0.25])
def test_learning_rates_fall_evenly_to_their_part(part):
    rates = {"actor_lr": 0.1, "critic_lr": 0.2, "alpha_lr": 0.4}
    config = SACConfig(num_cells=(8,), **{name: (lr, lr * part) for name, lr in rates.items()})
    parts = config.assemble(make_env("Pendulum-v1"))
    for progress, left in ((0.0, 1.0), (0.5, 0.5 + 0.5 * part), (1.0, part)):
        for ramp in parts.ramps:
            ramp.at(progress)
        rates = [group["lr"] for group in parts.optimizer.param_groups]
        assert rates == pytest.approx([0.1 * left, 0.2 * left, 0.4 * left])
    assert not SACConfig(num_cells=(8,)).assemble(make_env("Pendulum-v1")).ramps


def test_a_configuration_names_its_family():
    families = {name: config.family for name, config in ALGORITHMS.items()}
    on_policy = {name for name, family in families.items() if family == "on_policy"}
    assert on_policy == {"a2c", "ippo", "mappo", "ppo"}
    assert set(families.values()) == {"on_policy", "off_policy"}


@pytest.mark.parametrize(
    ("module", "name", "builder"),
    [
        ("sac", "sac", "build_actor"),
        ("ddpg", "td3", "build_deterministic_actor"),
        ("discrete_sac", "discrete_sac", "build_categorical_actor"),
        ("on_policy", "ppo", "build_stochastic_actor"),
    ],
)
def test_an_actor_is_built_over_the_entries_that_it_reads(monkeypatch, module, name, builder):
    """Nested entries are named by dots; without names, the builder is told nothing."""
    seen = []

    def build(env, **options):
        seen.append(options)
        raise StopIteration

    monkeypatch.setattr(f"torchrl_elegant.algorithms.{module}.{builder}", build)
    env = make_env("CartPole-v1" if name == "discrete_sac" else "Pendulum-v1")
    for keys in (None, ("agent.position", "goal")):
        config = ALGORITHMS[name](num_cells=(8,), actor_keys=keys, critic_keys=("all.of.it",))
        with pytest.raises(StopIteration):
            config.build(env)
    assert "in_keys" not in seen[0]
    assert seen[1]["in_keys"] == [("agent", "position"), "goal"]
    assert seen[1]["num_cells"] == (8,)


@pytest.mark.parametrize(
    ("module", "name", "builder"),
    [
        ("off_policy", "sac", "build_critic"),
        ("off_policy", "td3", "build_critic"),
        ("dqn", "d3qn", "build_q_network"),
        ("discrete_sac", "discrete_sac", "build_q_network"),
        ("on_policy", "ppo", "build_value"),
    ],
)
def test_critics_are_built_over_the_entries_that_they_read(monkeypatch, module, name, builder):
    seen = []

    def build(env, **options):
        seen.append(options)
        raise StopIteration

    monkeypatch.setattr(f"torchrl_elegant.algorithms.{module}.{builder}", build)
    env = make_env("Pendulum-v1" if name in ("sac", "td3", "ppo") else "CartPole-v1")
    for keys in (None, ("state.full",)):
        with pytest.raises(StopIteration):
            ALGORITHMS[name](num_cells=(8,), critic_keys=keys).build(env)
    assert "in_keys" not in seen[0]
    assert seen[1]["in_keys"] == [("state", "full")]


def test_keys_of_an_actor_are_refused_where_there_is_none():
    told = "`actor_keys` must be none where there is no actor, got `.*`; set critic_keys"
    with pytest.raises(ValueError, match=told):
        ALGORITHMS["dqn"](actor_keys=("observation",))
    with pytest.raises(ValueError, match="`critic_keys` must be a list of at least one value"):
        SACConfig(critic_keys=())
    words = ["actor_keys=agent.position,goal"]
    assert parse_training(words, default="sac").config.actor_keys == ("agent.position", "goal")
