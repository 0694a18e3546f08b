"""Junk that an environment flags is neither stored, learned from nor counted."""

from __future__ import annotations

from itertools import pairwise

import pytest
import torch
from junk_toys import NextStep
from no_sync import NoSync
from torchrl.data import LazyTensorStorage, ReplayBuffer, Unbounded
from torchrl.envs.utils import check_env_specs

from torchrl_elegant import A2CConfig, HTermConfig, PPOConfig, SACConfig, Trial
from torchrl_elegant.collectors import SyncCollector
from torchrl_elegant.collectors.workers.buffer_writer import BufferWriter
from torchrl_elegant.config.text import UsageError
from torchrl_elegant.data import make_buffer
from torchrl_elegant.envs import Outcome
from torchrl_elegant.functional import devices, gae, junk_keys, junk_of
from torchrl_elegant.trainers.episode_returns import EpisodeReturns
from torchrl_elegant.trainers.evaluation import PolicyEvaluator
from torchrl_elegant.trainers.population.on_policy import OnPolicyMembers
from torchrl_elegant.trainers.rollout_learner import RolloutLearner

SMALL = {"num_cells": (8,), "batch_size": 16}
SAC = {**SMALL, "warmup": 40, "updates_per_frame": 0.1}


def collected(steps: int = 16, **options):
    return next(iter(SyncCollector(NextStep(), frames_per_batch=3 * steps, **options)))


def same_episode(rows):
    return bool((rows["observation"] == rows["next", "observation"])[..., :2].all())


def test_the_environment_keeps_torchrls_rules():
    check_env_specs(NextStep())


def test_collectors_flag_it_as_torchrl_does():
    batch = collected()
    real = batch["collector", "mask"]
    assert torch.equal(real, ~junk_of(batch))
    assert torch.equal(real, batch["next", "reward"].squeeze(-1) == 1.0)
    assert same_episode(batch[real])
    ids = batch["collector", "traj_ids"]
    assert not set(ids[real].tolist()) & set(ids[~real].tolist())


def test_a_buffer_inside_of_a_collector_is_refused():
    buffer = ReplayBuffer(storage=LazyTensorStorage(64))
    with pytest.raises(ValueError, match=r"`replay_buffer` must be None .* flags junk"):
        collected(replay_buffer=buffer)


