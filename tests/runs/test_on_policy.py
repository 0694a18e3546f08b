"""Runs of algorithms that learn from each rollout once."""

from __future__ import annotations

import math
import os
import signal
import subprocess
import sys
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import replace
from pathlib import Path

import gymnasium
import numpy as np
import pytest
import torch
from faults.fault_envs import Point, huge_reward
from faults.runs import SCRIPTS, check_folder, checkpoints, environment, saved_frames, saved_learner
from gymnasium import spaces
from quiet_runs import short_run
from sameness import assert_same
from tensordict import TensorDict
from torchrl.envs.utils import ExplorationType, set_exploration_type

from torchrl_elegant.algorithms import A2CConfig, PPOConfig, SACConfig
from torchrl_elegant.cli.training import train_command
from torchrl_elegant.collectors import WorkerDiedError
from torchrl_elegant.config.text import UsageError
from torchrl_elegant.envs import make_env
from torchrl_elegant.modules import CategoricalActor
from torchrl_elegant.runs.metrics import read_metrics
from torchrl_elegant.runs.policy import Policy
from torchrl_elegant.runs.train import TrainResult, resume, run_with, stored_run
from torchrl_elegant.trainers import on_policy
from torchrl_elegant.trainers.clock import PACE_COLUMNS, Clock
from torchrl_elegant.trainers.learner import DivergedError
from torchrl_elegant.trainers.on_policy import train_on_policy
from torchrl_elegant.trainers.rollout_learner import RolloutLearner
from torchrl_elegant.trainers.sources import WorkerRollouts

SMALL = PPOConfig(num_cells=(8,), batch_size=10, epochs=2)
POINT = "faults.fault_envs:point"


@pytest.fixture
def go(tmp_path: Path):
    def start(config: PPOConfig = SMALL, env=POINT, name: str = "run", **run) -> TrainResult:
        run = {"frames_per_batch": 30, **run}
        return short_run(config, env, tmp_path / name, 120, **run)

    return start


@pytest.fixture
def learners(monkeypatch: pytest.MonkeyPatch) -> list[tuple[RolloutLearner, dict]]:
    """The learner of every run of a test, and its state when the run's loop began."""
    seen: list[tuple[RolloutLearner, dict]] = []
    loop = on_policy.train_on_policy

    def spy(source, learner, watcher, **kwargs):
        seen.append((learner, deepcopy(learner.state_dict())))
        return loop(source, learner, watcher, **kwargs)

    monkeypatch.setattr(on_policy, "train_on_policy", spy)
    return seen


def measured(result: TrainResult) -> list[str]:
    """Rows without what a clock says; texts, because a column without a value is NaN."""
    timed = ("seconds", *PACE_COLUMNS)
    return [str({k: v for k, v in row.items() if k not in timed}) for row in result.history]


def weights(result: TrainResult) -> torch.Tensor:
    return torch.cat([param.detach().reshape(-1) for param in result.policy.parameters()])


# ---- the loop -----------------------------------------------------------------------------------


class Stage:
    """Source, learner and monitor of a loop, which write down what is asked of them."""

    activity = "collect"

    def __init__(self, rollouts: int, stop_after: int = 99, far_after: int = 99) -> None:
        self.rollouts, self.stop_after, self.far_after = rollouts, stop_after, far_after
        self.told: list[str] = []
        self.seen: list[list[int]] = []
        self.clock = Clock()

    def __iter__(self):
        yield from (TensorDict({"row": torch.arange(5)}, [5]) for _ in range(self.rollouts))

    def rows(self, rollout):
        self.told.append("rows")
        return rollout

    def learn(self, rows, batch_size):
        for batch in rows.split(batch_size):
            self.told.append("update")
            self.seen.append(batch["row"].tolist())
            yield {"loss_objective": torch.zeros(())}

    def is_far(self, rows):
        assert rows.shape == (5,)
        self.told.append("is_far")
        return self.told.count("is_far") >= self.far_after

    def report(self, rows):
        self.told.append("report")
        return {"kl_approx": torch.zeros(())}

    def note(self, metrics):
        self.told.append(f"note {next(iter(metrics))}")

    def push(self, updates):
        self.told.append("push")

    def after(self, source):
        self.told.append("after")
        return self.told.count("after") < self.stop_after

    def finish(self, source):
        self.told.append("finish")


