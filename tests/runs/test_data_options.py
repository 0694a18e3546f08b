"""Priorities, longer steps, running scales and the return fit, in whole runs."""

from __future__ import annotations

import threading
from pathlib import Path

import numpy as np
import pytest
import torch
from faults.runs import checkpoints, saved_learner
from tensordict import TensorDict

from torchrl_elegant.algorithms import ModSACConfig, PPOConfig, SACConfig
from torchrl_elegant.collectors import SyncCollector
from torchrl_elegant.config.text import UsageError
from torchrl_elegant.data import MultiStepFold, Priority, make_buffer
from torchrl_elegant.envs import make_env
from torchrl_elegant.runs.policy import Policy
from torchrl_elegant.runs.train import resume, train
from torchrl_elegant.trainers import off_policy
from torchrl_elegant.trainers.learner import Learner
from torchrl_elegant.trainers.ledger import Ledger
from torchrl_elegant.trainers.rollout_learner import RolloutLearner
from torchrl_elegant.trainers.sources import SyncSource

POINT = "faults.fault_envs:point"
SMALL = {"num_cells": (8,), "batch_size": 8, "warmup": 20, "buffer_size": 1_000}
NORMALISED = {"normalize_observation": True, "normalize_value": True}
EVERYTHING = {"n_steps": 3, "priority_alpha": 0.6, "long_return_weight": 0.1, **NORMALISED}


def settings(tmp_path: Path, **run) -> dict:
    return {
        "total_frames": 120,
        "frames_per_batch": 4,
        "eval_episodes": 1,
        "eval_interval": 1_000,
        "checkpoint_interval": 1_000,
        "logger": "none",
        "progress": False,
        "folder": str(tmp_path / "run"),
        **run,
    }


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch) -> list:
    """Source, buffer and learner of every run."""
    seen, run = [], off_policy.train_off_policy

    def spy(source, buffer, learner, watcher, **kwargs):
        seen.append((source, buffer, learner))
        return run(source, buffer, learner, watcher, **kwargs)

    monkeypatch.setattr(off_policy, "train_off_policy", spy)
    return seen


# ---- the ratio of updates to frames -------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "envs", "batch"), [({"n_steps": 3}, 1, 1), (EVERYTHING, 2, 2), (EVERYTHING, 4, 16)]
)
def test_frames_and_updates_stay_exact_over_a_resume(tmp_path, runs, options, envs, batch):
    config = SACConfig(**SMALL, updates_per_frame=0.5, **options)
    result = train(config, POINT, **settings(tmp_path, num_envs=envs, frames_per_batch=batch))
    assert (result.history[-1]["frames"], result.history[-1]["updates"]) == (120, 50)
    more = resume(result.folder, total_frames=200)
    assert (more.history[-1]["frames"], more.history[-1]["updates"]) == (200, 90)
    # What waits for the end of its span when a run ends is all that is not stored.
    _, buffer, _ = runs[-1]
    assert 200 - 2 * envs * (config.span - 1) <= len(buffer) <= 200


def test_workers_keep_the_ratio_with_all_options(tmp_path, runs):
    config = SACConfig(
        **{**SMALL, "warmup": 0}, updates_per_frame=0.25, priority_beta=(0.2, 1.0), **EVERYTHING
    )
    run = settings(tmp_path, collector="async", num_workers=2, num_envs=2, total_frames=402)
    result = train(config, POINT, **run)
    assert (result.history[-1]["frames"], result.history[-1]["updates"]) == (402, 100)
    _, buffer, learner = runs[-1]
    # 402 frames end in a cut batch of 2, which has no steps in time.
    assert 400 - 2 * 2 * (config.span - 1) <= len(buffer) <= 400
    rows = buffer[:]
    assert rows["steps_to_next_obs"].max() == 3
    # No row begins with one worker and ends with another: an episode keeps its place on the line,
    # and each of its 20 steps moves its clock by a twentieth.
    for after in (rows["next"], rows["ahead"]):
        place, step = (after["observation"] - rows["observation"]).unbind(-1)
        assert place.abs().max() == 0
    steps = rows["ahead", "steps_to_next_obs"] / 20
    torch.testing.assert_close(step, steps.view_as(step))
    # The end of the run undoes all of the priorities' bias.
    assert buffer.sampler.beta == pytest.approx(1.0)
    # Every row was seen, once, by the learner, and what was stored is what it knew.
    assert learner.add_ons["scaling"].returns.moments.count == 400
    stored = saved_learner(checkpoints(result.folder)[-1])["add_ons"]["scaling"]
    assert stored["returns"]["count"] == stored["observations"]["observation"]["count"] == 400


