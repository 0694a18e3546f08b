"""Callbacks: when they are told, what they may do, and what is left when one fails."""

from __future__ import annotations

import math
import os
import signal
import subprocess
import sys
from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch
from faults.fault_envs import Drawn
from faults.runs import PATIENCE, checkpoints, saved_frames
from PIL import Image

from torchrl_elegant import Callback, KeepBest, Policy, RecordVideo, SACConfig, StopOnPlateau
from torchrl_elegant.config.text import UsageError
from torchrl_elegant.runs import resume, train
from torchrl_elegant.runs.callbacks import Callbacks
from torchrl_elegant.trainers.evaluation import Evaluation

CONFIG = SACConfig(num_cells=(8,), batch_size=8, warmup=20)


def go(folder, *callbacks, env="faults.fault_envs:point", **run):
    settings = {
        "total_frames": 96,
        "frames_per_batch": 16,
        "eval_interval": 32,
        "eval_episodes": 2,
        "checkpoint_interval": 48,
        "logger": "none",
        "folder": str(folder),
    }
    return train(CONFIG, env, callbacks=callbacks, **{**settings, **run})


class Diary(Callback):
    """Notes all that it is told, and at which frame."""

    def __init__(self):
        self.told = []

    def on_start(self, run):
        self.told.append(("start", run.frames))

    def on_rollout(self, run):
        self.told.append(("rollout", run.frames))

    def on_update(self, run, terms):
        self.told.append(("update", run.updates))
        assert run.trial.learner.is_watched
        assert terms["loss_qvalue"].isfinite()

    def on_evaluation(self, run, evaluation):
        self.told.append(("evaluation", run.frames))
        assert len(evaluation.returns) == 2

    def on_checkpoint(self, run, path):
        self.told.append(("checkpoint", run.frames))
        assert path in checkpoints(run.folder)

    def on_end(self, run):
        self.told.append(("end", run.frames))
        assert saved_frames(run.folder) == run.frames


def test_each_moment_is_told_once(tmp_path):
    diary = Diary()
    result = go(tmp_path / "run", diary)
    assert (result.stopped_by, result.unsaved) == (None, {})
    told = {name: [at for kind, at in diary.told if kind == name] for name, _ in diary.told}
    assert told["start"] == [0]
    assert told["rollout"] == [16, 32, 48, 64, 80, 96]
    assert told["update"] == list(range(1, 77))
    assert told["evaluation"] == [32, 64, 96]
    assert {48, 96} <= set(told["checkpoint"]) <= {32, 48, 64, 96}
    assert told["end"] == [96]
    assert diary.told[0][0] == "start"
    assert diary.told[-1][0] == "end"


def test_updates_are_told_to_nobody_who_does_not_ask():
    diary = Diary()
    assert Callbacks([StopOnPlateau(), diary]).on_update == (diary,)
    assert Callbacks().on_update == ()


def test_what_is_logged_stands_in_the_next_row_and_on_tensorboard(tmp_path):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    class Logs(Callback):
        def on_rollout(self, run):
            run.log("mine", torch.tensor(float(run.frames)))

        def on_evaluation(self, run, evaluation):
            if run.frames > 32:
                run.log("worst", min(evaluation.returns))

    result = go(tmp_path / "run", Logs(), logger="tensorboard")
    assert [row["mine"] for row in result.history] == [32, 64, 96]
    first, *later = [row["worst"] for row in result.history]
    assert math.isnan(first)
    means = [row["return_mean"] for row in result.history[1:]]
    assert all(worst <= mean for worst, mean in zip(later, means, strict=True))
    (file,) = result.folder.rglob("events.out.tfevents*")
    events = EventAccumulator(str(file)).Reload()
    assert [event.value for event in events.Scalars("mine")] == [32, 64, 96]


@pytest.mark.parametrize("name", ["frames", "loss_qvalue", "", "a\nb"])
def test_a_column_of_the_run_itself_is_not_overwritten(tmp_path, name):
    class Logs(Callback):
        def on_start(self, run):
            with pytest.raises(ValueError, match="`name` must be a new column's"):
                run.log(name, 1.0)
            with pytest.raises(ValueError, match=r"one number, got a tensor of \(2,\)"):
                run.log("mine", torch.zeros(2))
            run.stop("enough")

    assert go(tmp_path / "run", Logs(), total_frames=32).stopped_by == "enough"


