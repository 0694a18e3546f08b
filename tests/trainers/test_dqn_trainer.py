"""Our DQN loss, network and target updater inside TorchRL's own DQN trainer."""

from __future__ import annotations

import pytest
import torch
from tensordict.nn import TensorDictSequential
from torchrl.collectors import Collector
from torchrl.data import LazyTensorStorage, TensorDictReplayBuffer
from torchrl.modules import EGreedyModule
from torchrl.trainers.algorithms import DQNTrainer

from torchrl_elegant.algorithms import D3QNConfig, DQNConfig
from torchrl_elegant.envs import make_env
from torchrl_elegant.objectives import DQNLoss


@pytest.mark.parametrize("config", [DQNConfig, D3QNConfig])
@pytest.mark.filterwarnings("ignore")
def test_torchrls_trainer_takes_the_parts(config, monkeypatch):
    calls, terms = [], DQNLoss.critic_terms
    monkeypatch.setattr(DQNLoss, "critic_terms", lambda *args: calls.append(1) or terms(*args))
    env = make_env("CartPole-v1", 2)
    parts = config(num_cells=(8,)).build(env)
    before = {name: value.clone() for name, value in parts.loss.state_dict().items()}
    greedy = EGreedyModule(env.action_spec, annealing_num_steps=100)
    policy = TensorDictSequential(parts.loss.value_network, greedy)
    trainer = DQNTrainer(
        collector=Collector(env, policy, frames_per_batch=40, total_frames=120),
        total_frames=120,
        frame_skip=1,
        optim_steps_per_batch=2,
        loss_module=parts.loss,
        optimizer=torch.optim.Adam(parts.loss.parameters(), lr=1e-2),
        target_net_updater=parts.target_updater,
        greedy_module=greedy,
        replay_buffer=TensorDictReplayBuffer(storage=LazyTensorStorage(100), batch_size=10),
        batch_size=10,
        progress_bar=False,
        enable_logging=False,
    )
    trainer.train()
    assert len(calls) == 6
    after = parts.loss.state_dict()
    assert {name for name in after if (after[name] != before[name]).any()} == {
        name for name in before if "value_network_params" in name
    }