def test_a_source_pays_when_the_first_row_is_there():
    env = make_env(POINT, 2, seed=0)
    ledger = Ledger(total_frames=12, updates_per_frame=1.0)
    learner = Learner(SACConfig(**SMALL).assemble(env), ledger=ledger)
    buffer = make_buffer(size=100)
    collector = SyncCollector(
        env,
        learner.policy,
        frames_per_batch=2,
        total_frames=-1,
        auto_register_policy_transforms=False,
    )
    source = SyncSource(
        collector,
        buffer,
        learner,
        keys=learner.loss.in_keys,
        fold=MultiStepFold(gamma=0.9, n_steps=3),
    )
    asked = []
    for updates in source:
        ledger.updates += updates
        asked.append((updates, len(buffer)))
    source.shutdown()
    assert asked == [(0, 0), (0, 0), (6, 2), (2, 4), (2, 6), (2, 8)]


def test_a_cut_batch_is_folded_in_whole_steps(tmp_path, runs):
    config = SACConfig(**SMALL, n_steps=2)
    run = settings(tmp_path, num_envs=4, frames_per_batch=16, total_frames=70)
    result = train(config, POINT, **run)
    assert (result.history[-1]["frames"], result.history[-1]["updates"]) == (70, 50)
    # 4 whole batches and one of the two steps that 6 frames begin; the last of each env waits.
    assert len(runs[-1][1]) == 64 + 4 - 4


# ---- priorities ---------------------------------------------------------------------------------


def prioritized(rows: int = 64):
    buffer = make_buffer(size=100, priority=Priority())
    buffer.extend(TensorDict({"x": torch.arange(float(rows))}, [rows]))
    return buffer


def test_each_batch_is_drawn_after_the_last_was_filed():
    buffer = prioritized()
    drawn = []
    for batch in off_policy.draw(buffer, 16, 4):
        drawn.append(batch["x"])
        batch["td_error"] = torch.full((16,), 1e6)  # beside which all other rows are unlikely
    assert len(drawn) == 4
    assert all(torch.isin(rows, drawn[0]).float().mean() > 0.9 for rows in drawn)
    filed = buffer.sampler._sum_tree[torch.arange(64)] > 1e3
    assert filed.nonzero().flatten().tolist() == sorted(set(torch.cat(drawn).tolist()))


def test_uniform_rows_are_drawn_together_and_told_nothing(monkeypatch):
    buffer = make_buffer(size=100)
    buffer.extend(TensorDict({"x": torch.arange(64.0)}, [64]))
    monkeypatch.setattr(buffer, "update_tensordict_priority", None)
    sizes, sample = [], buffer.sample
    monkeypatch.setattr(buffer, "sample", lambda size: sizes.append(size) or sample(size))
    assert [len(rows) for rows in off_policy.draw(buffer, 8, 3)] == sizes == [24]


def test_the_weights_reach_the_loss():
    learner = Learner(SACConfig(**SMALL).assemble(make_env("Pendulum-v1")))
    batch = make_env("Pendulum-v1", 8).rollout(1).reshape(-1)
    per_row = []
    for row in range(2):
        torch.manual_seed(1)
        weight = torch.zeros(8)
        weight[row] = 1.0
        per_row.append(learner.loss(batch.clone().set("priority_weight", weight))["loss_qvalue"])
    torch.manual_seed(1)
    both = torch.tensor([1.0, 3.0, *[0.0] * 6])
    found = learner.loss(batch.clone().set("priority_weight", both))["loss_qvalue"]
    torch.testing.assert_close(found, (per_row[0] + 3 * per_row[1]) / 4)


def test_the_configured_part_of_the_bias_is_undone():
    config = SACConfig(**SMALL, priority_alpha=0.5, priority_beta=0.25)
    buffer = make_buffer(size=2, priority=config.priority())
    buffer.extend(TensorDict({"x": torch.arange(2)}, [2]))
    buffer.update_priority(torch.arange(2), torch.tensor([1.0, 16.0]))
    batch = buffer.sample(64)
    expected = torch.where(batch["x"] == 0, 1.0, 16.0 ** -(0.5 * 0.25))
    torch.testing.assert_close(batch["priority_weight"], expected)
    assert expected.unique().numel() == 2