def test_the_order_of_a_round():
    stage = Stage(1)
    train_on_policy(stage, stage, stage, epochs=2, batch_size=3)
    epoch = [*["update", "note loss_objective"] * 2, "is_far"]
    assert stage.told == [
        "rows",
        *epoch * 2,
        "report",
        "note kl_approx",
        "push",
        "after",
        "finish",
    ]
    # Each epoch all rows once, in an order of its own.
    epochs = [stage.seen[:2], stage.seen[2:]]
    rows = [sorted(row for batch in epoch for row in batch) for epoch in epochs]
    assert rows == [list(range(5))] * 2


def test_the_monitor_ends_the_run():
    stage = Stage(5, stop_after=2)
    train_on_policy(stage, stage, stage, epochs=1, batch_size=5)
    assert stage.told.count("rows") == 2
    assert stage.told[-1] == "finish"


def test_a_policy_that_has_moved_far_ends_the_epochs_of_its_rollout():
    stage = Stage(2, far_after=2)
    train_on_policy(stage, stage, stage, epochs=3, batch_size=5)
    # Far after the second epoch of the first rollout, and after each of the next.
    assert stage.told.count("update") == 3
    assert stage.told.count("push") == 2


# ---- the learner --------------------------------------------------------------------------------


def learner_and_rollout(**options):
    env = make_env("Pendulum-v1", 3, seed=0)
    learner = RolloutLearner(PPOConfig(num_cells=(8,), **options).build(env))
    with torch.no_grad():
        return learner, env.rollout(7, learner.policy)


@pytest.mark.parametrize("options", [{}, {"clip_value": 0.2, "entropy_coeff": 0.01}])
def test_rows_are_the_steps_with_their_advantages(options):
    learner, rollout = learner_and_rollout(**options)
    rows = learner.rows(rollout)
    assert rows.shape == (21,)
    assert set(rows.keys(True, True)) == set(learner.loss.row_keys)
    torch.testing.assert_close(rows["observation"], rollout["observation"].reshape(21, 3))
    expected = learner.loss.estimate(rollout)["advantage"].reshape(21, 1)
    torch.testing.assert_close(rows["advantage"], expected)
    metrics = learner.update(rows)
    assert all(not value.requires_grad for value in metrics.values())
    assert {"loss_objective", "loss_critic"} <= set(metrics)


def test_a_report_says_how_far_the_policy_has_moved():
    learner, rollout = learner_and_rollout(lr=1e-2)
    rows = learner.rows(rollout)
    before = learner.report(rows)
    assert before["kl_approx"].item() == pytest.approx(0.0, abs=1e-6)
    assert before["clip_fraction"].item() == 0.0
    for _ in range(10):
        learner.update(rows)
    after = learner.report(rows)
    assert after["clip_fraction"].item() > 0.0
    assert after["max_ratio"].item() > before["max_ratio"].item()
    assert not any(name.startswith("loss_") for name in after)
    assert set(after) | {"loss_objective", "loss_critic"} == set(learner.metric_names)
    assert all(value.ndim == 0 for value in after.values())


