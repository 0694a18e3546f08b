"""One call that trains: what it returns, counts, writes, and how it goes on."""

from __future__ import annotations

import importlib
import importlib.util
import math
import os
import re
import signal
from copy import deepcopy
from dataclasses import replace
from functools import partial
from pathlib import Path

import gymnasium
import numpy as np
import pytest
import torch
from faults.fault_envs import Point, huge_reward, point
from faults.runs import check_folder, checkpoints, saved_frames, saved_learner
from quiet_runs import short_run
from sameness import assert_same
from tensordict import TensorDict
from torchrl.envs.utils import ExplorationType, set_exploration_type

from torchrl_elegant.algorithms import HTermConfig, ModSACConfig, PPOConfig, SACConfig
from torchrl_elegant.config.text import UsageError
from torchrl_elegant.envs import Pixels
from torchrl_elegant.runs import load_policy
from torchrl_elegant.runs.metrics import read_metrics
from torchrl_elegant.runs.policy import Policy
from torchrl_elegant.runs.train import TrainResult, resume, run_with, stored_run
from torchrl_elegant.trainers import Evaluation, PolicyEvaluator, off_policy
from torchrl_elegant.trainers.clock import PACE_COLUMNS
from torchrl_elegant.trainers.learner import DivergedError, Learner

# The package gives this name to the function.
train_module = importlib.import_module("torchrl_elegant.runs.train")

SMALL = SACConfig(num_cells=(8,), batch_size=8, warmup=20, buffer_size=1_000)
POINT, DRAWN = "faults.fault_envs:point", "faults.fault_envs:Drawn"


@pytest.fixture
def go(tmp_path: Path):
    def start(config: SACConfig = SMALL, env=POINT, name: str = "run", **run) -> TrainResult:
        run = {"frames_per_batch": run.get("num_envs", 1), **run}
        return short_run(config, env, tmp_path / name, 60, **run)

    return start


@pytest.fixture
def learners(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Learner, dict]]:
    """The learner of every run of a test, and its state when the run's loop began."""
    seen: list[tuple[Learner, dict]] = []
    loop = off_policy.train_off_policy

    def spy(source, buffer, learner, watcher, **kwargs):
        seen.append((learner, deepcopy(learner.state_dict())))
        return loop(source, buffer, learner, watcher, **kwargs)

    monkeypatch.setattr(off_policy, "train_off_policy", spy)
    return seen


def updates_of(result: TrainResult) -> int:
    return int(result.history[-1]["updates"])


def frames_of(result: TrainResult) -> int:
    return int(result.history[-1]["frames"])


def without_seconds(result: TrainResult) -> list[str]:
    return [untimed(row) for row in result.history]


def untimed(row: dict[str, float]) -> str:
    # A text, because a column without a value is NaN, which equals nothing.
    return str({name: row[name] for name in row if name not in ("seconds", *PACE_COLUMNS)})


def weights(result: TrainResult) -> torch.Tensor:
    return torch.cat([param.detach().reshape(-1) for param in result.policy.parameters()])


def test_an_id_gives_a_policy_its_history_and_a_folder_with_everything(go):
    result = go(env="Pendulum-v1", logger="auto")
    names = {path.name for path in result.folder.iterdir()}
    assert names >= {
        "config.yaml",
        "metrics.csv",
        "learning_curve.png",
        "checkpoints",
        "policy.pt",
        "policy_best.pt",
        "tensorboard",
    }
    assert list(result.folder.rglob("events.out.tfevents*"))
    assert [row["frames"] for row in result.history] == [30, 60]
    assert without_seconds(result) == [
        untimed(row) for row in read_metrics(result.folder / "metrics.csv")
    ]
    observation = torch.tensor([0.1, 0.9, -1.0])
    with set_exploration_type(ExplorationType.DETERMINISTIC), torch.no_grad():
        action = result.policy(TensorDict({"observation": observation}, []))["action"]
    stored = Policy.load(result.folder / "policy.pt")(observation.numpy())
    assert stored == pytest.approx(2.0 * action.numpy(), abs=1e-6)  # in the simulator's torques