def test_the_correction_grows_to_all_of_it_and_a_run_goes_on_where_it_was(tmp_path, runs):
    seen = []
    result = train(
        SACConfig(**SMALL, priority_alpha=0.6, priority_beta=(0.2, 1.0)),
        POINT,
        **settings(tmp_path),
    )
    _, buffer, learner = runs[-1]
    assert buffer.sampler.beta == pytest.approx(1.0)
    for ramp in learner.ramps:
        for progress in (0.0, 0.5):
            ramp.at(progress)
            seen.append(buffer.sampler.beta)
    assert seen == [pytest.approx(0.2), pytest.approx(0.6)]
    before = buffer.sampler._sum_tree[torch.arange(len(buffer))].clone()
    assert before.unique().numel() > 50
    started = []

    def note(self):
        started.append((self._buffer.sampler.beta, self._buffer.sampler._sum_tree[range(120)]))
        return iter(())

    original, SyncSource.__iter__ = SyncSource.__iter__, note
    try:
        resume(result.folder, total_frames=240)
    finally:
        SyncSource.__iter__ = original
    ((beta, priorities),) = started
    assert beta == pytest.approx(0.2 + 0.8 * 0.5)
    torch.testing.assert_close(priorities, before)


def test_rows_arrive_while_priorities_are_filed():
    """Extended by one thread, drawn and updated by another: each stays whole."""
    buffer = make_buffer(size=256, priority=Priority(alpha=1.0))
    failures: list[BaseException] = []
    stop = threading.Event()

    def rows(first: int, count: int) -> TensorDict:
        x = torch.arange(first, first + count, dtype=torch.float64)
        return TensorDict({"x": x, "next": {"y": -x}}, [count])

    def extend() -> None:
        try:
            for first in range(16, 4_000, 16):
                buffer.extend(rows(first, 16))
        except BaseException as failure:
            failures.append(failure)
        finally:
            stop.set()

    buffer.extend(rows(0, 16))
    thread = threading.Thread(target=extend)
    thread.start()
    updates = 0
    while not stop.is_set() or updates < 50:
        for batch in off_policy.draw(buffer, 32, 4):
            assert torch.equal(batch["x"], -batch["next", "y"])
            assert 0 < batch["priority_weight"].min() <= batch["priority_weight"].max() <= 1
            batch["td_error"] = torch.rand(32) + 0.1
            updates += 1
    thread.join()
    assert not failures
    tree = buffer.sampler._sum_tree
    leaves = tree[torch.arange(256)].double()
    assert (leaves > 0).all()
    assert tree.query(0, 256) == pytest.approx(leaves.sum().item())


# ---- running scales -----------------------------------------------------------------------------


def test_a_normalised_policy_is_stored_with_its_scales(tmp_path):
    config = SACConfig(**SMALL, **NORMALISED)
    result = train(config, "Pendulum-v1", **settings(tmp_path))
    norm = result.policy.norm
    assert norm.scale_0.max() != 1.0
    stored = Policy.load(result.folder / "policy.pt")
    assert torch.equal(stored.actor.norm.mean_0, norm.mean_0)
    assert torch.equal(stored.actor.norm.scale_0, norm.scale_0)
    seen = np.array([0.1, 0.9, -1.0], np.float32)
    loc, _ = result.policy.actor.parameters_of([norm("observation", torch.from_numpy(seen))])
    assert stored(seen) == pytest.approx(2 * loc.tanh().detach().numpy(), abs=1e-5)


def test_statistics_go_on_over_a_resume(tmp_path, runs):
    result = train(SACConfig(**SMALL, **NORMALISED), POINT, **settings(tmp_path))
    assert runs[-1][2].add_ons["scaling"].returns.moments.count == 120
    resume(result.folder, total_frames=160)
    scaling = runs[-1][2].add_ons["scaling"]
    assert scaling.returns.moments.count == 160
    assert scaling._moments["observation"].count == 160


def test_states_are_learnt_from_as_the_critic_knows_them(tmp_path, runs):
    """Newly collected states of a loss that observes are prepared too."""
    config = ModSACConfig(**SMALL, std_regularization=0.1, **NORMALISED)
    result = train(config, POINT, **settings(tmp_path))
    assert result.history[-1]["updates"] == 100


def rollout_learner(**options):
    env = make_env("Pendulum-v1", 4, seed=0)
    config = PPOConfig(num_cells=(8,), **options)
    learner = RolloutLearner(config.assemble(env))
    collector = SyncCollector(
        env,
        learner.policy,
        frames_per_batch=80,
        total_frames=-1,
        auto_register_policy_transforms=False,
    )
    return learner, iter(collector)


def test_a_rollout_is_read_as_the_policy_saw_it():
    learner, rollouts = rollout_learner(**NORMALISED)
    for _ in range(3):
        rows = learner.rows(next(rollouts))
        terms = learner.loss(rows)
        # The stored log-probabilities are those of the present weights at the prepared rows.
        assert terms["kl_approx"].abs().item() < 1e-6
        assert terms["clip_fraction"].item() == 0
    assert learner.add_ons["scaling"]._moments["observation"].count == 240
    assert learner.add_ons["scaling"].returns.moments.count == 240


