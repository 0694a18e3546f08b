"""REDQ's configuration, what it builds, and when its actor learns."""

from __future__ import annotations

import pytest
import torch

from torchrl_elegant.algorithms import ALGORITHMS, REDQConfig
from torchrl_elegant.config.options import options_of
from torchrl_elegant.envs import make_env
from torchrl_elegant.objectives import REDQLoss
from torchrl_elegant.trainers.learner import Learner


def build(**options):
    return REDQConfig(num_cells=(8,), **options).build(make_env("Pendulum-v1"))


def test_it_is_registered_and_documented():
    assert ALGORITHMS["redq"] is REDQConfig
    assert all(item.help for item in options_of(REDQConfig).values())


def test_defaults_are_the_papers():
    config, parts = REDQConfig(), build()
    assert (config.num_critics, config.target_members, config.updates_per_frame) == (10, 2, 20)
    assert type(parts.loss) is REDQLoss
    assert (parts.loss.num_qvalue_nets, parts.loss.sub_sample_len) == (10, 2)
    assert parts.loss.target_rule == "min"
    assert parts.loss.min_log_alpha is None
    held = [id(p) for group in parts.optimizer.param_groups for p in group["params"]]
    assert sorted(held) == sorted(id(p) for p in parts.loss.parameters())


def test_options_arrive():
    loss = build(num_critics=4, target_members=None).loss
    assert (loss.num_qvalue_nets, loss.sub_sample_len) == (4, 4)
    loss = build(num_critics=3, target_members=None, target="weighted", loss_function="l1").loss
    assert (loss.sub_sample_len, loss.target_rule, loss.loss_function) == (3, "weighted", "l1")
    assert build(temperature="fixed", alpha=0.05).loss.log_alpha.exp().item() == pytest.approx(0.05)


@pytest.mark.parametrize(("updates", "period"), [(20, 20), (1, 1), (0.25, 1), (2.6, 3)])
def test_the_actor_follows_once_a_frame(updates, period):
    assert REDQConfig(updates_per_frame=updates).build_schedule().period == period


def test_the_actor_learns_after_the_last_critic_update_of_a_frame():
    env = make_env("Pendulum-v1", num_envs=8)
    learner, batch = Learner(build(updates_per_frame=4)), env.rollout(1).reshape(-1)
    actor = list(learner.loss.actor_network_params.parameters())
    critic = list(learner.loss.qvalue_network_params.parameters())
    moved = []
    for _ in range(8):
        before = [p.clone() for p in (*actor, *critic)]
        metrics = learner.update(batch.clone())
        after = [not torch.equal(p, q) for p, q in zip(before, (*actor, *critic), strict=True)]
        assert all(after[len(actor) :])
        assert ("loss_actor" in metrics) == ("loss_alpha" in metrics) == all(after[: len(actor)])
        moved.append(any(after[: len(actor)]))
    assert moved == [False, False, False, True] * 2
    assert set(metrics) <= set(learner.metric_names)
    assert all(value.ndim == 0 for value in metrics.values())


def test_frames_are_handed_over_at_once():
    assert REDQConfig().frames_per_batch(total_frames=1000, num_envs=4) == 4


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"target_members": 11}, r"`target_members` must lie between 1 and num_critics \(10\)"),
        ({"num_critics": 1}, r"`target_members` must lie between 1 and num_critics \(1\), got `2`"),
        ({"target": "mean"}, "`target` must be one of subset, weighted, got `mean`"),
        ({"target": "weighted"}, "`target_members` must be none with target=weighted.*, got `2`;"),
        ({"updates_per_frame": 0.0}, "`updates_per_frame` must be a finite number above 0, got `0"),
    ],
)
def test_refusals(options, message):
    with pytest.raises(ValueError, match=message):
        REDQConfig(**options)