def test_the_best_policy_is_kept_and_over_a_resume_too(go, monkeypatch):
    returns = iter([1.0, 5.0, 3.0, 4.0, 2.0, 9.0, 0.0])

    def weights_in(path: Path) -> torch.Tensor:
        return torch.cat([param.flatten() for param in load_policy(path).parameters()])

    monkeypatch.setattr(
        PolicyEvaluator,
        "evaluate",
        lambda self, should_stop=None: Evaluation(returns=(next(returns),), lengths=(1,)),
    )

    def best(folder: Path) -> tuple[int, float]:
        page = Policy.load(folder / "policy_best.pt").metadata
        return page["frames"], page["return_mean"]

    folder = go(total_frames=80, eval_interval=20, name="run").folder
    assert best(folder) == (40, 5.0)
    assert not torch.equal(weights_in(folder / "policy_best.pt"), weights_in(folder / "policy.pt"))
    resume(folder, total_frames=100)
    assert best(folder) == (40, 5.0)
    resume(folder, total_frames=140)
    assert best(folder) == (120, 9.0)


def test_a_callable_is_trained_on_and_named_in_the_config(go):
    result = go(env=point)
    assert frames_of(result) == 60
    assert f"env: {POINT}" in (result.folder / "config.yaml").read_text()


def test_a_lambda_can_be_trained_on_and_resumed_with_itself(go):
    made = lambda: Point(length=10)  # noqa: E731
    result = go(env=made)
    with pytest.raises(UsageError, match="`env` must"):
        resume(result.folder, total_frames=90)
    assert frames_of(resume(result.folder, total_frames=90, env_factory=made)) == 90


def test_the_seed_decides_everything_that_is_measured(go):
    first, again, other = (
        go(name=name, seed=seed, num_envs=2) for name, seed in (("a", 1), ("b", 1), ("c", 2))
    )
    assert without_seconds(first) == without_seconds(again)
    assert without_seconds(first) != without_seconds(other)
    assert torch.equal(weights(first), weights(again))


@pytest.mark.parametrize(
    ("num_envs", "frames_per_batch", "rate", "frames", "updates"),
    [
        (1, 1, 1.0, 60, 40),
        (4, 4, 1.0, 60, 40),
        (3, None, 1.0, 60, 40),
        (5, None, 1.0, 60, 40),
        (1, 7, 1.0, 60, 40),  # the ninth batch is cut
        (4, 12, 1.0, 60, 40),
        (4, 4, 0.25, 60, 10),
        (1, 1, 0.3, 60, 12),
        (1, 10, 2.0, 60, 80),
        (1, 30, 5.0, 60, 200),  # more updates for one batch than are made in one go
    ],
)
def test_frames_and_updates_are_counted_exactly(
    go, num_envs, frames_per_batch, rate, frames, updates
):
    config = SACConfig(num_cells=(8,), batch_size=8, warmup=20, updates_per_frame=rate)
    result = go(config, num_envs=num_envs, frames_per_batch=frames_per_batch)
    assert (frames_of(result), updates_of(result)) == (frames, updates)
    last = saved_learner(checkpoints(result.folder)[-1])
    assert (saved_frames(result.folder), last["updates"]) == (frames, updates)
    check_folder(result.folder)


SHARES = [name for name in PACE_COLUMNS if name.startswith("share_")]


