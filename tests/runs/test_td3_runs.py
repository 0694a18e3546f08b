"""Whole runs of DDPG and TD3: in this process and beside it, resumed, stored, and inside TorchRL's
trainers."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import pytest
import torch
from hydra import compose, initialize
from hydra.utils import instantiate
from tensordict import TensorDict
from tensordict.nn import TensorDictSequential
from torchrl.collectors import Collector
from torchrl.data import Bounded, LazyTensorStorage, TensorDictReplayBuffer
from torchrl.envs.utils import ExplorationType, set_exploration_type
from torchrl.modules import AdditiveGaussianModule
from torchrl.objectives import SoftUpdate
from torchrl.trainers import ReplayBufferTrainer, Trainer
from torchrl.trainers.algorithms import DDPGTrainer, TD3Trainer
from torchrl.trainers.algorithms.td3 import TD3OptimizationStepper

from torchrl_elegant.algorithms import DDPGConfig, TD3Config
from torchrl_elegant.cli.hydra import register_groups
from torchrl_elegant.envs import make_env
from torchrl_elegant.modules import (
    DeterministicActor,
    NoisyActor,
    build_critic,
    build_deterministic_actor,
)
from torchrl_elegant.objectives import DDPGLoss, TD3Loss
from torchrl_elegant.runs.policy import Policy, load_policy, save_policy
from torchrl_elegant.runs.train import resume, run_with, stored_run, train
from torchrl_elegant.trainers.learner import Learner
from torchrl_elegant.trainers.learner_stepper import LearnerStepper

pytestmark = pytest.mark.filterwarnings("ignore")

CONFIGS = pytest.mark.parametrize("config", [DDPGConfig, TD3Config])
SMALL = {"num_cells": (8,), "batch_size": 8, "warmup": 20, "buffer_size": 1_000}


@pytest.fixture
def go(tmp_path):
    return partial(
        train,
        env="Pendulum-v1",
        eval_episodes=1,
        eval_interval=100,
        checkpoint_interval=100,
        logger="none",
        progress=False,
        folder=str(tmp_path / "run"),
    )


@CONFIGS
@pytest.mark.parametrize("noise", ["gaussian", "ou"])
def test_a_run_and_its_resumption(go, config, noise):
    first = go(config(noise=noise, noise_std=(0.2, 0.1), **SMALL), total_frames=200)
    assert first.history[-1]["frames"] == 200
    assert first.history[-1]["updates"] == 180
    names = {"loss_actor", "target_value", "pred_value"}
    assert all(torch.tensor(first.history[-1][name]).isfinite() for name in names)
    assert first.policy.noise.scale.item() == pytest.approx(0.1)
    second = resume(first.folder, total_frames=300)
    assert (second.history[-1]["frames"], second.history[-1]["updates"]) == (300, 280)
    # Not what was stored decides, but what the run is now told.
    _, run, config = stored_run(first.folder)
    third = run_with(
        replace(run, total_frames=400), replace(config, noise_std=(0.2, 0.4)), first.folder
    )
    assert third.policy.noise.scale.item() == pytest.approx(0.4)


def test_the_seed_decides_everything_that_is_measured(go, tmp_path):
    def final(name, seed):
        result = go(
            TD3Config(noise="ou", **SMALL),
            total_frames=200,
            num_envs=2,
            seed=seed,
            folder=str(tmp_path / name),
        )
        return torch.cat([param.detach().reshape(-1) for param in result.policy.parameters()])

    first, again, other = final("a", 1), final("b", 1), final("c", 2)
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


def test_asynchronous_collection(go):
    result = go(TD3Config(noise="ou", **SMALL), total_frames=300, collector="async", num_workers=1)
    assert result.history[-1]["frames"] == 300
    assert result.history[-1]["updates"] == 280


def test_what_is_stored_is_what_was_learnt(go):
    result = go(TD3Config(**SMALL), total_frames=100)
    loaded = load_policy(result.folder / "policy.pt")
    assert type(loaded) is NoisyActor
    assert loaded.spec_dict() == result.policy.spec_dict()
    observation = torch.tensor([0.1, 0.9, -1.0])
    with set_exploration_type(ExplorationType.DETERMINISTIC), torch.no_grad():
        learnt = result.policy(TensorDict({"observation": observation}, []))["action"]
        again = loaded(TensorDict({"observation": observation}, []))["action"]
    assert torch.equal(learnt, again)
    stored = Policy.load(result.folder / "policy.pt")
    for _ in range(3):  # in the simulator's torques, and without noise
        assert stored(observation.numpy()) == pytest.approx(2.0 * learnt.numpy(), abs=1e-6)


def test_the_actor_alone_can_be_stored(tmp_path):
    actor = build_deterministic_actor(make_env("Pendulum-v1"), num_cells=(8,))
    save_policy(tmp_path / "p.pt", actor, {})
    loaded = load_policy(tmp_path / "p.pt")
    assert type(loaded) is DeterministicActor
    observation = torch.randn(5, 3)
    assert torch.equal(loaded.act(observation), actor.act(observation))


# ---- Hydra --------------------------------------------------------------------------------------


def composed(*overrides):
    register_groups()
    with initialize(version_base=None, config_path=None):
        return compose(overrides=list(overrides))


def networks(num_critics):
    env = make_env("Pendulum-v1")
    actor = build_deterministic_actor(env, num_cells=(8,))
    return actor, build_critic(env, num_critics=num_critics, num_cells=(8,))


def test_losses_are_built_with_the_fields_that_were_overridden():
    actor, critic = networks(3)
    cfg = composed("+loss=elegant_td3", "loss.policy_noise=0.3", "loss.gamma=0.9")
    loss = instantiate(cfg.loss, actor_network=actor, qvalue_network=critic)
    assert type(loss) is TD3Loss
    assert (loss.policy_noise, loss.noise_clip, loss.num_qvalue_nets) == (0.3, 0.5, 3)
    assert loss.value_estimator.gamma.item() == pytest.approx(0.9)
    actor, critic = networks(1)
    cfg = composed("+loss=elegant_ddpg", "loss.delay_actor=true")
    assert "qvalue_network" not in cfg.loss
    loss = instantiate(cfg.loss, actor_network=actor, value_network=critic)
    assert type(loss) is DDPGLoss
    assert loss.delay_actor
    assert loss.loss_function == "l2"


@pytest.mark.parametrize("name", ["ddpg", "td3"])
def test_a_trainer_trains(tmp_path, name):
    cfg = composed(
        f"+trainer=elegant_{name}",
        "trainer.total_frames=40",
        "trainer.warmup=10",
        "trainer.batch_size=4",
        "trainer.num_cells=[8]",
        "trainer.noise=ou",
        "trainer.eval_episodes=1",
        "trainer.progress=false",
        f"trainer.folder={tmp_path / 'run'}",
    )
    trainer = instantiate(cfg.trainer)
    assert trainer.config.noise == "ou"
    assert trainer.train().history[-1]["frames"] == 40


# ---- TorchRL's trainers -------------------------------------------------------------------------


def values(module):
    return {k: v.clone() for k, v in module.state_dict().items() if torch.is_tensor(v)}


def moved_parts(module, before):
    after = values(module)
    return {name.split(".")[0] for name in before if not torch.equal(before[name], after[name])}


def env():
    return make_env("Pendulum-v1", 2, seed=0)


def buffer():
    return TensorDictReplayBuffer(storage=LazyTensorStorage(500), batch_size=16)


@CONFIGS
def test_our_learner_in_torchrls_trainer(config):
    torch.manual_seed(0)
    learner = Learner(config(num_cells=(8,)).build(env()))
    trainer = Trainer(
        collector=Collector(env(), learner.policy, frames_per_batch=32, total_frames=160),
        total_frames=160,
        frame_skip=1,
        loss_module=learner.loss,
        optimization_stepper=LearnerStepper(learner),
        optim_steps_per_batch=4,
        progress_bar=False,
    )
    ReplayBufferTrainer(buffer(), batch_size=16, flatten_tensordicts=True).register(trainer)
    before = values(learner.loss)
    trainer.train()
    assert learner.updates == 20
    critic = "value_network_params" if config is DDPGConfig else "qvalue_network_params"
    wanted = {"actor_network_params", critic}
    assert moved_parts(learner.loss, before) == wanted | {f"target_{name}" for name in wanted}


@pytest.mark.parametrize("kind", [DDPGTrainer, TD3Trainer])
def test_torchrls_own_trainers_take_our_loss(kind):
    torch.manual_seed(0)
    actor, critic = networks(1 if kind is DDPGTrainer else 3)
    if kind is DDPGTrainer:
        loss = DDPGLoss(actor, critic, delay_actor=True)
        # It pushes the actor's weights into whatever collects, which so has to be an actor.
        policy, how = actor, {"optimizer": torch.optim.Adam(loss.parameters(), lr=1e-3)}
    else:
        loss = TD3Loss(actor, critic)
        both = (loss.actor_network_params, loss.qvalue_network_params)
        adams = [torch.optim.Adam(params.parameters(), lr=1e-3) for params in both]
        noise = AdditiveGaussianModule(spec=Bounded(-1.0, 1.0, (1,)), sigma_init=0.1)
        policy = TensorDictSequential(actor, noise)
        how = {
            "optimization_stepper": TD3OptimizationStepper(*adams),
            "exploration_module": noise,
        }
    loss.make_value_estimator(gamma=0.99)
    trainer = kind(
        collector=Collector(env(), policy, frames_per_batch=32, total_frames=160),
        total_frames=160,
        frame_skip=1,
        optim_steps_per_batch=4,
        loss_module=loss,
        target_net_updater=SoftUpdate(loss, tau=0.01),
        replay_buffer=buffer(),
        progress_bar=False,
        enable_logging=False,
        **how,
    )
    before = values(loss)
    trainer.train()
    parts = {name for name, _ in loss.named_children() if name.endswith("_params")}
    assert len(parts) == 4
    assert moved_parts(loss, before) == parts
