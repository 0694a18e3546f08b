"""Noise in collectors: without a TensorDict, of each environment's own, new with each episode."""

from __future__ import annotations

from functools import partial

import gymnasium
import pytest
import torch
from batched_toys import Drift, Masked
from torchrl.collectors import Collector
from torchrl.data import LazyTensorStorage, TensorDictReplayBuffer
from torchrl.envs import GymWrapper, SerialEnv, StepCounter, TransformedEnv

from torchrl_elegant.collectors import AsyncCollector, SyncCollector
from torchrl_elegant.envs import make_env
from torchrl_elegant.modules import (
    DeterministicActor,
    GaussianNoise,
    MixedNoise,
    NoisyActor,
    OrnsteinUhlenbeckNoise,
)

pytestmark = pytest.mark.filterwarnings("ignore")


def noisy(noise, features: int = 3, actions: int = 1) -> NoisyActor:
    """Plays nothing but noise."""
    actor = DeterministicActor(
        observation={"observation": (features,)},
        low=[-1.0] * actions,
        high=[1.0] * actions,
        num_cells=(4,),
    )
    for param in actor.parameters():
        param.data.zero_()
    return NoisyActor(actor, noise)


def drifting(*sizes: int) -> NoisyActor:
    return noisy(OrnsteinUhlenbeckNoise(sigma=0.05), *sizes)


def pendulum(steps: int) -> GymWrapper:
    return GymWrapper(gymnasium.make("Pendulum-v1", max_episode_steps=steps))


def check_decay(collector: Collector, policy: NoisyActor) -> None:
    """Once the noise is switched off 0.85 of the last action is left, nothing in a new episode."""
    iterator = iter(collector)
    first = next(iterator)
    drawn, begun = first["action"], first["next", "done"][:, -1].squeeze(-1).clone()
    assert len(drawn.unique()) == drawn.numel()
    policy.noise.set_scale(0.0)
    batch = next(iterator)
    collector.shutdown()
    last = drawn[:, -1]
    for t in range(batch.shape[1]):
        # Episodes end one after the other, so that old and new ones stand side by side.
        last = torch.where(begun.unsqueeze(-1), 0.0, 0.85 * last)
        torch.testing.assert_close(batch["action"][:, t], last)
        begun |= batch["next", "done"][:, t].squeeze(-1)
    assert begun.all()


def test_simulators_of_gymnasium():
    env, policy = SerialEnv(3, [partial(pendulum, n) for n in (5, 6, 7)]), drifting()
    collector = SyncCollector(env, policy, frames_per_batch=12, total_frames=-1)
    assert collector.is_lean
    check_decay(collector, policy)


def test_one_simulator_without_a_batch():
    policy = drifting()
    collector = SyncCollector(pendulum(6), policy, frames_per_batch=4, total_frames=-1)
    assert collector.is_lean
    iterator = iter(collector)
    next(iterator)
    policy.noise.set_scale(0.0)
    actions = next(iterator)["action"].squeeze(-1)
    assert actions[:2].all()
    assert not actions[2:].any()


@pytest.mark.parametrize("make", [Drift, Masked])
def test_batched_environments(make):
    policy = drifting(2, 2)
    collector = SyncCollector(make(3, length=5), policy, frames_per_batch=12, total_frames=-1)
    assert collector.is_lean
    check_decay(collector, policy)


def test_spreads_are_drawn_anew_where_an_episode_ends():
    policy = noisy(MixedNoise(std=0.5, least=0.1), 2, 2)
    env = Drift(3, length=5)
    collector = SyncCollector(env, policy, frames_per_batch=3, total_frames=-1)
    assert collector.is_lean
    parts, ends = [], []
    for _, batch in zip(range(8), collector, strict=False):
        parts.append(policy.noise._part.clone())
        ends.append(batch["next", "done"][:, -1].squeeze(-1))
    collector.shutdown()
    for before, after, ended in zip(parts[:-1], parts[1:], ends[1:], strict=True):
        assert torch.equal((before != after).squeeze(-1), ended)
    assert torch.stack(ends).any()


def test_torchrls_collector():
    env, policy = SerialEnv(3, [partial(pendulum, n) for n in (5, 6, 7)]), drifting()
    env = TransformedEnv(env, StepCounter())
    check_decay(Collector(env, policy, frames_per_batch=12, total_frames=-1), policy)


@pytest.mark.parametrize(
    "noise",
    [GaussianNoise(std=0.2), OrnsteinUhlenbeckNoise(sigma=0.2), MixedNoise(std=0.3, least=0.1)],
)
def test_our_environments_are_collected_from_directly(noise):
    policy = noisy(noise)
    collector = SyncCollector(
        make_env("Pendulum-v1", 4, seed=0), policy, frames_per_batch=40, total_frames=40
    )
    assert collector.is_lean
    policy.forward = None  # whoever would call it with a TensorDict fails
    (batch,) = list(collector)
    assert len(batch["action"].unique()) == 40
    assert torch.corrcoef(batch["action"].squeeze(-1)).fill_diagonal_(0.0).abs().max() < 0.9


def test_worker_processes_have_noise_of_their_own_and_its_scale_from_here():
    buffer = TensorDictReplayBuffer(storage=LazyTensorStorage(2_000), batch_size=8)
    policy = noisy(OrnsteinUhlenbeckNoise(sigma=0.1))
    policy.act(torch.zeros(1, 3))  # has a state when it is copied
    collector = AsyncCollector(
        partial(make_env, "Pendulum-v1"),
        policy,
        num_workers=2,
        replay_buffer=buffer,
        frames_per_batch=10,
        total_frames=-1,
        slack_batches=1,
        seed=0,
        auto_register_policy_transforms=False,
    )
    with collector:
        collector.start()
        collector.wait_for(100)
        drawn = buffer[:]["action"]
        assert len(drawn.unique()) == drawn.numel()
        policy.noise.set_scale(0.0)
        collector.update_policy_weights_(policy)
        collector.wait_for(collector.frames + 1_000)
        # 0.85^50 of the old noise is left at most.
        assert buffer[-20:]["action"].abs().max() < 1e-3