def test_every_row_says_where_the_time_went(go, caplog):
    result = go(total_frames=90)
    seconds = 0.0
    for frames, row in zip((30, 60, 90), result.history, strict=True):
        assert sum(row[name] for name in SHARES) == pytest.approx(1.0)
        busy = ("share_collect", "share_sample", "share_learn", "share_evaluate", "share_other")
        assert min(row[name] for name in busy) > 0
        assert row["share_wait"] == 0
        assert row["frames_per_second"] == pytest.approx(30 / (row["seconds"] - seconds), rel=0.05)
        updates = 10 if frames == 30 else 30
        ratio = row["updates_per_second"] / row["frames_per_second"]
        assert ratio == pytest.approx(updates / 30)
        seconds = row["seconds"]
    # The picture of the row before.
    assert [row["share_save"] > 0 for row in result.history] == [False, True, True]
    (line,) = [text for text in caplog.messages if text.startswith("time: ")]
    assert re.fullmatch(
        r"time: collect \d+ %, sample \d+ %, learn \d+ %, evaluate \d+ %, save \d+ %, "
        r"other \d+ % \| \d+ frames/s, \d+ updates/s",
        line,
    )


def test_a_learner_beside_workers_waits_and_does_not_collect(go):
    result = go(total_frames=400, collector="async", num_workers=1, eval_interval=200)
    for row in result.history:
        assert row["share_collect"] == 0
        assert row["share_wait"] > 0
        assert sum(row[name] for name in SHARES) == pytest.approx(1.0)


def test_a_run_whose_metrics_lack_columns_goes_on_with_all_of_them(go):
    first = go()
    path = first.folder / "metrics.csv"
    kept = [name for name in first.history[0] if name not in PACE_COLUMNS]
    lines = [",".join(kept)] + [
        ",".join("" if row[k] != row[k] else repr(row[k]) for k in kept) for row in first.history
    ]
    path.write_text("\n".join(lines) + "\n")
    second = resume(first.folder, total_frames=120)
    assert [row["frames"] for row in second.history] == [30, 60, 90, 120]
    assert list(second.history[-1]) == [*kept, *PACE_COLUMNS]
    assert all(math.isnan(second.history[0][name]) for name in PACE_COLUMNS)
    assert second.history[-1]["frames_per_second"] > 0
    assert second.history[-1]["updates"] == 100


@pytest.mark.parametrize("warmup", [0, 1, 37])
def test_no_update_is_made_during_warmup(go, warmup):
    config = SACConfig(num_cells=(8,), batch_size=8, warmup=warmup)
    result = go(config, eval_interval=1, total_frames=40)
    expected = [max(0, frames - warmup) for frames in range(1, 41)]
    assert [row["updates"] for row in result.history] == expected


def test_policy_file_and_checkpoint_hold_the_last_update(go, learners):
    # One batch of 60 frames asks for 40 updates, all of which come after the last frame.
    result = go(frames_per_batch=60, eval_interval=1, checkpoint_interval=1)
    learner, _ = learners[0]
    assert_same(saved_learner(checkpoints(result.folder)[-1]), learner.state_dict())
    stored = Policy.load(result.folder / "policy.pt").actor
    assert_same(dict(stored.state_dict()), dict(learner.policy.state_dict()))
    assert updates_of(result) == 40


def test_a_reached_return_ends_the_run(go):
    result = go(total_frames=100_000, target_return=-1_000.0)
    assert frames_of(result) == 30
    assert saved_frames(result.folder) == 30
    assert frames_of(resume(result.folder, target_return=None, total_frames=50)) == 50


def test_a_file_named_stop_ends_the_run(go, tmp_path):
    class Stopper(Point):
        def step(self, action):
            (tmp_path / "run" / "stop").touch()
            return super().step(action)

    result = go(env=Stopper, total_frames=1_000_000)
    assert 0 < saved_frames(result.folder) < 1_000_000
    # An old request does not stop the run that goes on.
    more = saved_frames(result.folder) + 30
    assert frames_of(resume(result.folder, total_frames=more, env_factory=Point)) == more