def test_a_callback_stops_the_run_and_its_reason_is_known(tmp_path, caplog):
    class Stops(Callback):
        def on_rollout(self, run):
            if run.frames == 48:
                run.stop("I have seen enough")

    result = go(tmp_path / "run", Stops())
    assert result.stopped_by == "I have seen enough"
    assert "stopped early: I have seen enough" in caplog.text
    assert [row["frames"] for row in result.history] == [32, 48]
    assert saved_frames(result.folder) == 48


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_is_the_reason_and_the_exit_code_of_a_run(tmp_path, number):
    class Signals(Callback):
        def on_rollout(self, run):
            if run.frames == 48:
                os.kill(os.getpid(), number)

    result = go(tmp_path / "run", Signals())
    assert result.stopped_by == number.name
    assert result.exit_code == 128 + number
    assert saved_frames(result.folder) == 48
    assert result.history[-1]["frames"] == 32  # after a signal nothing is evaluated


def test_a_stop_that_was_asked_for_is_no_failure(tmp_path):
    class Asks(Callback):
        def on_evaluation(self, run, evaluation):
            (run.folder / "stop").touch()

    asked = go(tmp_path / "asked", Asks(), total_frames=10_000)
    reached = go(tmp_path / "reached", target_return=-1e9)
    assert (asked.stopped_by, asked.exit_code) == ("stop file", 0)
    assert (reached.stopped_by, reached.exit_code) == ("target_return", 0)
    assert [row["frames"] for row in reached.history] == [32]
    full = replace(reached, unsaved={"checkpoints": 16})
    assert full.exit_code == replace(full, stopped_by="SIGINT").exit_code == 1


def test_a_run_in_python_prints_nothing(tmp_path):
    code = """
import sys
from torchrl_elegant import SACConfig, train
small = SACConfig(num_cells=(8,), batch_size=8, warmup=20)
train(small, "Pendulum-v1", total_frames=64, eval_episodes=1, folder=sys.argv[1])
"""
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path / "run")],
        capture_output=True,
        text=True,
        check=True,
        timeout=PATIENCE,
    )
    assert (done.stdout, done.stderr) == ("", "")


@pytest.mark.parametrize(
    ("hook", "frames"),
    [("rollout", 48), ("update", 48), ("evaluation", 64), ("checkpoint", 48), ("end", 96)],
)
def test_a_callback_that_fails_ends_the_run_after_all_is_saved(tmp_path, hook, frames):
    def fail(self, run, *args):
        if run.frames >= frames:
            raise ZeroDivisionError("a bug of mine")

    failing = type("Failing", (Callback,), {f"on_{hook}": fail})()
    with pytest.raises(ZeroDivisionError, match="a bug of mine"):
        go(tmp_path / "run", failing)
    assert saved_frames(tmp_path / "run") == frames
    result = resume(tmp_path / "run", total_frames=112)
    assert [row["frames"] for row in result.history if row["frames"] <= 64] == [32, 64]
    assert result.history[-1]["updates"] == 92


def test_a_plateau_is_counted_over_a_resume(tmp_path):
    # No return can rise by a million. The evaluation before the first update does not count.
    plateau = {"patience": 3, "min_delta": 1e6}
    first = go(tmp_path / "run", StopOnPlateau(**plateau), eval_interval=16, total_frames=48)
    assert first.stopped_by is None
    again = StopOnPlateau(**plateau)
    second = resume(first.folder, total_frames=160, callbacks=[again])
    assert second.stopped_by.startswith("plateau: 3 evaluations without a return above -")
    assert second.history[-1]["frames"] == 80
    # Whoever goes on after a stop gives it another chance.
    assert again.waited == 0


def test_the_plateau_ends_where_a_return_is_better():
    plateau = StopOnPlateau(patience=2, min_delta=1.0)
    reasons = []
    run = SimpleNamespace(stop=reasons.append, updates=1)
    for value in (1.0, 1.5, 2.5, 3.0, 3.4):
        assert not reasons
        plateau.on_evaluation(run, Evaluation(returns=(value,), lengths=(1,)))
    assert reasons == ["plateau: 2 evaluations without a return above 2.5"]