def test_how_far_a_policy_may_move_is_measured_over_the_whole_rollout():
    learner, rollout = learner_and_rollout(lr=1e-2, target_kl=0.01)
    rows = learner.rows(rollout)
    assert not learner.is_far(rows)
    for _ in range(100):
        if learner.is_far(rows):
            break
        learner.update(rows)
    else:
        pytest.fail("the policy is never far")
    actor = learner.policy
    old, new = rows["action_log_prob"], actor.head([rows["observation"]]).log_prob(rows["action"])
    found = (new - old).exp().mean() - 1 - (new - old).mean()
    torch.testing.assert_close(learner.loss.divergence(rows), found)
    assert found > 0.01
    assert learner.report(rows)["epochs"].item() == learner.updates + 2
    assert "epochs" in learner.metric_names
    learner.rows(rollout)
    assert learner.report(rows)["epochs"].item() == 0


def test_without_a_limit_nothing_is_measured(monkeypatch):
    learner, rollout = learner_and_rollout()
    rows = learner.rows(rollout)
    monkeypatch.setattr(type(learner.loss), "divergence", None)
    assert not learner.is_far(rows)
    assert "epochs" not in learner.report(rows)
    assert "epochs" not in learner.metric_names


# ---- whole runs ---------------------------------------------------------------------------------


@pytest.mark.parametrize("env", ["CartPole-v1", "Pendulum-v1"])
def test_a_run_leaves_everything(go, env):
    result = go(env=env, num_envs=3)
    names = {path.name for path in result.folder.iterdir()}
    assert names >= {"config.yaml", "metrics.csv", "learning_curve.png", "policy.pt"}
    check_folder(result.folder)
    rows = read_metrics(result.folder / "metrics.csv")
    assert [row["frames"] for row in rows] == [60, 120]
    finite = ("kl_approx", "clip_fraction", "explained_variance", "loss_objective", "loss_critic")
    assert all(math.isfinite(row[name]) for row in rows for name in finite)
    assert rows[-1]["share_learn"] > 0
    assert rows[-1]["share_sample"] > 0


@pytest.mark.parametrize(
    ("num_envs", "frames_per_batch", "total", "frames", "updates"),
    [
        (1, 30, 120, 120, 4 * 3 * 2),
        (3, 30, 120, 120, 4 * 3 * 2),
        (1, 30, 100, 100, (3 * 3 + 1) * 2),  # the last rollout has 10 steps
        (3, 30, 70, 72, (2 * 3 + 2) * 2),  # 12 rows: one whole batch and two
        (1, None, 100, 100, 10 * 2),
        (3, None, 100, 102, 11 * 2),
        (1, 35, 70, 70, 2 * 4 * 2),  # batches of 10, 10, 10 and 5
    ],
)
def test_frames_and_updates_are_counted_exactly(
    go, num_envs, frames_per_batch, total, frames, updates
):
    result = go(num_envs=num_envs, frames_per_batch=frames_per_batch, total_frames=total)
    last = result.history[-1]
    assert (last["frames"], last["updates"]) == (frames, updates)
    stored = saved_learner(checkpoints(result.folder)[-1])
    assert (saved_frames(result.folder), stored["updates"]) == (frames, updates)


def test_a_kl_limit_leaves_out_epochs_and_says_how_many_were_made(go):
    config = replace(SMALL, target_kl=1e-6, epochs=5, lr=1e-2)
    result = go(config, num_envs=3)
    last = result.history[-1]
    assert last["epochs"] == 1.0
    assert last["updates"] == 4 * 3
    assert go(replace(config, target_kl=1e9), num_envs=3, name="far").history[-1]["epochs"] == 5.0


def test_a_rate_that_follows_the_divergence_is_told_and_goes_on(go, learners):
    config = replace(SMALL, lr=3e-3, lr_kl=1e9)
    first = go(config, total_frames=120)
    # Four rollouts of two epochs, none of which comes near.
    assert learners[0][0].kl_rate.lr.item() == pytest.approx(1e-2)
    assert first.history[-1]["lr"] == pytest.approx(1e-2)
    resume(first.folder, total_frames=150)
    assert learners[1][0].kl_rate.lr.item() == pytest.approx(1e-2)
    _, run, _ = stored_run(first.folder)
    run_with(replace(run, total_frames=180), replace(config, lr_kl=1e-9), first.folder)
    assert learners[2][0].kl_rate.lr.item() == pytest.approx(1e-2 / 1.5**2)
    with pytest.raises(UsageError, match="`lr` cannot change on resume"):
        run_with(replace(run, total_frames=210), replace(config, lr=1e-4), first.folder)
    # Without it, the rate is what the configuration says.
    stays = replace(config, lr_kl=None, lr=1e-4)
    run_with(replace(run, total_frames=210), stays, first.folder)
    assert learners[3][0].optimizer.param_groups[0]["lr"] == 1e-4