class Endless(gymnasium.Env):
    """No episode of it ends once the file is there, and evaluation has begun."""

    observation_space = gymnasium.spaces.Box(-1.0, 1.0, (1,))
    action_space = gymnasium.spaces.Box(-1.0, 1.0, (1,))

    def __init__(self, stop: Path) -> None:
        self.stop, self.steps = stop, 0

    def reset(self, *, seed=None, options=None):
        return np.zeros(1, np.float32), {}

    def step(self, action):
        self.steps += 1
        if self.steps == 1_000:
            self.stop.touch()
        return np.zeros(1, np.float32), 0.0, False, False, {}


def test_a_stop_ends_an_evaluation_without_an_end_and_what_is_learnt_is_kept(go, tmp_path):
    result = go(env=lambda: Endless(tmp_path / "run" / "stop"))
    assert not result.history
    assert (result.folder / "policy.pt").exists()
    assert any((result.folder / "checkpoints").iterdir())


def test_another_size_is_named_when_a_run_goes_on(go):
    folder = go().folder
    message = (
        r"`num_cells` cannot change on resume: the stored run has num_cells=\(8,\), got "
        r"num_cells=\(16,\)"
    )
    _, run, config = stored_run(folder)
    longer, larger = replace(run, total_frames=90), replace(config, num_cells=(16,))
    with pytest.raises(UsageError, match=message):
        run_with(longer, larger, folder)


@pytest.mark.parametrize(
    ("config", "message"),
    [
        (SACConfig, "must be a configuration such as SACConfig.., got <class '.*SACConfig'>"),
        ("sac", "must be a configuration such as SACConfig.., got sac"),
    ],
)
def test_what_is_no_configuration_is_named(go, config, message):
    with pytest.raises(UsageError, match=message):
        go(config)


def test_more_frames_a_batch_than_there_are_is_refused(go):
    with pytest.raises(UsageError, match=r"at most total_frames \(60\), got 64"):
        go(num_envs=4, frames_per_batch=64)


def test_a_buffer_of_pictures_beyond_all_memory_is_refused(go):
    large = SACConfig(buffer_size=10**9, warmup=20)
    pixels = Pixels(source="render", resize=84, frame_stack=4, grayscale=True)
    with pytest.raises(UsageError, match="`buffer_size` must fit into memory, got 1000000000 rows"):
        go(large, DRAWN, pixels=pixels)


@pytest.mark.parametrize("name", ["max_age", "capacity"])
def test_slices_of_pictures_beyond_all_memory_are_refused(go, name):
    long = SACConfig(buffer_size=1000, warmup=20, hterm=HTermConfig(**{name: 10**9}))
    pixels = Pixels(source="render", resize=84, frame_stack=4, grayscale=True)
    with pytest.raises(UsageError, match=rf"`hterm\.{name}` must fit into memory, got 1000000000"):
        go(long, DRAWN, pixels=pixels)


@pytest.mark.parametrize("frames", [60, 20])
def test_a_rate_that_is_zero_at_the_only_rollout_is_refused(go, frames):
    config = PPOConfig(num_cells=(8,), batch_size=8, lr=(3e-4, 0.0))
    if frames == 20:
        assert frames_of(go(config, frames_per_batch=frames)) == 60
        return
    with pytest.raises(UsageError, match="`lr` must not end at 0 in a run of one rollout, got 0"):
        go(config, frames_per_batch=frames)


def test_a_place_that_takes_no_folder_is_refused(go, tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(UsageError, match="`folder` must be where files can be written"):
        go(name="file/run")


def test_a_folder_that_holds_a_run_is_refused(go):
    result = go()
    before = (result.folder / "metrics.csv").read_bytes()
    with pytest.raises(UsageError, match=r"`folder` must be new or empty.*resume="):
        go()
    assert (result.folder / "metrics.csv").read_bytes() == before


def test_a_folder_left_by_a_kill_in_its_making_is_used(go, tmp_path):
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "metrics.csv").write_text("frames,updates\n")
    (tmp_path / "run" / f".config.yaml.{'0' * 32}.tmp").write_text("format: torch")
    assert frames_of(go()) == 60


