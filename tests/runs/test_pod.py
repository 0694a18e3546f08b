"""Trials as a population uses them: without a folder, one beside another, one from another."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from sameness import assert_same

from torchrl_elegant import SACConfig, Trial
from torchrl_elegant.algorithms import D3QNConfig, PPOConfig, TD3Config

POINT = "faults.fault_envs:point"
SMALL = {"num_cells": (8,), "batch_size": 8}
KINDS = pytest.mark.parametrize(
    ("kind", "env"),
    [(SACConfig, POINT), (TD3Config, POINT), (PPOConfig, POINT), (D3QNConfig, "CartPole-v1")],
)


def weights(trial: Trial) -> torch.Tensor:
    return torch.cat([param.detach().flatten() for param in trial.learner.policy.parameters()])


def short(kind: type) -> dict:
    return SMALL if kind is PPOConfig else {**SMALL, "warmup": 20}


def test_a_pod_in_a_few_lines(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    plan = {"total_frames": 6_000, "eval_episodes": 2, "seed": 1}
    with Trial(SACConfig(**SMALL, warmup=100), POINT, **plan) as parent:
        parent.train(frames=200)
        published = parent.state_dict()
    with Trial(SACConfig(**SMALL, warmup=100, actor_lr=1e-2, gamma=0.9), POINT, **plan) as pod:
        pod.adopt(published)
        assert torch.equal(weights(pod), weights(parent))
        ledger = pod.train(frames=2_000)
        assert (ledger.frames, ledger.updates) == (2_000, 1_900)
        score, published = pod.evaluate().return_mean, pod.state_dict()
        rates = [group["lr"] for group in pod.learner.optimizer.param_groups]
        assert rates == [1e-2, 3e-4, 3e-4]
        assert float(pod.learner.loss.value_estimator.gamma) == pytest.approx(0.9)
    with Trial(SACConfig(**SMALL, warmup=100), POINT, **plan) as third:
        third.load_state_dict(published)
        assert torch.equal(weights(third), weights(pod))
        assert third.ledger.frames == 2_000
        assert np.isfinite(score)
    assert list(tmp_path.iterdir()) == []


@KINDS
def test_two_trials_do_not_touch_each_others_random_streams(kind, env):
    def trial() -> Trial:
        return Trial(kind(**short(kind)), env, total_frames=1_000, frames_per_batch=20, seed=3)

    with trial() as alone:
        for _ in range(3):
            alone.train(frames=40)
        expected = weights(alone).clone()
    with trial() as one, trial() as other:
        for part in (40, 40, 40):
            one.train(frames=part)
            torch.rand(7), np.random.rand(7)  # noqa: NPY002
            other.train(frames=part)
        assert torch.equal(weights(one), expected)
        assert torch.equal(weights(other), expected)


def test_a_trial_leaves_the_streams_of_its_caller_alone():
    def drawn(work) -> tuple:
        torch.manual_seed(5)
        np.random.seed(5)  # noqa: NPY002
        work()
        return torch.rand(3).tolist(), np.random.rand(3).tolist()  # noqa: NPY002

    def train() -> None:
        with Trial(SACConfig(**SMALL, warmup=20), POINT, total_frames=200) as trial:
            trial.train(frames=40)
            trial.evaluate(episodes=1)

    assert drawn(train) == drawn(lambda: None)


def test_other_seeds_give_other_weights():
    found = []
    for seed in (0, 1):
        with Trial(SACConfig(**SMALL), POINT, total_frames=2_000, seed=seed) as trial:
            found.append(weights(trial))
    assert not torch.equal(*found)


@KINDS
def test_quanta_are_one_run(kind, env):
    """In parts or as a whole, the same frames give the same weights."""
    found = []
    for parts in ((120,), (40, 40, 40)):
        with Trial(
            kind(**short(kind)), env, total_frames=120, frames_per_batch=20, seed=3
        ) as trial:
            for part in parts:
                trial.train(frames=part)
            assert trial.ledger.frames == 120
            found.append(weights(trial))
    assert torch.equal(*found)


def test_bounds_of_a_quantum():
    with Trial(SACConfig(**SMALL, warmup=20), POINT, total_frames=1_000) as trial:
        assert trial.train(updates=30).updates >= 30
        before = trial.ledger.frames
        assert trial.train(seconds=1e-9).frames > before
        assert trial.train().frames == 1_000
        with pytest.raises(ValueError, match="`frames` must be positive or None, got `0`"):
            trial.train(frames=0)


def test_a_published_state_stays_as_it_is():
    config = SACConfig(**SMALL, warmup=20, normalize_observation=True)
    with Trial(config, POINT, total_frames=1_000) as trial:
        trial.train(frames=100)
        published, again = trial.state_dict(), trial.state_dict()
        trial.train(frames=100)
        assert_same(published["learner"], again["learner"])
        with Trial(config, POINT, total_frames=1_000) as other:
            other.load_state_dict(published)
            other.train(frames=100)
        assert_same(published["learner"], again["learner"])


def test_statistics_and_add_ons_are_adopted():
    options = {**SMALL, "warmup": 20, "normalize_observation": True, "normalize_value": True}
    with Trial(SACConfig(**options), POINT, total_frames=1_000) as parent:
        parent.train(frames=100)
        published = parent.state_dict()
    with Trial(SACConfig(**options, critic_lr=1e-2), POINT, total_frames=1_000) as pod:
        pod.train(frames=40)
        pod.adopt(published)
        moments = pod.state_dict()["learner"]["add_ons"]["scaling"]["observations"]["observation"]
        assert_same(
            moments, published["learner"]["add_ons"]["scaling"]["observations"]["observation"]
        )
        assert pod.ledger.frames == 40


def test_a_state_is_loaded_before_the_first_frame():
    with Trial(SACConfig(**SMALL, warmup=20), POINT, total_frames=1_000) as trial:
        trial.train(frames=40)
        with pytest.raises(RuntimeError, match="must come before the trial's first frame, got one"):
            trial.load_state_dict(trial.state_dict())


def test_workers_take_up_adopted_weights():
    plan = {"total_frames": 400, "collector": "async", "num_workers": 1, "frames_per_batch": 4}
    config = SACConfig(**SMALL, warmup=20)
    with Trial(config, POINT, total_frames=400) as parent:
        parent.train(frames=100)
        published = parent.state_dict()
    with Trial(config, POINT, **plan) as pod:
        pod.train(frames=100)
        pod.adopt(published)
        assert torch.equal(weights(pod), weights(parent))
        assert pod.train().frames == 400


def test_updates_that_a_stop_left_owed_are_made_later():
    config = SACConfig(**SMALL, warmup=8, updates_per_frame=20.0)
    with Trial(config, POINT, total_frames=64, frames_per_batch=16) as trial:
        ledger = trial.train(frames=64)
        assert (ledger.frames, ledger.is_full) == (64, True)
        assert ledger.updates < 20 * 56
        assert trial.train().updates == 20 * 56
        assert (ledger.owed, ledger.frames) == (0.0, 64)


def test_a_trial_is_alone_whatever_launched_its_process(monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "2")
    with Trial(SACConfig(**SMALL, warmup=8), POINT, total_frames=64) as trial:
        assert trial.train(frames=16).frames == 16


def test_episodes_to_evaluate_are_at_least_one():
    with (
        Trial(SACConfig(**SMALL), POINT, total_frames=2_000) as trial,
        pytest.raises(ValueError, match="`episodes` must be at least 1, got `0`"),
    ):
        trial.evaluate(episodes=0)
