"""The configurations of DDPG and TD3, and what they build."""

from __future__ import annotations

import math
from dataclasses import FrozenInstanceError

import pytest
import torch

from torchrl_elegant.algorithms import ALGORITHMS, DDPGConfig, EveryUpdate, TD3Config
from torchrl_elegant.config.options import options_of
from torchrl_elegant.config.rates import ends_of
from torchrl_elegant.envs import make_env
from torchrl_elegant.modules import GaussianNoise, MixedNoise, NoisyActor, OrnsteinUhlenbeckNoise
from torchrl_elegant.objectives import DDPGLoss, LeanSoftUpdate, TD3Loss
from torchrl_elegant.trainers.learner import Learner

CONFIGS = pytest.mark.parametrize("config", [DDPGConfig, TD3Config])


def build(config, **options):
    return config(num_cells=(8,), **options).build(make_env("Pendulum-v1"))


def test_registry():
    assert ALGORITHMS["ddpg"] is DDPGConfig
    assert ALGORITHMS["td3"] is TD3Config
    assert (DDPGConfig.name, TD3Config.name) == ("ddpg", "td3")


@CONFIGS
def test_fields_are_documented_and_frozen(config):
    assert all(item.help for item in options_of(config).values())
    with pytest.raises(FrozenInstanceError):
        config().gamma = 0.5


@CONFIGS
def test_every_parameter_is_optimised_once(config):
    parts = build(config)
    held = [p for group in parts.optimizer.param_groups for p in group["params"]]
    assert len(held) == len({id(p) for p in held})
    assert {id(p) for p in held} == {id(p) for p in parts.loss.parameters()}
    assert {id(p) for p in parts.policy.parameters()} < {id(p) for p in held}


@CONFIGS
def test_shared_options_arrive(config):
    parts = build(
        config,
        gamma=0.9,
        tau=0.1,
        actor_lr=0.1,
        critic_lr=0.2,
        loss_function="l1",
        activation="elu",
    )
    loss = parts.loss
    assert loss.value_estimator.gamma.item() == pytest.approx(0.9)
    assert loss.loss_function == "l1"
    assert [group["lr"] for group in parts.optimizer.param_groups] == [0.1, 0.2]
    rates = {id(p): g["lr"] for g in parts.optimizer.param_groups for p in g["params"]}
    assert {rates[id(p)] for p in loss.actor_network_params.parameters()} == {0.1}
    assert {rates[id(p)] for p in loss.qvalue_network_params.parameters()} == {0.2}
    assert parts.policy.actor.net.activation == loss.qvalue_network.net.activation == "elu"
    assert isinstance(parts.target_updater, LeanSoftUpdate)
    assert 1.0 - parts.target_updater.eps == pytest.approx(0.1)


def test_ddpg_has_one_critic_and_follows_both_networks():
    parts = build(DDPGConfig)
    assert type(parts.loss) is DDPGLoss
    assert parts.loss.value_network.num_critics == 1
    assert {name for name in parts.loss._modules if name.startswith("target_")} == {
        "target_actor_network_params",
        "target_value_network_params",
    }
    assert (parts.schedule.period, parts.target_updater.period) == (1, 1)


def test_options_of_td3_arrive():
    parts = build(TD3Config, num_critics=5, actor_q="mean", policy_noise=0.3, noise_clip=0.4)
    loss = parts.loss
    assert type(loss) is TD3Loss
    assert (loss.num_qvalue_nets, loss.actor_q) == (5, "mean")
    assert (loss.policy_noise, loss.noise_clip) == (0.3, 0.4)
    assert (loss.min_action.tolist(), loss.max_action.tolist()) == ([-1.0], [1.0])
    assert isinstance(parts.schedule, EveryUpdate)
    for period in (2, 3):
        parts = build(TD3Config, actor_period=period)
        assert (parts.schedule.period, parts.target_updater.period) == (period, period)


def test_actor_and_all_targets_of_td3_move_at_every_second_update():
    """Fujimoto et al. 2018, algorithm 1."""
    env = make_env("Pendulum-v1", 8, seed=0)
    learner = Learner(TD3Config(num_cells=(8,)).build(env))
    batch, names = env.rollout(8).reshape(-1), list(learner.loss._modules)
    groups = [name for name in names if name.endswith("_params")]
    assert len(groups) == 4
    for update in range(4):
        before = {name: learner.loss._modules[name].data.clone() for name in groups}
        metrics = learner.update(batch.clone())
        after = {name: learner.loss._modules[name].data for name in groups}
        moved = {name for name in groups if not (after[name] == before[name]).all()}
        assert moved == (set(groups) if update % 2 else {"qvalue_network_params"})
        assert ("loss_actor" in metrics) == bool(update % 2)