def test_a_rollout_would_be_misread_with_later_scales():
    learner, rollouts = rollout_learner(**NORMALISED)
    learner.rows(next(rollouts))
    rollout = next(rollouts)
    learner.add_ons["scaling"].norm.scale_0.mul_(2.0)
    assert learner.loss(learner.rows(rollout))["kl_approx"].abs().item() > 1e-4


def test_the_first_rollouts_rewards_are_scaled_already():
    learner, rollouts = rollout_learner(normalize_value=True)
    rollout = next(rollouts)
    targets = learner.rows(rollout)["value_target"]
    plain, _ = rollout_learner()
    plain.loss.load_state_dict(learner.loss.state_dict())
    unscaled = plain.rows(rollout)["value_target"]
    assert unscaled.std() > 10 * targets.std()


@pytest.mark.parametrize("scale", [0.5, 4.0])
def test_a_given_scale_counts_beside_the_running_one(scale):
    both, rollouts = rollout_learner(normalize_value=True, reward_scale=scale)
    running, _ = rollout_learner(normalize_value=True)
    for learner in (both, running):
        # Without values, targets are sums of rewards.
        for param in learner.loss.critic_network.parameters():
            param.data.zero_()
    rollout = next(rollouts)
    found, expected = (each.rows(rollout.clone())["value_target"] for each in (both, running))
    assert expected.std() > 0.1
    torch.testing.assert_close(found, scale * expected)


def test_ppo_with_running_scales_runs_and_goes_on(tmp_path):
    config = PPOConfig(num_cells=(8,), batch_size=16, epochs=2, reward_scale=0.5, **NORMALISED)
    result = train(config, POINT, **settings(tmp_path, frames_per_batch=40, num_envs=2))
    assert result.history[-1]["frames"] == 120
    assert resume(result.folder, total_frames=200).history[-1]["frames"] == 200


# ---- what cannot be changed ---------------------------------------------------------------------


def test_rows_of_another_form_are_refused_when_a_run_goes_on(tmp_path):
    result = train(SACConfig(**SMALL), POINT, **settings(tmp_path))
    config = result.folder / "config.yaml"
    text = config.read_text()
    for word, value in (("n_steps", "1"), ("long_return_weight", "0.0")):
        line = f"  {word}: {value}"
        config.write_text(text.replace(line, line[:-1] + "3"))
        assert config.read_text() != text
        with pytest.raises(UsageError, match=f"`{word}`"):
            resume(result.folder, total_frames=200)


@pytest.mark.parametrize(("before", "after"), [("null", "0.6"), ("0.6", "null"), ("0.6", "0.3")])
def test_a_run_can_take_up_or_leave_off_priorities(tmp_path, runs, before, after):
    alpha = None if before == "null" else float(before)
    result = train(SACConfig(**SMALL, priority_alpha=alpha), POINT, **settings(tmp_path))
    config = result.folder / "config.yaml"
    text = config.read_text()
    config.write_text(text.replace(f"priority_alpha: {before}", f"priority_alpha: {after}"))
    assert config.read_text() != text
    assert resume(result.folder, total_frames=160).history[-1]["updates"] == 140
    if after != "null":
        assert runs[-1][1].sampler.alpha == float(after)


@pytest.mark.parametrize(
    ("options", "name"),
    [
        ({"n_steps": 0}, "n_steps"),
        ({"priority_alpha": -0.1}, "priority_alpha"),
        ({"priority_alpha": 0.6, "priority_beta": 1.5}, "priority_beta"),
        ({"priority_beta": 0.5}, "priority_beta"),
        ({"long_return_weight": -1.0}, "long_return_weight"),
        ({"long_return_weight": float("inf")}, "long_return_weight"),
        ({"long_return_weight": 0.1, "long_return_steps": 1}, "long_return_steps"),
        ({"long_return_weight": 0.1, "n_steps": 20}, "long_return_steps"),
        ({"long_return_steps": 8}, "long_return_steps"),
    ],
)
def test_refusals(options, name):
    with pytest.raises(ValueError, match=f"`{name}` must .*, got `"):
        SACConfig(**options)


def test_a_run_has_to_be_longer_than_a_row():
    with pytest.raises(ValueError, match="`total_frames` must exceed the 5 steps of one row"):
        SACConfig(n_steps=5, warmup=0).check_budget(total_frames=5, frames_per_batch=1)
    with pytest.raises(ValueError, match="in each of 64 environments, got `3000`"):
        SACConfig(n_steps=50).check_budget(total_frames=3000, frames_per_batch=64, num_envs=64)
