"""The loop over an environment on a device: nothing is copied to the host or waited for."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from no_sync import NoSync

from torchrl_elegant import PPOConfig, SACConfig, SymmetryConfig, TD3Config, Trial
from torchrl_elegant.functional import devices

OPTIONS = {"normalize_observation": True, "normalize_value": True, "reward_scale": 0.5}
SMALL = {"num_cells": (8,), "batch_size": 64}
ATOMS = {"warmup": 64, "updates_per_frame": 1 / 32, "atoms": 5, "v_min": -10.0, "v_max": 10.0}
MIRROR = SymmetryConfig(observation=(1, -2, 3, -4, 5, -6), action=(1, -2), weight=0.1)
CONFIGS = {
    "ppo": PPOConfig(**SMALL),
    "ppo with options": PPOConfig(**SMALL, **OPTIONS, epochs=2, clip_value=0.2, lr=(3e-4, 0.0)),
    "ppo whose rate follows": PPOConfig(**SMALL, epochs=2, lr_kl=0.01),
    "ppo with symmetry": PPOConfig(**SMALL, normalize_observation=True, symmetry=MIRROR),
    "sac of distributions": SACConfig(**SMALL, **ATOMS),
    "td3 at scale": TD3Config(**SMALL, **ATOMS, noise="mixed", actor_q="min"),
    "sac": SACConfig(**SMALL, warmup=64, updates_per_frame=1 / 32),
    "sac with options": SACConfig(
        **SMALL, **OPTIONS, warmup=64, updates_per_frame=1 / 32, n_steps=3, priority_alpha=0.6
    ),
}


@pytest.fixture
def as_on_a_device(monkeypatch):
    """Everything takes the way that it takes on a GPU, on the CPU."""
    monkeypatch.setattr(devices, "reads_at_once", lambda device: False)


@pytest.mark.parametrize("name", CONFIGS)
def test_nothing_waits_for_the_device(name, as_on_a_device):
    with Trial(
        CONFIGS[name], "elegant/chasing", num_envs=32, total_frames=32 * 64, frames_per_batch=32 * 4
    ) as trial:
        trial.train(frames=32 * 16)
        before = trial.ledger.updates
        with NoSync():
            trial.train(frames=32 * 16)
        assert trial.ledger.updates > before


@pytest.mark.parametrize("name", ["ppo with options", "sac with options"])
def test_a_recorded_update_waits_for_nothing_and_keeps_its_shapes(name, as_on_a_device, graphs):
    config = replace(CONFIGS[name], compile=True)
    with Trial(
        config, "elegant/chasing", num_envs=32, total_frames=32 * 64, frames_per_batch=32 * 4
    ) as trial:
        trial.train(frames=32 * 16)
        kinds = trial.learner._update_loss._kinds
        assert all(kind.run is not None for kind in kinds)
        count = len(kinds)
        with NoSync():
            trial.train(frames=32 * 16)
        assert len(kinds) == count <= 2


@pytest.mark.parametrize(
    "waits",
    [
        lambda x, mask: x.sum().item(),
        lambda x, mask: x[mask],
        lambda x, mask: mask.nonzero(),
        lambda x, mask: x.to("meta"),
        lambda x, mask: bool(mask.any()),
        lambda x, mask: x.index_put_((mask,), torch.zeros(())),
    ],
)
def test_the_guard_finds_what_waits(waits):
    with pytest.raises(AssertionError, match="waits for the device"), NoSync():
        waits(torch.arange(4.0), torch.tensor([True, False, True, False]))