def test_a_folder_with_somebody_elses_metrics_is_refused(go, tmp_path):
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "metrics.csv").write_text("frames,updates\n10,10\n")
    with pytest.raises(UsageError, match="`folder` must be new or empty"):
        go()


@pytest.mark.parametrize("rate", [1.0, 0.3])
@pytest.mark.parametrize("config", [SMALL, ModSACConfig(num_cells=(8,), batch_size=8, warmup=20)])
def test_a_run_goes_on_with_everything_it_had(go, learners, config, rate):
    config = type(config)(num_cells=(8,), batch_size=8, warmup=20, updates_per_frame=rate)
    first = go(config, total_frames=55)
    second = resume(first.folder, total_frames=101)
    (before, _), (after, at_start) = learners
    assert_same(before.state_dict(), at_start)
    assert before.updates < after.updates == int(rate * 81 + 1e-6)
    assert second.folder == first.folder
    assert [row["frames"] for row in second.history] == [30, 55, 60, 90, 101]
    check_folder(second.folder)


def test_a_run_whose_buffer_was_not_kept_fills_it_before_it_learns(go):
    first = go(save_buffer=False)
    # 20 batches of 8 would be 160 frames: as many as there were, 60, are enough.
    second = resume(first.folder, total_frames=200, eval_interval=10)
    updates = {row["frames"]: row["updates"] for row in second.history}
    assert updates[60] == updates[70] == updates[120] == 40
    assert updates[130] == 50
    assert updates[200] == 120


def test_a_run_saved_before_its_first_update_fills_the_buffer_too(go):
    config = SACConfig(num_cells=(8,), batch_size=8, warmup=60)
    first = go(config, total_frames=61, save_buffer=False, checkpoint_interval=60, keep_last=9)
    # Whatever the evaluations were, the run is to go on from the last frame before its updates.
    for path in checkpoints(first.folder):
        if f"-{60:012d}-" not in path.name:
            (path / "digests.json").unlink()
    second = resume(first.folder, total_frames=140, eval_interval=10)
    updates = {row["frames"]: row["updates"] for row in second.history}
    assert updates[120] == 0
    assert updates[130] == 10


def test_a_finished_run_says_how_to_go_on(go):
    first = go()
    before = (first.folder / "metrics.csv").read_bytes()
    with pytest.raises(UsageError, match=r"`total_frames` must exceed the 60 frames.*got 60"):
        resume(first.folder)
    assert (first.folder / "metrics.csv").read_bytes() == before


@pytest.mark.parametrize(
    ("name", "value"),
    [("env", "Pendulum-v1"), ("env_kwargs", {"length": 5})],
)
def test_a_run_that_goes_on_stays_itself(go, name, value):
    first = go()
    with pytest.raises(UsageError, match=f"`{name}` must stay"):
        resume(first.folder, total_frames=90, **{name: value})


@pytest.mark.parametrize(
    ("config", "changes", "message"),
    [
        (
            SACConfig(num_cells=(8,), batch_size=8, warmup=20),
            {"alpha": 0.3},
            "alpha=1.0.*alpha=0.3",
        ),
        (PPOConfig(num_cells=(8,), batch_size=8), {"log_std": -1.0}, "log_std=0.0.*log_std=-1.0"),
        (
            PPOConfig(num_cells=(8,), batch_size=8),
            {"hidden_gain": 1.0},
            "hidden_gain=None, got hidden_gain=1.0; start a new run",
        ),
        # The stored weights fit, and would make another policy.
        (
            SACConfig(num_cells=(8,), batch_size=8, warmup=20),
            {"layer_norm": "all", "activation": "tanh"},
            "`activation`, `layer_norm` cannot change on resume",
        ),
        # Entries of equal sizes would take each other's place.
        (
            SACConfig(num_cells=(8,), batch_size=8, warmup=20),
            {"actor_keys": ("observation",), "critic_keys": ("observation",)},
            "`actor_keys`, `critic_keys` cannot change on resume",
        ),
    ],
    ids=["alpha", "log_std", "hidden_gain", "layer_norm", "keys"],
)
def test_what_learned_numbers_depend_on_cannot_be_changed_later(go, config, changes, message):
    """It would be in the stored configuration, and not be true of what was learned."""
    first = go(config, frames_per_batch=20)
    _, run, stored = stored_run(first.folder)
    before = (first.folder / "config.yaml").read_text()
    with pytest.raises(UsageError, match=message):
        run_with(replace(run, total_frames=90), replace(stored, **changes), first.folder)
    assert (first.folder / "config.yaml").read_text() == before