@pytest.mark.parametrize(
    "options",
    [{}, {"n_steps": 3, "priority_alpha": 0.6, "long_return_weight": 0.1}],
    ids=["plain", "folded"],
)
def test_it_is_not_stored(options):
    config = SACConfig(**SAC, **options, normalize_observation=True)
    with Trial(config, NextStep, num_envs=3, total_frames=96, frames_per_batch=24) as trial:
        trial.train()
        rows = trial.store[:]
        assert "junk" not in rows
        assert same_episode(rows)
        assert (rows["next", "reward"] > 0).all()
        counted = trial.learner.add_ons["scaling"]._moments["observation"].count
    # Of the 96 frames, 8 + 6 + 5 ended an episode; the last step cannot be junk.
    played = 96 - (96 // 3 // 3 + 96 // 3 // 4 + 96 // 3 // 5)
    assert counted == played
    assert len(rows) == played if not options else len(rows) < played


class Rings:
    """Rings of one worker with three environments: a batch, its rows in the rings' order."""

    rows_per_slot = 48

    def __init__(self, batch):
        self.left = [(batch.reshape(-1), [])]

    def take(self, worker):
        return self.left.pop()


def test_workers_rows_are_stored_without_it():
    batch, buffer = collected(), make_buffer(size=500)
    writer = BufferWriter(Rings(batch), buffer, workers=1, envs=3)
    writer._move()
    assert same_episode(buffer[:])
    assert (len(buffer), writer.frames) == (36, 48)
    ((_, seen),) = writer.arrivals()
    assert junk_of(seen).sum() == 12


def learner_of(config):
    return RolloutLearner(config.assemble(NextStep()))


def test_minibatches_leave_it_out_and_nothing_bridges_it():
    learner = learner_of(PPOConfig(**SMALL))
    batch = NextStep().rollout(16, learner.policy, break_when_any_done=False).detach()
    rows = learner.rows(batch)
    assert len(rows) == batch.numel()
    seen = rows["observation"]
    assert (seen[:, 2] < seen[:, 0] + 2).all()  # junk begins at an episode's last observation
    estimated = learner._rollout_loss.estimate(batch.copy())
    real = ~junk_of(batch)
    for row in range(3):
        after = estimated[row]["next"]
        ends = [0, *(torch.where(after["done"][:, 0])[0] + 1).tolist(), 16]
        for begin, end in pairwise(ends):
            if begin == end or not real[row, begin]:
                continue
            part = estimated[row, begin:end]
            value, later = part["state_value"], part["next", "state_value"]
            flags = part["next", "terminated"], part["next", "done"]
            found = gae(part["next", "reward"], value, later, *flags, gamma=0.99, lmbda=0.95, dim=0)
            assert torch.allclose(found, part["advantage"], atol=1e-6)


@pytest.mark.parametrize("advantage", ["gae", "vtrace"])
def test_advantages_are_normalized_over_played_steps(advantage):
    learner = learner_of(A2CConfig(**SMALL, normalize_advantage=True, advantage=advantage))
    batch = NextStep().rollout(16, learner.policy, break_when_any_done=False).detach()
    found = learner._rollout_loss.estimate(batch)["advantage"][~junk_of(batch)]
    assert found.mean().abs() < 1e-6
    assert (found.std() - 1).abs() < 1e-5


def test_returns_and_lengths_count_episodes_alone():
    batch = collected(60)
    env = NextStep()
    for outcome_of in (batch, batch.exclude(("next", "episode_reward"))):
        returns = EpisodeReturns(outcome=Outcome.of(env), each=True)
        for part in outcome_of.split(7, dim=1):
            returns.add(part)
        # 20 episodes of 2 steps, 15 of 3, 12 of 4: each with the junk behind it.
        assert returns.take() == pytest.approx((20 * 2 + 15 * 3 + 12 * 4) / 47)
        lengths = [episode.length for episode in returns.take_each()]
        assert sorted(lengths) == [2] * 20 + [3] * 15 + [4] * 12


def test_evaluation_counts_episodes_alone():
    env = NextStep()
    policy = learner_of(PPOConfig(**SMALL)).policy
    found = PolicyEvaluator(env, policy, episodes=6).evaluate()
    assert sorted(found.lengths) == [2, 2, 3, 3, 4, 4]
    assert [*found.returns] == [float(length) for length in found.lengths]


@pytest.mark.parametrize(
    "config",
    [
        PPOConfig(**SMALL, recurrent=True, sequence_length=4),
        SACConfig(**SAC, recurrent=True, sequence_length=4, burn_in=2),
        SACConfig(**SAC, hterm=HTermConfig(horizon=2, slices=4)),
    ],
    ids=["ppo with a memory", "sac with a memory", "sac with the H-term"],
)
def test_whole_runs_train(config):
    with Trial(config, NextStep, num_envs=3, total_frames=96, frames_per_batch=48) as trial:
        trial.train()
        assert trial.ledger.frames == 96
        assert trial.ledger.updates > 0


def test_an_on_policy_loop_waits_for_nothing(monkeypatch):
    monkeypatch.setattr(devices, "reads_at_once", lambda device: False)
    config = PPOConfig(**SMALL, normalize_observation=True, normalize_value=True)
    with Trial(config, NextStep, num_envs=3, total_frames=192, frames_per_batch=48) as trial:
        trial.train(frames=96)
        with NoSync():
            trial.train(frames=96)
        assert trial.ledger.frames == 192


def test_another_entry_of_that_name_is_refused():
    env = NextStep()
    specs = env.observation_spec.clone()
    specs["junk"] = Unbounded((3, 2))
    env.observation_spec = specs
    with pytest.raises(ValueError, match=r"observation `junk` must be a flag .* another name"):
        junk_keys(env)


def test_a_rollout_of_one_step_is_refused():
    config = PPOConfig(num_cells=(8,), batch_size=2)
    trial = Trial(config, NextStep, num_envs=3, total_frames=60, frames_per_batch=3)
    with trial, pytest.raises(UsageError, match="`frames_per_batch` must be at least 6"):
        trial.train()


def test_a_vectorized_population_is_refused():
    configs = [PPOConfig(**SMALL)] * 2
    learners = [learner_of(config) for config in configs]
    with pytest.raises(UsageError, match="`env` must flag no junk"):
        OnPolicyMembers(
            learners, [None] * 2, NextStep(num_envs=4), configs=configs, frames_per_batch=8
        )