def test_the_best_by_another_score_is_kept(tmp_path):
    worst = KeepBest(score=lambda evaluation: min(evaluation.returns), name="worst_case")
    seen = []

    class Sees(Callback):
        def on_evaluation(self, run, evaluation):
            seen.append((min(evaluation.returns), run.frames))

    result = go(tmp_path / "run", worst, Sees())
    metadata = Policy.load(result.folder / "policy_worst_case.pt").metadata
    assert (metadata["score"], metadata["frames"]) == max(seen)
    again = KeepBest(score=lambda evaluation: -1e9, name="worst_case")
    resume(result.folder, total_frames=128, callbacks=[again])
    assert again.best == max(seen)[0]
    assert Policy.load(result.folder / "policy_worst_case.pt").metadata["frames"] == max(seen)[1]


@pytest.mark.parametrize("env", ["faults.fault_envs:Drawn", lambda **options: Drawn(**options)])
def test_each_evaluation_is_filmed_and_training_does_not_notice(tmp_path, env):
    plain = go(tmp_path / "plain", env=env)
    filmed = go(tmp_path / "filmed", RecordVideo(every=2), env=env)
    films = sorted(path.name for path in filmed.folder.glob("*.gif"))
    assert films == ["video_000000000032.gif", "video_000000000096.gif"]
    with Image.open(filmed.folder / films[1]) as pictures:
        assert pictures.n_frames == 20
    for before, after in zip(plain.policy.parameters(), filmed.policy.parameters(), strict=True):
        assert torch.equal(before, after)


def test_a_film_needs_its_package_and_an_environment_that_can_be_seen(tmp_path, monkeypatch):
    told = "`callbacks` must be without RecordVideo for `.*`, which cannot render"
    with pytest.raises(UsageError, match=told):
        go(tmp_path / "run", RecordVideo())
    assert not (tmp_path / "run").exists()  # known before the first frame
    monkeypatch.setitem(sys.modules, "PIL", None)
    with pytest.raises(UsageError, match=r"`RecordVideo` needs .*torchrl_elegant\[video\]"):
        RecordVideo()


def test_a_file_of_a_callback_that_cannot_be_written_costs_nothing(tmp_path):
    class Writes(Callback):
        def on_rollout(self, run):
            with run.storing("mine.txt"):
                raise OSError(28, "No space left on device")

    result = go(tmp_path / "run", Writes())
    assert result.unsaved == {"mine.txt": 16}
    assert result.history[-1]["frames"] == 96


def test_what_is_no_callback_is_refused_before_there_is_a_folder(tmp_path):
    class Odd(Callback):
        def state_dict(self):
            return {"set": object()}

    for wrong, error, message in (
        (print, TypeError, "must hold objects whose class is derived from torchrl_elegant.Cal"),
        (KeepBest(score=sum, name="best"), ValueError, r"got two of 'policy_best\.pt'"),
        (Odd(), TypeError, "must be plain data and tensors"),
    ):
        with pytest.raises(error, match=message):
            go(tmp_path / "run", wrong)
    with pytest.raises(TypeError, match=r"`callbacks` must be a list, got <.*Callback"):
        Callbacks(Callback())
    assert not (tmp_path / "run").exists()
    for options, option in (({"patience": 0}, "patience"), ({"min_delta": -1.0}, "min_delta")):
        with pytest.raises(ValueError, match=f"`{option}` must be"):
            StopOnPlateau(**options)
    with pytest.raises(ValueError, match="`every` must be 1 or more"):
        RecordVideo(every=0)
    with pytest.raises(ValueError, match="`name` must be letters"):
        KeepBest(score=sum, name="../up")


def test_a_plateau_begins_with_the_first_update():
    plateau, reasons = StopOnPlateau(patience=1), []
    run = SimpleNamespace(stop=reasons.append, updates=0)
    for value in (3.0, 2.0, 1.0):
        plateau.on_evaluation(run, Evaluation(returns=(value,), lengths=(1,)))
    assert (plateau.waited, plateau.best, reasons) == (0, -math.inf, [])
