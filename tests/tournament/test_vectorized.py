"""Tournaments whose members train together: the same rows, files and resumes as any other."""

from __future__ import annotations

import os
import time
from dataclasses import replace

import pytest
import torch
from tournament_toys import check_whole, die, outlives, rows

from torchrl_elegant import A2CConfig, PPOConfig, RunConfig, evaluate
from torchrl_elegant.config.text import UsageError
from torchrl_elegant.tournament import LogUniform, resume_tournament, tournament
from torchrl_elegant.tournament.executors import VectorizedExecutor
from torchrl_elegant.tournament.leaderboard import FILE
from torchrl_elegant.tournament.pod import Order, left_result, result_path
from torchrl_elegant.tournament.store import Store
from torchrl_elegant.tournament.training import RemainderError, Training
from torchrl_elegant.trainers.population import OnPolicyMembers

PPO = PPOConfig(num_cells=(8,), batch_size=32, epochs=1)
SHORT = {
    "budget": 1_536,
    "quantum": 128,
    "population": 4,
    "num_envs": 4,
    "frames_per_batch": 64,
    "eval_episodes": 2,
    "final_episodes": 2,
    "finalists": 2,
    "executor": "vectorized",
    "env_kwargs": {"max_steps": 40},
}


def small(folder, configs=PPO, env="elegant/chasing", **more):
    return tournament(configs, env, folder=str(folder), **{**SHORT, **more})


def test_a_tournament_from_end_to_end(tmp_path):
    result = small(tmp_path / "run", space={"lr": LogUniform(1e-4, 1e-2)})
    check_whole(tmp_path / "run")
    assert len(result.leaders) == 4
    done = "SELECT depth, frames, updates FROM pod WHERE state = 'done' AND depth > 0"
    found = rows(tmp_path / "run", done)
    assert {frames for _, frames, _ in found if frames} >= {128, 256, 384}
    assert evaluate(result.best, episodes=1).return_mean < 11


def test_members_of_two_algorithms_train_in_two_groups(tmp_path):
    configs = [PPO, A2CConfig(num_cells=(8,), batch_size=32)]
    small(tmp_path / "run", configs, population=2, budget=128, quantum=64, recheck=False)
    names = rows(tmp_path / "run", "SELECT algorithm FROM pod WHERE operation = 'initial'")
    assert [name for (name,) in names] == ["ppo", "a2c"]


def test_generations_with_fusion_train_together(tmp_path):
    more = {"scheme": "generational", "fusion": True, "space": {"lr": LogUniform(1e-4, 1e-2)}}
    result = small(tmp_path / "run", **more)
    check_whole(tmp_path / "run")
    assert len(result.leaders) == 4


def test_a_stopped_tournament_goes_on(tmp_path, monkeypatch):
    usual, rounds = OnPolicyMembers.round, []

    def round_(members):
        usual(members)
        rounds.append(members)
        if len(rounds) == 3:  # half way through the second quantum
            (tmp_path / "run" / "stop").touch()
            time.sleep(0.25)  # as long as it takes to look again

    monkeypatch.setattr(OnPolicyMembers, "round", round_)
    result = small(tmp_path / "run")
    assert result.stopped_by == "stop file"
    kept = rows(tmp_path / "run", "SELECT amount, start FROM pod WHERE state = 'queued'")
    assert [amount for amount, _ in kept] == [64] * 4
    assert all(start for _, start in kept)
    whole = resume_tournament(tmp_path / "run")
    assert whole.stopped_by is None
    check_whole(tmp_path / "run")
    assert len(whole.leaders) == 4


def published(folder):
    """Checkpoints of pods that are done, in the leaderboard or in the file of a result."""
    found = set()
    if (folder / FILE).exists():
        query = "SELECT checkpoint FROM pod WHERE state = 'done' AND operation != 'final'"
        found = {digest for (digest,) in rows(folder, query)}
    left = [left_result(path) for path in (folder / "results").glob("*.json")]
    return found | {result.checkpoint for result in left if result.checkpoint is not None}


def at_file(part, count):
    """Die before the so manieth file is there whose path has ``part`` in it."""

    def arm():
        real, left = os.replace, [count]

        def rename(source, target):
            left[0] -= part in str(target)
            if not left[0]:
                die()
            real(source, target)

        os.replace = rename

    return arm


def in_a_round():
    OnPolicyMembers.round = lambda members: die()


def test_kills_cost_quanta_that_are_under_way_and_nothing_that_has_finished(tmp_path):
    folder, before = tmp_path / "run", set()
    more = {"budget": 256, "quantum": 64, "population": 2, "num_envs": 1, "finalists": 1}
    more |= {"progress": False, "logger": "none", "recheck": False}

    def run():
        if (folder / FILE).exists():
            resume_tournament(folder)
        else:
            small(folder, **more)

    kills = [at_file("checkpoints/", 2), at_file("results/", 2), in_a_round, at_file("run/best", 1)]
    for kill in kills:
        assert not outlives(kill, run)
        assert before <= published(folder)
        before = published(folder)
    run()
    assert before <= published(folder)
    check_whole(folder)
    # Each member has two pods, whatever was trained again.
    assert rows(folder, "SELECT SUM(amount) FROM pod") == [(256.0,)]
    assert (folder / "best" / "policy.pt").exists()