def test_a_fixed_temperature_can_be_changed_later(go):
    first = go(SACConfig(num_cells=(8,), batch_size=8, warmup=20, temperature="fixed", alpha=0.5))
    _, run, stored = stored_run(first.folder)
    changed = run_with(replace(run, total_frames=90), replace(stored, alpha=0.3), first.folder)
    assert changed.history[-1]["alpha"] == pytest.approx(0.3)


def test_updates_that_a_stop_left_undone_are_made_afterwards(go, monkeypatch):
    update = Learner.update

    def interrupted(self, batch, *args):
        if self.updates == 10:
            os.kill(os.getpid(), signal.SIGTERM)
        return update(self, batch, *args)

    monkeypatch.setattr(Learner, "update", interrupted)
    config = SACConfig(num_cells=(8,), batch_size=8, warmup=20, updates_per_frame=5.0)
    first = go(config, frames_per_batch=60, total_frames=120)
    stopped = saved_learner(checkpoints(first.folder)[-1])["updates"]
    assert saved_frames(first.folder) == 60
    assert 10 < stopped < 200  # 200 were due
    second = resume(first.folder)
    assert (frames_of(second), updates_of(second)) == (120, 500)


@pytest.mark.parametrize(("given", "used"), [(3, 3), (0, 2)])
def test_threads_are_those_asked_for_and_those_of_before_afterwards(go, monkeypatch, given, used):
    seen, update = [], Learner.update

    def spy(self, batch):
        seen.append(torch.get_num_threads())
        return update(self, batch)

    monkeypatch.setattr(Learner, "update", spy)
    torch.set_num_threads(2)
    go(threads=given)
    assert set(seen) == {used}
    assert torch.get_num_threads() == 2


def test_evaluation_leaves_the_training_as_it_is(go):
    seldom = go(name="seldom", eval_interval=60)
    often = go(name="often", eval_interval=10, eval_episodes=3)
    assert torch.equal(weights(seldom), weights(often))


def test_no_two_environments_share_a_seed_and_evaluation_has_its_own(go):
    seeds: list[int] = []

    class Seeded(Point):
        def reset(self, *, seed=None, options=None):
            seeds.extend([] if seed is None else [seed])
            return super().reset(seed=seed, options=options)

    go(env=Seeded, num_envs=3, total_frames=30)
    assert len(set(seeds)) == len(seeds) >= 4
    first = set(seeds)
    seeds.clear()
    go(env=Seeded, num_envs=3, total_frames=30, name="other", seed=1)
    assert not first & set(seeds)