def test_what_is_scheduled_moves_over_the_run_and_goes_on_where_it_was(go, learners):
    config = replace(SMALL, lr=(1e-2, 0.0), entropy_coeff=(0.1, 0.02), clip_epsilon=(0.3, 0.1))

    def settings(learner):
        numbers = (learner.loss.entropy_coeff, learner.loss.clip_epsilon)
        return [learner.optimizer.param_groups[0]["lr"], *(x.item() for x in numbers)]

    first = go(config, total_frames=120)
    assert settings(learners[0][0]) == pytest.approx([0.0, 0.02, 0.1])
    seen = []
    update = RolloutLearner.update
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            RolloutLearner,
            "update",
            lambda self, batch: (seen.append(settings(self)), update(self, batch))[1],
        )
        resume(first.folder, total_frames=240)
    # After 150 of 240 frames, and at the end.
    assert seen[0] == pytest.approx([0.375e-2, 0.05, 0.175])
    assert seen[-1] == pytest.approx([0.0, 0.02, 0.1])


def test_a_run_that_goes_on_takes_the_settings_it_is_given(go, learners):
    first = go(replace(SMALL, clip_value=0.5), total_frames=60)
    config = replace(SMALL, clip_value=0.1, clip_epsilon=0.05, critic_coeff=2.0)
    run = replace(stored_run(first.folder)[1], total_frames=120)
    run_with(run, config, first.folder)
    loss = learners[1][0].loss
    numbers = (loss.clip_value, loss.clip_epsilon, loss.critic_coeff)
    assert [x.item() for x in numbers] == pytest.approx([0.1, 0.05, 2.0])


def test_the_seed_decides_everything_that_is_measured(go):
    first, again, other = (
        go(name=name, seed=seed, num_envs=2) for name, seed in (("a", 1), ("b", 1), ("c", 2))
    )
    assert measured(first) == measured(again)
    assert measured(first) != measured(other)
    assert torch.equal(weights(first), weights(again))


def test_evaluation_leaves_the_training_as_it_is(go):
    seldom = go(name="seldom", eval_interval=120)
    often = go(name="often", eval_interval=30, eval_episodes=3)
    assert torch.equal(weights(seldom), weights(often))


def test_a_checkpoint_has_no_buffer(go):
    result = go()
    kept = [path.name for path in checkpoints(result.folder)[-1].glob("components/*")]
    names = sorted(name.split("-", 1)[1] for name in kept)
    assert names == ["callbacks", "learner", "ledger", "progress", "random"]


def test_policy_file_and_checkpoint_hold_the_last_update(go, learners):
    result = go()
    (learner, _) = learners[0]
    assert_same(saved_learner(checkpoints(result.folder)[-1]), learner.state_dict())
    stored = Policy.load(result.folder / "policy.pt").actor
    assert_same(dict(stored.state_dict()), dict(learner.policy.state_dict()))


@pytest.mark.parametrize("env", [POINT, "CartPole-v1"])
def test_a_run_goes_on_with_everything_it_had(go, learners, env):
    first = go(env=env, total_frames=90)
    second = resume(first.folder, total_frames=150)
    (before, _), (after, at_start) = learners
    assert_same(before.state_dict(), at_start)
    assert before.updates == 18
    assert after.updates == 30
    assert [row["frames"] for row in second.history] == [60, 90, 120, 150]
    check_folder(second.folder)


