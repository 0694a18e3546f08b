"""Real pods by themselves: options, partial results, rungs, what they refuse."""

from __future__ import annotations

import contextlib
import math

import pytest
import torch

from torchrl_elegant import PPOConfig, RunConfig, SACConfig
from torchrl_elegant.runs import trial as trials
from torchrl_elegant.tournament.pod import Order, carry_out
from torchrl_elegant.tournament.store import Store
from torchrl_elegant.tournament.training import Training

POINT = "faults.fault_envs:point"
PPO = PPOConfig(num_cells=(8,), batch_size=20, epochs=1)


def training(folder, config=PPO, **run):
    (folder / "results").mkdir(exist_ok=True)
    plan = {"total_frames": 400, "frames_per_batch": 20, "eval_episodes": 2}
    return Training(Store(folder), (config,), RunConfig(env=POINT, **plan, **run), POINT)


def order(pod=1, **more):
    usual = {
        "attempt": 1,
        "operation": "continue",
        "entry": 0,
        "options": {},
        "parent": None,
        "start": None,
        "amount": 0.0,
        "budget": 100,
        "unit": "frames",
        "rungs": (),
        "seed": 5,
        "episodes": 2,
    }
    return Order(pod=pod, **{**usual, **more})


class Line:
    """Link that says stop after so many signs of life."""

    def __init__(self, stop_after=math.inf, reason="preempted"):
        self.beats, self.stop_after, self.reason, self.reports = 0, stop_after, reason, []

    def beat(self):
        self.beats += 1
        return self.reason if self.beats > self.stop_after else None

    def report(self, rung, score, frames):
        self.reports.append((rung, frames))


def state(work, digest):
    return work._state(digest)


def test_an_order_survives_its_text():
    given = order(options={"lr": 1e-3, "num_cells": [8]}, rungs=(25.0, 50.0))
    assert Order.from_json(given.to_json()) == given


def test_a_child_goes_on_from_its_parent_with_options_and_seed_of_its_own(tmp_path):
    work = training(tmp_path)
    first = work(order(1), Line())
    assert (first.kind, first.frames, first.amount, first.episodes) == ("done", 100, 100, 2)
    same, other = (
        work(order(pod, parent=first.checkpoint, options={"lr": 1e-2}, seed=seed), Line())
        for pod, seed in ((2, 1), (3, 2))
    )
    assert same.frames == other.frames == 200
    stored = [state(work, result.checkpoint)["learner"] for result in (first, same, other)]
    rates = [one["optimizer"]["param_groups"][0]["lr"] for one in stored]
    assert rates == [3e-4, 1e-2, 1e-2]
    weights = [next(v for k, v in one["loss"].items() if v.ndim == 2) for one in stored]
    assert not torch.equal(weights[1], weights[2])
    # The same order gives the same result.
    again = work(order(2, parent=first.checkpoint, options={"lr": 1e-2}, seed=1), Line())
    assert again.score == same.score
    assert torch.equal(
        next(v for k, v in state(work, again.checkpoint)["learner"]["loss"].items() if v.ndim == 2),
        weights[1],
    )


def test_a_load_that_put_back_the_parents_options_would_be_refused(tmp_path, monkeypatch):
    work = training(tmp_path)
    first = work(order(1), Line())
    monkeypatch.setattr(trials, "configured_values_kept", lambda learner: contextlib.nullcontext())
    child = order(2, parent=first.checkpoint, options={"lr": 1e-2})
    result = carry_out(work, child, Line(), tmp_path / "results")
    assert result.kind == "failed"
    assert "a loaded state has changed the options of the pod" in result.error


def test_a_preempted_pod_leaves_what_it_has_and_trains_the_rest(tmp_path):
    work = training(tmp_path)
    half = work(order(1), Line(stop_after=2))
    assert half.kind == "partial"
    assert 0 < half.amount < 100
    rest = work(order(1, attempt=2, start=half.checkpoint, amount=half.amount), Line())
    assert (rest.kind, rest.frames, rest.amount) == ("done", 100, 100)
    nothing = work(order(1), Line(stop_after=0))
    assert (nothing.kind, nothing.amount, nothing.checkpoint) == ("partial", 0, None)


def test_a_pod_that_was_ended_while_it_was_evaluated_is_evaluated_anew(tmp_path):
    work = training(tmp_path, max_eval_steps=1_000)
    found = None
    for beats in range(4, 40):
        found = work(order(1), Line(stop_after=beats))
        if found.amount == 100:
            break
    assert found is not None
    if found.kind == "partial":
        rest = work(order(1, attempt=2, start=found.checkpoint, amount=100), Line())
        assert (rest.kind, rest.frames) == ("done", 100)


def test_a_remainder_that_is_too_short_to_fill_a_buffer_is_trained_as_a_whole(tmp_path):
    config = SACConfig(num_cells=(8,), batch_size=2, warmup=20)
    work = training(tmp_path, config)
    parent = work(order(1, budget=300), Line())
    late = work(order(2, parent=parent.checkpoint, budget=100), Line(stop_after=4))
    assert late.kind == "partial"
    assert 60 <= late.amount < 100
    whole = order(2, attempt=2, parent=parent.checkpoint, start=late.checkpoint, amount=late.amount)
    result = work(whole, Line())
    assert (result.kind, result.frames, result.amount) == ("done", 400, 100)


def test_a_first_pod_that_is_trained_again_keeps_nothing_of_what_was_ended(tmp_path):
    config = SACConfig(num_cells=(8,), batch_size=2, warmup=20)
    work = training(tmp_path, config)
    late = work(order(1, budget=400), Line(stop_after=19))
    assert late.kind == "partial"
    assert 360 <= late.amount < 400
    again = order(1, attempt=2, budget=400, start=late.checkpoint, amount=late.amount)
    result = work(again, Line())
    assert (result.kind, result.frames, result.amount) == ("done", 400, 400)
    assert result.updates == work(order(1, budget=400), Line()).updates


def test_rungs_are_reported_once_and_a_hopeless_pod_leaves_nothing(tmp_path):
    work, line = training(tmp_path), Line()
    work(order(1, rungs=(20.0, 60.0)), line)
    assert line.reports == [(0, 20), (1, 60)]
    line = Line()
    half = work(order(1, rungs=(20.0, 60.0)), Line(stop_after=4))
    rest = order(1, attempt=2, start=half.checkpoint, amount=half.amount, rungs=(20.0, 60.0))
    work(rest, line)
    assert [rung for rung, _ in line.reports] == ([1] if half.amount >= 20 else [0, 1])
    ended = work(order(1), Line(stop_after=2, reason="hopeless"))
    assert (ended.kind, ended.checkpoint) == ("ended", None)


def test_evaluations_publish_nothing_and_play_on_seeds_of_their_own(tmp_path):
    work = training(tmp_path)
    first = work(order(1), Line())
    scores = [
        work(order(pod, operation="final", parent=first.checkpoint, seed=pod, episodes=7), Line())
        for pod in (2, 3)
    ]
    assert [result.checkpoint for result in scores] == [None, None]
    assert [result.episodes for result in scores] == [7, 7]
    assert scores[0].score != scores[1].score


@pytest.mark.parametrize("unit", ["updates", "seconds"])
def test_amounts_in_other_units(tmp_path, unit):
    work = training(tmp_path)
    result = work(order(1, unit=unit, budget={"updates": 5, "seconds": 1e-6}[unit]), Line())
    assert result.kind == "done"
    assert result.amount >= {"updates": 5, "seconds": 1e-6}[unit]
    if unit == "seconds":
        # It ends with the round in which its time was over.
        assert result.frames == 20
