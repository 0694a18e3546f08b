"""Whole runs of the algorithms over discrete actions: train, go on, load, collect elsewhere."""

from __future__ import annotations

from copy import deepcopy
from functools import partial

import gymnasium
import pytest
import torch
from hydra import compose, initialize
from hydra.utils import instantiate

from torchrl_elegant.algorithms import (
    D3QNConfig,
    DiscreteSACConfig,
    DoubleDQNConfig,
    DQNConfig,
    DuelingDQNConfig,
    PPOConfig,
    SACConfig,
)
from torchrl_elegant.cli.hydra import register_groups
from torchrl_elegant.cli.training import train_command
from torchrl_elegant.collectors import SyncCollector
from torchrl_elegant.config.text import UsageError
from torchrl_elegant.data import make_buffer
from torchrl_elegant.envs import make_env
from torchrl_elegant.modules import build_categorical_actor, build_q_network
from torchrl_elegant.objectives import DiscreteSACLoss, DQNLoss
from torchrl_elegant.runs import Policy, resume, train
from torchrl_elegant.trainers.learner import Learner

SMALL = {"num_cells": (8,), "batch_size": 16, "warmup": 40, "updates_per_frame": 0.5}
CONFIGS = {
    "dqn": DQNConfig(**SMALL),
    "hard": DQNConfig(target_period=20, **SMALL),
    "double": DoubleDQNConfig(**SMALL),
    "dueling": DuelingDQNConfig(**SMALL),
    "d3qn": D3QNConfig(**SMALL),
    "twin": D3QNConfig(twin=True, **SMALL),
    "sac": DiscreteSACConfig(**SMALL),
}
EACH = pytest.mark.parametrize("config", CONFIGS.values(), ids=CONFIGS)


def run(config, folder, frames=200, env="CartPole-v1", **options):
    return train(
        config,
        env,
        total_frames=frames,
        eval_interval=100,
        eval_episodes=2,
        checkpoint_interval=100,
        folder=str(folder),
        logger="none",
        progress=False,
        threads=1,
        **options,
    )


@EACH
def test_a_run_its_policy_and_going_on(config, tmp_path):
    folder = tmp_path / "run"
    last = run(config, folder).history[-1]
    assert (last["frames"], last["updates"]) == (200, 80)
    names = {"loss"} if isinstance(config, DQNConfig) else {"loss_actor", "loss_qvalue", "alpha"}
    assert all(torch.tensor(last[name]).isfinite() for name in names)
    policy = Policy.load(folder / "policy.pt")
    env = gymnasium.make("CartPole-v1")
    action = policy(env.reset(seed=0)[0])
    assert env.action_space.contains(action)
    env.step(action)
    again = resume(folder, total_frames=300).history[-1]
    assert (again["frames"], again["updates"]) == (300, 130)


@pytest.mark.parametrize("config", [CONFIGS["dqn"], CONFIGS["sac"]], ids=["dqn", "sac"])
def test_workers_collect_beside_it(config, tmp_path):
    last = run(config, tmp_path / "run", collector="async", num_workers=1).history[-1]
    assert (last["frames"], last["updates"]) == (200, 80)


def test_indices_are_learnt_from_as_well():
    env = make_env("CartPole-v1", 4, discrete_actions="categorical")
    for config in (CONFIGS["dqn"], CONFIGS["sac"]):
        learner = Learner(config.build(env))
        batch = env.rollout(10, learner.policy, break_when_any_done=False).reshape(-1)
        assert batch["action"].shape == (40,)
        assert all(value.isfinite() for value in learner.update(batch.detach()).values())


def test_epsilon_moves_along_the_run(tmp_path, monkeypatch):
    seen = []
    explore = torch.Tensor.fill_
    monkeypatch.setattr(
        "torchrl_elegant.modules.EpsilonGreedyActor.explore",
        lambda self, epsilon: (seen.append(epsilon), explore(self.epsilon, epsilon)),
    )
    run(DQNConfig(exploration_fraction=0.5, epsilon=(1.0, 0.1), **SMALL), tmp_path / "run")
    assert seen[0] == 1.0
    assert seen == sorted(seen, reverse=True)
    assert seen[-1] == pytest.approx(0.1)
    assert any(0.1 < epsilon < 1.0 for epsilon in seen)