def test_a_signal_ends_a_run_after_its_round_and_it_goes_on(go, monkeypatch):
    update = RolloutLearner.update

    def interrupted(self, batch, *args):
        if self.updates == 7:
            os.kill(os.getpid(), signal.SIGTERM)
        return update(self, batch, *args)

    monkeypatch.setattr(RolloutLearner, "update", interrupted)
    first = go()
    assert saved_frames(first.folder) == 60
    assert saved_learner(checkpoints(first.folder)[-1])["updates"] == 12
    assert resume(first.folder).history[-1]["updates"] == 24


def test_a_run_that_goes_on_does_not_live_its_first_episodes_again(go):
    seeds: list[int] = []

    class Seeded(Point):
        def reset(self, *, seed=None, options=None):
            seeds.extend([] if seed is None else [seed])
            return super().reset(seed=seed, options=options)

    first = go(env=Seeded, num_envs=2)
    before = set(seeds)
    seeds.clear()
    resume(first.folder, total_frames=180, env_factory=Seeded)
    # Two environments to train on and one to evaluate on; networks are built from seed 0 again.
    assert len(set(seeds) - before) == 3


WORKERS = {"num_workers": 2, "num_envs": 2, "frames_per_batch": 40, "eval_interval": 80}


@pytest.mark.parametrize("collector", ["parallel", "async"])
def test_workers_collect_and_the_run_goes_on(go, learners, collector):
    config = replace(SMALL, advantage="vtrace")
    first = go(config, total_frames=90, collector=collector, **WORKERS)
    # Rollouts of 40, 40, and of the third the steps of all four that reach the total.
    assert (first.history[-1]["frames"], first.history[-1]["updates"]) == (92, (4 + 4 + 2) * 2)
    assert math.isfinite(first.history[0]["train_return"])
    check_folder(first.folder)
    other = "wait" if collector == "async" else "collect"
    assert first.history[-1][f"share_{other}"] > 0.0
    second = resume(first.folder, total_frames=160)
    (before, _), (after, at_start) = learners
    assert_same(before.state_dict(), at_start)
    assert saved_frames(second.folder) == 160
    assert [row["frames"] for row in second.history] == [80, 92, 160]
    assert after.updates == 20 + (4 + 3) * 2


def test_the_seed_decides_what_workers_do_and_those_ahead_do_other_things(go):
    config = replace(SMALL, lr=1e-2)
    modes = ["async", "async", "parallel"]
    runs = [go(config, name=str(i), collector=m, **WORKERS) for i, m in enumerate(modes)]
    assert torch.equal(weights(runs[0]), weights(runs[1]))
    assert measured(runs[0]) == measured(runs[1])
    assert not torch.equal(weights(runs[0]), weights(runs[2]))


def test_a_killed_worker_ends_the_run_which_goes_on(go, monkeypatch, tmp_path):
    push = WorkerRollouts.push

    def killing(self, updates):
        if self._ledger.frames == 80:
            os.kill(self._collector.procs[0].pid, signal.SIGKILL)
        push(self, updates)

    monkeypatch.setattr(WorkerRollouts, "push", killing)
    with pytest.raises(WorkerDiedError, match=r"worker 0 \(pid \d+\) was killed by SIGKILL"):
        go(collector="async", checkpoint_interval=40, total_frames=200, **WORKERS)
    monkeypatch.undo()
    assert saved_frames(tmp_path / "run") in (40, 80)  # as soon as anybody looks at the workers
    assert resume(tmp_path / "run").history[-1]["frames"] == 200