def test_exploration():
    for noise, kind in (("gaussian", GaussianNoise), ("ou", OrnsteinUhlenbeckNoise)):
        policy = build(TD3Config, noise=noise, noise_std=0.25).policy
        assert type(policy) is NoisyActor
        assert type(policy.noise) is kind
        assert policy.noise.scale.item() == 0.25


ATOMS = {"atoms": 5, "v_min": 0.0, "v_max": 10.0}


def test_mixed_noise_and_distributions():
    noise = {"noise": "mixed", "noise_std": 0.4, "noise_least": 0.1}
    parts = build(TD3Config, **noise, atoms=5, v_min=-10.0, v_max=3.0)
    noise, critic = parts.policy.noise, parts.loss.qvalue_network
    assert (type(noise), noise.least) == (MixedNoise, 0.1)
    assert noise.scale.item() == pytest.approx(0.4)
    assert critic.atoms(torch.device("cpu")).tolist() == [-10.0, -6.75, -3.5, -0.25, 3.0]
    learner = Learner(parts)
    batch = make_env("Pendulum-v1", 4, seed=0).rollout(4).reshape(-1)
    terms = [learner.update(batch.clone()) for _ in range(2)]
    assert terms[0]["loss_qvalue"].item() == pytest.approx(2 * math.log(5), rel=0.2)
    assert "loss_actor" in terms[1]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"noise_least": 0.1}, "`noise_least` must stay 0.0 with noise=gaussian, got `0.1`"),
        (
            {"noise": "mixed", "noise_std": (0.4, 0.0), "noise_least": 0.1},
            "`noise_least` must be at most noise_std",
        ),
        ({"v_max": 3.0}, "`v_max` must stay None with atoms=none, got `3.0`; set atoms=101"),
        ({"atoms": 1}, "`atoms` must be"),
        ({"atoms": 5, "v_max": 1.0}, "`v_min` must be given with atoms=5, got `none`; name the"),
        ({"atoms": 5, "v_min": 1.0}, "`v_max` must be given with atoms=5, got `none`; name the"),
        ({**ATOMS, "v_min": 10.0}, "`v_min` must lie below v_max"),
        ({**ATOMS, "v_max": 1e35}, "`v_max` must exceed v_min by less than"),
        ({**ATOMS, "loss_function": "l1"}, "`loss_function` must stay l2 with atoms=5"),
        ({**ATOMS, "networks": {"critic": torch.nn.Linear}}, "`networks` must hold no critic"),
    ],
)
def test_what_does_not_go_with_distributions_and_mixed_noise(options, message):
    with pytest.raises(ValueError, match=message):
        TD3Config(**options)


@pytest.mark.parametrize("rate", [0.25, (0.25, 0.5)])
def test_the_spread_of_the_noise_follows_the_run(rate):
    learner = Learner(build(DDPGConfig, noise_std=rate))
    scale, (_, last) = learner.policy.noise.scale, ends_of(rate)
    for progress, wanted in ((0.0, 0.25), (0.5, (0.25 + last) / 2), (1.0, last)):
        learner.at(progress)
        assert scale.item() == pytest.approx(wanted)


def test_the_policy_acts_with_what_the_loss_learns():
    parts = build(TD3Config, noise_std=0.0)
    for param in parts.loss.actor_network_params.parameters():
        param.data.zero_()
    assert parts.policy.act(torch.randn(5, 3)).tolist() == [[0.0]] * 5
    parts.loss.actor_network_params["net", "layers", "1", "bias"].data.add_(9.0)
    torch.testing.assert_close(
        parts.policy.act(torch.zeros(1, 3)), torch.ones(1, 1), atol=1e-6, rtol=0
    )


@CONFIGS
@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("actor_lr", 0.0),
        ("critic_lr", -1.0),
        ("actor_period", 0),
        ("loss_function", "l3"),
        ("noise", "pink"),
        ("noise_std", -0.1),
        ("noise_std", float("inf")),
        ("tau", 0.0),
    ],
)
def test_refusals(config, name, value):
    with pytest.raises(ValueError, match=f"`{name}` must .*, got `{value}`"):
        config(**{name: value})


@pytest.mark.parametrize(
    ("name", "value"),
    [("num_critics", 0), ("policy_noise", -0.1), ("noise_clip", -1.0), ("actor_q", "max")],
)
def test_refusals_of_td3(name, value):
    with pytest.raises(ValueError, match=f"`{name}` must .*, got `{value}`"):
        TD3Config(**{name: value})


@CONFIGS
def test_discrete_actions_are_refused(config):
    with pytest.raises(ValueError, match=f"{config.name} needs a continuous action space"):
        config().build(make_env("CartPole-v1"))