def order(pod, **more):
    usual = {
        "attempt": 1,
        "operation": "initial",
        "entry": 0,
        "options": {},
        "parent": None,
        "start": None,
        "amount": 0.0,
        "budget": 128,
        "unit": "frames",
        "rungs": (),
        "seed": pod,
        "episodes": 2,
    }
    return Order(pod=pod, **{**usual, **more})


@pytest.fixture
def executor(tmp_path):
    (tmp_path / "results").mkdir()
    names = ("num_envs", "frames_per_batch", "env_kwargs")
    run = RunConfig(env="elegant/chasing", total_frames=1280, **{n: SHORT[n] for n in names})
    work = Training(Store(tmp_path), (PPO,), run, "elegant/chasing")
    return VectorizedExecutor(work, tmp_path / "results")


def ends_of(executor, *orders, hear=lambda event: None):
    found = {}
    for each in orders:
        executor.start(each.to_json())

    def heard(event):
        hear(event)
        if event.result is not None:
            found[event.pod] = event.result

    executor.wait(0.01, heard)
    return found


def test_a_pod_goes_on_from_what_another_has_left(executor):
    first = ends_of(executor, order(1), order(2, options={"lr": 1e-2}))
    assert {each.kind for each in first.values()} == {"done"}
    next_orders = [
        order(3, operation="exploit", parent=first[2].checkpoint, options={"lr": 2e-2}),
        order(4, operation="continue", parent=first[1].checkpoint),
    ]
    second = ends_of(executor, *next_orders)
    assert [second[pod].frames for pod in (3, 4)] == [256, 256]
    # Each checkpoint is one that a pod alone loads, with the options of its order.
    states = [executor.work._state(second[pod].checkpoint) for pod in (3, 4)]
    rates = [state["learner"]["optimizer"]["param_groups"][0]["lr"] for state in states]
    assert rates == [2e-2, PPO.lr]
    assert not torch.equal(
        *(state["learner"]["loss"]["actor_network_params.log_std"] for state in states)
    )


def test_pods_of_other_networks_or_lengths_train_apart(executor):
    orders = [
        *(order(1), order(2, options={"lr": 1e-2}), order(3, options={"activation": "relu"})),
        order(4, options={"activation": "relu", "lr": 1e-3}),
        *(order(5, amount=64), order(6, entry=1)),
    ]
    executor.work = replace(executor.work, configs=(PPO, A2CConfig()))
    groups = executor._groups(orders)
    assert [[one.pod for one in group] for group in groups.values()] == [[1, 2], [3, 4], [5], [6]]


def test_a_damaged_checkpoint_fails_its_pod_alone(executor, tmp_path):
    first = ends_of(executor, order(1))
    path = next(p for p in tmp_path.rglob("*") if first[1].checkpoint in p.name)
    path.chmod(0o600)
    path.write_bytes(b"other")
    second = ends_of(executor, order(2, parent=first[1].checkpoint), order(3))
    assert (second[2].kind, second[3].kind) == ("damaged", "done")


def test_stopped_and_killed_pods(executor, tmp_path):
    def hear(event):
        if event.result is None:
            executor.stop(1, "preempted")
            executor.kill(2)

    ends = ends_of(executor, order(1), order(2), order(3), hear=hear)
    assert {pod: end.kind for pod, end in ends.items()} == {1: "partial", 3: "done"}
    assert ends[1].checkpoint is not None
    assert result_path(tmp_path / "results", 1, 1).exists()
    rest = order(1, attempt=2, start=ends[1].checkpoint, amount=64, seed=9)
    assert ends_of(executor, rest)[1].kind == "done"


def test_a_rest_that_is_too_short_is_trained_again_whole(executor, tmp_path, monkeypatch):
    def hear(event):
        if event.result is None:
            executor.stop(1, "preempted")

    (ended,) = ends_of(executor, order(1), hear=hear).values()
    load = Training.load

    def refuse(self, order, trial):
        if order.start is not None:
            raise RemainderError
        return load(self, order, trial)

    monkeypatch.setattr(Training, "load", refuse)
    rest = order(1, attempt=2, start=ended.checkpoint, amount=ended.amount)
    (found,) = ends_of(executor, rest).values()
    assert (found.kind, found.amount) == ("done", 128)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"rungs": 1}, "`rungs`"),
        ({"unit": "seconds", "budget": 4, "quantum": 1}, "`unit` must be frames"),
        ({"collector": "parallel"}, "`collector` must be sync"),
        ({"configs": PPOConfig(num_cells=(8,), batch_size=32, target_kl=0.1)}, "`target_kl`"),
    ],
)
def test_what_cannot_train_together_is_refused(tmp_path, options, said):
    with pytest.raises(UsageError, match=said):
        small(tmp_path / "run", **options)
    assert not (tmp_path / "run").exists()