def test_a_run_that_goes_on_does_not_live_its_first_episodes_again(go):
    seeds: list[int] = []

    class Seeded(Point):
        def reset(self, *, seed=None, options=None):
            seeds.extend([] if seed is None else [seed])
            return super().reset(seed=seed, options=options)

    first = go(env=Seeded)
    training = seeds[0]
    before = set(seeds)
    seeds.clear()
    resume(first.folder, total_frames=90, env_factory=Seeded)
    assert training in before
    assert set(seeds) - before  # the training environment's new seed


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"total_frames": 20}, "no update would ever be made"),
        ({"logger": "wandb"}, "`logger` must be installed"),
        ({"device": "cuda:9"}, "`device` must be present"),
        ({"env_kwargs": {"nonsense": 1}}, "nonsense"),
    ],
)
def test_a_mistake_is_told_before_a_folder_is_made(go, tmp_path, monkeypatch, changes, message):
    find = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name: None if name == "wandb" else find(name)
    )
    with pytest.raises(UsageError, match=message):
        go(**changes)
    assert not (tmp_path / "run").exists()


def test_a_folder_from_other_networks_is_refused_and_stays(go, tmp_path):
    first = go()
    text = (first.folder / "config.yaml").read_text()
    changed = text.replace("num_cells:\n  - 8", "num_cells:\n  - 16")
    assert changed != text
    (first.folder / "config.yaml").write_text(changed)
    with pytest.raises(UsageError, match="the configuration must fit"):
        resume(first.folder, total_frames=90)
    assert [row["frames"] for row in read_metrics(first.folder / "metrics.csv")] == [30, 60]


def second_is_broken(at: int):
    """A factory whose second training environment gives no number at its step `at`."""
    made = []

    def factory() -> Point:
        made.append(Point(at=at if len(made) == 1 else 0, reward=float("nan")))
        return made[-1]

    return factory


def test_a_reward_that_is_not_a_number_stops_the_run_at_its_frame(go):
    with pytest.raises(FloatingPointError, match=r"`reward` .*`nan`.* environment 1 at frame 68;"):
        go(env=second_is_broken(34), num_envs=2, total_frames=200)


def test_a_loss_that_is_not_finite_leaves_the_networks_as_they_were(go, learners, tmp_path):
    with pytest.raises(DivergedError, match=r"`loss_qvalue` is inf at update \d+.* at frame \d+"):
        go(env=partial(huge_reward, 45), total_frames=1_000)
    learner, _ = learners[0]
    assert all(bool(param.isfinite().all()) for param in learner.loss.parameters())
    last = checkpoints(tmp_path / "run")[-1]
    stored = saved_learner(last)["loss"]
    assert all(value.isfinite().all() for value in stored.values() if value.is_floating_point())
    assert saved_frames(tmp_path / "run") == 30


def test_an_exception_in_the_loop_closes_bar_and_logger(go, monkeypatch):
    closed = []
    close = train_module.Reporter.close
    monkeypatch.setattr(
        train_module.Reporter, "close", lambda self: (closed.append(True), close(self))
    )
    with pytest.raises(FloatingPointError):
        go(env=second_is_broken(34), num_envs=2, total_frames=200)
    assert closed == [True]


def test_a_resumed_run_names_the_frame_of_the_whole_run(go):
    first = go(num_envs=2)
    with pytest.raises(FloatingPointError, match=r"`reward` .* environment 1 at frame 68;"):
        resume(first.folder, total_frames=90, env_factory=second_is_broken(4))


def test_options_of_the_algorithm_change_when_a_run_goes_on_and_strange_ones_are_named(go):
    folder = go().folder
    again = resume(folder, total_frames=76, actor_lr=(1e-3, 0.0), keep_last=1)
    _, run, config = stored_run(again.folder)
    assert (run.keep_last, config.actor_lr) == (1, (1e-3, 0.0))
    with pytest.raises(UsageError, match="unknown option `actor_rl`: did you mean `actor_lr`"):
        resume(folder, actor_rl=1.0)
    with pytest.raises(UsageError, match="unknown option `total_frame`: did you mean"):
        go(name="other", total_frame=1)
    with pytest.raises(UsageError, match=r"configuration: SACConfig\(actor_lr=\.\.\.\)"):
        go(name="other", actor_lr=1e-3)
    # A list says the same as the tuple that is stored.
    assert resume(folder, total_frames=100, num_cells=[8]).history