def test_the_first_frames_are_random():
    """Not the network's: with a network that always prefers one action, both occur."""
    parts = DQNConfig(num_cells=(8,), epsilon=0.0).build(make_env("CartPole-v1"))
    with torch.no_grad():
        parts.policy.network.net.bias_1 += torch.tensor([1e6, 0.0])
    collector = SyncCollector(
        make_env("CartPole-v1", 2),
        parts.policy,
        frames_per_batch=40,
        total_frames=80,
        init_random_frames=40,
    )
    first, second = (batch["action"].argmax(-1).float().mean() for batch in collector)
    assert 0.1 < first < 0.9
    assert second == 0.0


@pytest.mark.parametrize(
    ("config", "env", "message"),
    [
        (DQNConfig(**SMALL), "Pendulum-v1", "discrete action space.*continuous actions: .*sac"),
        (DiscreteSACConfig(**SMALL), "Pendulum-v1", "discrete.*continuous actions: .*ppo.*sac"),
        (
            SACConfig(num_cells=(8,)),
            "CartPole-v1",
            "continuous.*discrete actions: .*d3qn.*dqn.*ppo",
        ),
    ],
)
def test_what_fits_is_named(config, env, message, tmp_path):
    with pytest.raises(UsageError, match=message):
        run(config, tmp_path / "run", frames=2_000, env=env)


class Several(gymnasium.Env):
    """Takes whatever actions it is made for, and ends at once."""

    observation_space = gymnasium.spaces.Box(-1.0, 1.0, (3,))

    def __init__(self, action_space):
        self.action_space = action_space

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return self.observation_space.sample(), {}

    def step(self, action):
        return self.observation_space.sample(), 0.0, True, False, {}


@pytest.mark.parametrize("config", [DQNConfig(**SMALL), SACConfig(num_cells=(8,))], ids=type)
@pytest.mark.parametrize(
    ("space", "message"),
    [
        (gymnasium.spaces.MultiDiscrete([3, 2]), "algorithms for multi-discrete actions: a2c, ppo"),
        (gymnasium.spaces.MultiBinary(3), "algorithms for Binary actions: none that is registered"),
    ],
    ids=["multi-discrete", "binary"],
)
def test_what_fits_several_choices_is_named(config, space, message, tmp_path):
    with pytest.raises(UsageError, match=message):
        run(config, tmp_path / "run", frames=2_000, env=partial(Several, space))


def test_choices_that_no_algorithm_takes_are_told(tmp_path):
    env = partial(Several, gymnasium.spaces.MultiBinary(3))
    with pytest.raises(UsageError, match="algorithms for Binary actions: none"):
        run(PPOConfig(num_cells=(8,)), tmp_path / "run", frames=2_048, env=env)


@EACH
def test_a_learner_goes_on_where_it_was(config):
    env = make_env("CartPole-v1", 4)
    buffer = make_buffer(size=100)
    buffer.extend(env.rollout(20, break_when_any_done=False).reshape(-1))
    batches = [buffer.sample(16) for _ in range(6)]
    first = Learner(config.build(env))
    for batch in batches[:3]:
        first.update(batch.clone())
    second = Learner(config.build(env))
    # A copy, as from a file: PyTorch's optimisers would share their moments otherwise.
    second.load_state_dict(deepcopy(first.state_dict()))
    for batch in batches[3:]:
        torch.testing.assert_close(second.update(batch.clone()), first.update(batch.clone()))
    torch.testing.assert_close(second.loss.state_dict(), first.loss.state_dict())


@pytest.mark.parametrize("name", ["dqn", "discrete_sac"])
def test_the_commands_help(capsys, name):
    assert train_command(["--help"], program=f"train_{name}.py", default=name) == 0
    shown = capsys.readouterr().out
    for option in ("batch_size", "buffer_size", "warmup"):
        assert f"  {option}=" in shown


def test_losses_stand_in_torchrls_groups():
    register_groups()
    with initialize(version_base=None, config_path=None):
        overrides = ["+loss=elegant_dqn", "loss.double_dqn=true", "loss.gamma=0.9"]
        dqn = compose(overrides=overrides).loss
        sac = compose(overrides=["+loss=elegant_discrete_sac", "loss.alpha_init=0.5"]).loss
    env = make_env("CartPole-v1")
    critic = build_q_network(env, num_cells=(8,))
    loss = instantiate(dqn, value_network=critic)
    assert isinstance(loss, DQNLoss)
    assert loss.double_dqn
    assert loss.value_estimator.gamma.item() == pytest.approx(0.9)
    actor = build_categorical_actor(env, num_cells=(8,))
    loss = instantiate(sac, actor_network=actor, qvalue_network=critic)
    assert isinstance(loss, DiscreteSACLoss)
    assert loss.alpha_init.item() == 0.5