@pytest.mark.parametrize(
    ("config", "run", "words"),
    [
        (SMALL, {"frames_per_batch": 42}, r"`frames_per_batch` .* num_workers \* num_envs \(4\)"),
        (
            SMALL,
            {"push_interval": 3, "collector": "async"},
            "`push_interval` must stay 10 with ppo",
        ),
        (SMALL, {"save_buffer": False}, "`save_buffer` must stay True with ppo, which keeps none"),
        (SACConfig(), {}, "`collector` must be sync or async with sac, got 'parallel'"),
    ],
)
def test_what_workers_cannot_do_is_refused_before_a_folder_is_made(
    go, tmp_path, config, run, words
):
    with pytest.raises(UsageError, match=words):
        go(config, **{"collector": "parallel", **WORKERS, **run})
    assert not (tmp_path / "run").exists()


def test_a_rollout_smaller_than_a_batch_is_refused(go, tmp_path):
    with pytest.raises(UsageError, match=r"`batch_size` must be at most frames_per_batch \(9\)"):
        go(frames_per_batch=9)
    assert not (tmp_path / "run").exists()


def test_a_loss_that_is_not_finite_leaves_the_networks_as_they_were(go, learners, tmp_path):
    with pytest.raises(DivergedError, match=r"`loss_\w+` is .* at update \d+.* at frame \d+"):
        go(env=lambda: huge_reward(70), total_frames=1_000)
    learner, _ = learners[0]
    assert all(bool(param.isfinite().all()) for param in learner.loss.parameters())
    assert saved_frames(tmp_path / "run") == 60


# ---- what rollouts hold -------------------------------------------------------------------------


@contextmanager
def watched_rollouts(monkeypatch):
    seen = []
    rows = RolloutLearner.rows

    def spy(self, rollout):
        seen.append(rollout.clone())
        found = rows(self, rollout)
        seen[-1]["advantage"] = found["advantage"].reshape(*rollout.shape, 1)
        seen[-1]["value"] = self.loss.critic_network.values([rollout["observation"]]).detach()
        after = rollout["next", "observation"]
        seen[-1]["next", "value"] = self.loss.critic_network.values([after]).detach()
        return found

    with monkeypatch.context() as patch:
        patch.setattr(RolloutLearner, "rows", spy)
        yield seen


def test_what_is_learnt_from_holds_at_the_borders(go, monkeypatch):
    # Episodes of 20 steps that only time ends, in rollouts of 15: ends within and at no border.
    with watched_rollouts(monkeypatch) as rollouts:
        go(num_envs=2, total_frames=120)
    assert [rollout.shape for rollout in rollouts] == [(2, 15)] * 4
    ends = []
    for rollout in rollouts:
        after = rollout["next"]
        assert not after["terminated"].any()
        assert torch.equal(after["truncated"], after["done"])
        ends.append(after["done"][0, :, 0].nonzero().flatten().tolist())
        error = after["reward"] + 0.99 * after["value"] - rollout["value"]
        # Both the last row of a rollout and the last of an episode bootstrap, and sum no further.
        for row in {14, *ends[-1]}:
            torch.testing.assert_close(rollout["advantage"][:, row], error[:, row])
        # The observation after a truncated step is that episode's own.
        for row in ends[-1]:
            assert after["observation"][0, row, 1] == 1.0
            if row < 14:
                assert rollout["observation"][0, row + 1, 1] == 0.0
    assert ends == [[], [4], [9], [14]]


class Bounds(gymnasium.Env):
    """Takes only actions of its own space; rewards large ones, so that a policy leaves it."""

    observation_space = spaces.Box(-1.0, 1.0, (2,))
    action_space = spaces.Box(np.float32([-2.0, 0.0]), np.float32([2.0, 10.0]))

    def __init__(self) -> None:
        self.steps, self.actions = 0, []

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.steps = 0
        return self.observation_space.sample() * 0, {}

    def step(self, action):
        assert self.action_space.contains(np.asarray(action, np.float32)), action
        self.actions.append(np.array(action))
        self.steps += 1
        return np.zeros(2, np.float32), float(sum(action)), False, self.steps >= 20, {}


