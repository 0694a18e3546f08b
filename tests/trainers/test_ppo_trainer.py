"""PPO's loss, advantages and networks inside TorchRL's own trainer."""

from __future__ import annotations

import pytest
import torch
from torchrl.collectors import Collector
from torchrl.data import LazyTensorStorage, SamplerWithoutReplacement, TensorDictReplayBuffer
from torchrl.trainers.algorithms import PPOTrainer

from torchrl_elegant.algorithms import PPOConfig
from torchrl_elegant.envs import make_env
from torchrl_elegant.objectives import GAE, ClipPPOLoss


@pytest.mark.parametrize("env", ["CartPole-v1", "Pendulum-v1"])
@pytest.mark.filterwarnings("ignore")
def test_torchrls_trainer_takes_the_loss(env, monkeypatch):
    calls = {"forward": 0, "_terms": 0}

    def counted(name, method):
        def spy(*args):
            calls[name] += 1
            return method(*args)

        return spy

    for name in calls:
        monkeypatch.setattr(ClipPPOLoss, name, counted(name, getattr(ClipPPOLoss, name)))
    parts = PPOConfig(num_cells=(8,), lr=1e-2).build(make_env(env))
    before = {name: value.clone() for name, value in parts.loss.state_dict().items()}
    trainer = PPOTrainer(
        collector=Collector(make_env(env, 2), parts.policy, frames_per_batch=40, total_frames=120),
        total_frames=120,
        frame_skip=1,
        optim_steps_per_batch=1,
        num_epochs=2,
        loss_module=parts.loss,
        optimizer=torch.optim.Adam(parts.loss.parameters(), lr=1e-2),
        gae=GAE(gamma=0.99, lmbda=0.95, value_network=parts.loss.critic_network),
        replay_buffer=TensorDictReplayBuffer(
            storage=LazyTensorStorage(40), sampler=SamplerWithoutReplacement(), batch_size=10
        ),
        batch_size=10,
        progress_bar=False,
        enable_logging=False,
    )
    trainer.train()
    # Every update of the trainer's goes our own way.
    assert calls["forward"] == calls["_terms"] > 3
    after = parts.loss.state_dict()
    moved = {name for name in after if (after[name] != before[name]).any()}
    assert moved == {name for name, _ in parts.loss.named_parameters()}