def test_the_simulator_gets_the_nearest_action_and_the_loss_the_drawn_one(go, monkeypatch):
    made = []

    def factory():
        made.append(Bounds())
        return made[-1]

    config = PPOConfig(num_cells=(8,), batch_size=10, epochs=1, log_std=0.5)
    with watched_rollouts(monkeypatch) as rollouts:
        go(config, factory, total_frames=60)
    drawn = torch.cat([rollout["action"][0] for rollout in rollouts])
    assert drawn.abs().max() > 1.0
    given = next(env.actions for env in made if len(env.actions) == 60)
    expected = drawn.clamp(-1, 1).numpy() * [2.0, 5.0] + [0.0, 5.0]
    np.testing.assert_allclose(np.array(given), expected, rtol=1e-5, atol=1e-5)
    first = rollouts[0]
    # Of the drawn action, by the policy before its first update.
    spread = math.log(2 * math.pi) + 2 * 0.5
    mode = -0.5 * ((first["action"][0] / math.exp(0.5)) ** 2 + spread).sum(-1)
    torch.testing.assert_close(first["action_log_prob"][0], mode, atol=0.2, rtol=0.1)


# ---- policies in plain Gymnasium ----------------------------------------------------------------


def test_a_continuous_policy_plays_within_its_bounds(go):
    result = go(env=Bounds)
    policy, env = Policy.load(result.folder / "policy.pt"), Bounds()
    with torch.no_grad():  # far outside
        policy.actor.net.layers[-1].bias.copy_(torch.tensor([50.0, -50.0]))
    observation, _ = env.reset(seed=0)
    env.step(policy(observation))
    np.testing.assert_array_equal(env.actions[0], [2.0, 0.0])
    with torch.no_grad():
        policy.actor.net.layers[-1].bias.copy_(torch.tensor([0.5, 0.5]))
        policy.actor.net.layers[-1].weight.zero_()
    np.testing.assert_allclose(policy(observation), [1.0, 7.5], rtol=1e-6)


class Choices(gymnasium.Env):
    """Pays 1 for the largest of the actions 2, 3 and 4."""

    observation_space = spaces.Box(-1.0, 1.0, (1,))
    action_space = spaces.Discrete(3, start=2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.steps = 0
        return np.zeros(1, np.float32), {}

    def step(self, action):
        assert self.action_space.contains(action), action
        self.steps += 1
        return np.zeros(1, np.float32), float(action == 4), False, self.steps >= 10, {}


def test_a_policy_of_choices_counts_from_where_the_environment_does(go):
    config = PPOConfig(num_cells=(8,), batch_size=30, epochs=5, lr=0.03)
    result = go(config, Choices, total_frames=600, frames_per_batch=60, eval_interval=600)
    assert result.history[-1]["return_mean"] == 10.0
    policy, env = Policy.load(result.folder / "policy.pt"), Choices()
    observation, _ = env.reset(seed=0)
    over, total = False, 0.0
    while not over:
        observation, reward, _, over, _ = env.step(policy(observation))
        total += reward
    assert total == 10.0
    assert policy(np.zeros((5, 1), np.float32)).tolist() == [4] * 5


@pytest.mark.parametrize("form", ["one_hot", "categorical"])
def test_both_forms_of_a_choice_count_alike(form):
    shapes = {"observation": (1,)}
    actor = CategoricalActor(observation=shapes, choices=3, form=form, num_cells=(4,))
    with torch.no_grad():
        actor.net.layers[-1].bias.copy_(torch.tensor([0.0, 9.0, 0.0]))
    policy = Policy(actor, {"discrete_actions": form, "action_start": 2})
    assert policy(np.zeros(1, np.float32)) == 3
    assert Choices.action_space.contains(policy(np.zeros(1, np.float32)))
    assert Policy(actor, {"discrete_actions": form})(np.zeros(1, np.float32)) == 1


@pytest.mark.parametrize("env", [POINT, "CartPole-v1"])
def test_a_stored_policy_acts_as_the_one_that_was_trained(go, env):
    result = go(env=env)
    observation = make_env(env, seed=3).reset()["observation"]
    with set_exploration_type(ExplorationType.DETERMINISTIC), torch.no_grad():
        action = result.policy(TensorDict({"observation": observation}, []))["action"]
    stored = Policy.load(result.folder / "policy.pt")(observation.numpy())
    if env == POINT:
        np.testing.assert_allclose(stored, action.numpy(), atol=1e-6)
    else:
        assert stored == action.argmax(-1).item()


# ---- the command line ---------------------------------------------------------------------------


def script(*words: str) -> subprocess.CompletedProcess:
    return subprocess.run(
        [sys.executable, str(SCRIPTS / "train_ppo.py"), *words],
        capture_output=True,
        text=True,
        env=environment(),
        timeout=180,
        check=False,
    )


def test_the_script_trains_and_goes_on(tmp_path):
    words = ("num_cells=8", "batch_size=10", "epochs=2", "eval_episodes=1", "logger=none")
    done = script(
        f"env={POINT}",
        *words,
        "total_frames=60",
        "frames_per_batch=30",
        "progress=false",
        f"folder={tmp_path / 'run'}",
    )
    assert done.returncode == 0, done.stderr
    done = script(f"resume={tmp_path / 'run'}", f"env={POINT}", "total_frames=90")
    assert done.returncode == 0, done.stderr
    rows = read_metrics(tmp_path / "run" / "metrics.csv")
    assert (rows[-1]["frames"], rows[-1]["updates"]) == (90, 18)
    check_folder(tmp_path / "run")


def test_the_command_shows_its_options_and_names_a_mistake(capsys):
    def call(word: str) -> int:
        return train_command([word], program="train_ppo.py", default="ppo")

    assert call("--help") == 0
    shown = capsys.readouterr().out
    for name in ("clip_epsilon", "epochs", "lmbda", "log_std", "frames_per_batch"):
        assert f"  {name}=" in shown
    assert "buffer_size" not in shown
    assert call("clip_epsilon=2") == 2
    wrong = capsys.readouterr().err
    assert "`clip_epsilon` must be a number in (0, 1), or first..last[:shape], got `2" in wrong
    assert "Traceback" not in wrong


class Dials(gymnasium.Env):
    """Takes two choices at once, and only those of its space."""

    observation_space = spaces.Box(-1.0, 1.0, (2,))
    action_space = spaces.MultiDiscrete([3, 2], start=[5, 0])

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.steps = 0
        return np.zeros(2, np.float32), {}

    def step(self, action):
        assert self.action_space.contains(np.asarray(action)), action
        self.steps += 1
        return np.zeros(2, np.float32), float(action[0]), False, self.steps == 5, {}


@pytest.mark.parametrize("config", [SMALL, A2CConfig(num_cells=(8,), batch_size=10)])
def test_several_choices_from_training_to_plain_gymnasium(go, config):
    result = go(config, env=Dials, num_envs=3)
    policy = Policy.load(result.folder / "policy.pt")
    assert Dials.action_space.contains(policy(np.zeros(2)))
    assert result.history[-1]["return_mean"] >= 25.0
    second = resume(result.folder, total_frames=180, env_factory=Dials)
    assert second.history[-1]["frames"] == 180


def test_a_run_of_a2c_makes_one_update_of_each_rollout(go, learners):
    result = go(
        A2CConfig(num_cells=(8,), batch_size=10, entropy_coeff=0.01), num_envs=3, frames_per_batch=9
    )
    last = result.history[-1]
    assert (last["frames"], last["updates"]) == (120, 14)
    finite = ("loss_objective", "loss_critic", "loss_entropy", "entropy", "explained_variance")
    assert all(math.isfinite(last[name]) for name in finite)
    assert Policy.load(result.folder / "policy.pt")(np.zeros(2)).shape == (1,)
    resume(result.folder, total_frames=180)
    (before, _), (_, at_start) = learners
    assert_same(before.state_dict(), at_start)
