"""Real tournaments, small ones: from configurations to a policy, and every mistake on the way."""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import signal
import sqlite3
import uuid

import pytest
from tournament_toys import check_whole, history, rows

from torchrl_elegant import A2CConfig, DQNConfig, Policy, PPOConfig, SACConfig, evaluate
from torchrl_elegant.config.text import UsageError
from torchrl_elegant.tournament import (
    Choice,
    Integer,
    LogUniform,
    TournamentConfig,
    Uniform,
    resume_tournament,
    status,
    tournament,
)
from torchrl_elegant.tournament.executors import processes
from torchrl_elegant.tournament.leaderboard import FILE

PPO = PPOConfig(num_cells=(8,), batch_size=32, epochs=1)
SHORT = {
    "budget": 1_600,
    "quantum": 200,
    "population": 4,
    "frames_per_batch": 100,
    "eval_episodes": 2,
    "final_episodes": 5,
    "finalists": 2,
    "executor": "inline",
}


def small(folder, configs=PPO, env="CartPole-v1", **more):
    return tournament(configs, env, folder=str(folder), **{**SHORT, **more})


def test_a_tournament_of_two_algorithms_in_processes_from_end_to_end(tmp_path):
    configs = [PPO, DQNConfig(num_cells=(8,), batch_size=4, warmup=20)]
    space = {
        "lr": "log:1e-4..1e-2",
        "ppo.clip_epsilon": Uniform(0.1, 0.3),
        "gamma": Choice((0.95, 0.99)),
    }
    result = small(tmp_path / "run", configs, executor="processes", slots=2, space=space)
    check_whole(tmp_path / "run")
    assert "compile: false" in (result.best / "config.yaml").read_text()
    assert "finished" in (tmp_path / "run" / "report.html").read_text()
    (events,) = (tmp_path / "run" / "tensorboard").rglob("events*")
    assert events.stat().st_size > 500
    assert len(result.leaders) == 4
    scores = [pod.score for pod in result.leaders]
    assert scores == sorted(scores, reverse=True)
    first = rows(tmp_path / "run", "SELECT algorithm, options FROM pod WHERE operation = 'initial'")
    assert [name for name, _ in first] == ["ppo", "dqn", "ppo", "dqn"]
    assert sorted(json.loads(first[0][1])) == ["clip_epsilon", "gamma", "lr"]
    assert sorted(json.loads(first[1][1])) == ["gamma", "lr"]
    # The winner is a run folder that every other command takes.
    policy = result.policy()
    assert policy([0.0, 0.0, 0.0, 0.0]) in (0, 1)
    assert evaluate(result.best, episodes=2).return_mean > 0
    finals = rows(
        tmp_path / "run", "SELECT parents, score, episodes FROM pod WHERE operation = 'final'"
    )
    assert {episodes for _, _, episodes in finals} == {5}
    assert policy.metadata["return_mean"] == max(score for _, score, _ in finals)
    # So do the curve and what `compare` makes of it: the score of its selection flatters it.
    last = (result.best / "metrics.csv").read_text().splitlines()[-1]
    assert float(last.rpartition(",")[2]) == max(score for _, score, _ in finals)
    lineages = rows(
        tmp_path / "run",
        "SELECT DISTINCT target.lineage FROM pod JOIN pod AS target "
        "ON pod.parents = '[' || target.id || ']' WHERE pod.operation = 'final'",
    )
    assert result.ensemble.exists() == (len(lineages) > 1)
    page = status(tmp_path / "run")
    assert page.splitlines()[0].split()[:4] == ["rank", "member", "pod", "depth"]
    assert "1,600 of 1,600 frames" in page
    # Nothing is written over, neither by a second call nor by going on.
    before = Policy.load(result.best / "policy.pt").metadata
    again = resume_tournament(tmp_path / "run", logger="none", progress=False)
    assert list((tmp_path / "run" / "tensorboard").rglob("events*")) == [events]
    assert again.policy().metadata == before
    with pytest.raises(
        UsageError,
        match=r"`folder` must be new or empty, got .* go on with the tournament in it by resume=",
    ):
        small(tmp_path / "run")


def test_what_a_kill_has_left_half_made_is_removed(tmp_path):
    folder, digits = tmp_path / "run", uuid.uuid4().hex
    (folder / "results").mkdir(parents=True)
    (folder / f".{FILE}.{digits}").write_bytes(b"half")
    (folder / f".{FILE}.{digits}-journal").write_bytes(b"half")
    small(folder, budget=800)
    for name in ("best", "ensemble"):
        (folder / f".{name}-{digits}" / "checkpoints").mkdir(parents=True)
    resume_tournament(folder)
    assert [path.name for path in folder.iterdir() if path.name.startswith(".")] == []


def test_the_same_seed_gives_the_same_tournament_and_a_stop_changes_nothing(tmp_path):
    small(tmp_path / "whole", seed=3)
    small(tmp_path / "again", seed=3)
    assert history(tmp_path / "whole") == history(tmp_path / "again")
    calls = []

    def slots():
        calls.append(1)
        if len(calls) == 4:
            os.kill(os.getpid(), signal.SIGTERM)
        return 1

    stopped = small(tmp_path / "parts", seed=3, slots=slots)
    assert stopped.stopped_by == "SIGTERM"
    states = dict(rows(tmp_path / "parts", "SELECT state, COUNT(*) FROM pod GROUP BY state"))
    assert states["done"] < 8
    resume_tournament(tmp_path / "parts", executor="inline")
    parts, whole = history(tmp_path / "parts"), history(tmp_path / "whole")
    # A pod that was ended half way trains in two parts, and so its numbers differ; what was decided
    # before it does not.
    assert parts[:4] == whole[:4]
    assert rows(tmp_path / "parts", "SELECT SUM(amount) FROM pod")[0][0] == 1_600


def test_hyper_parameters_are_those_of_the_pod_and_not_those_of_its_parent(tmp_path):
    result = small(
        tmp_path,
        [SACConfig(num_cells=(8,), batch_size=4, warmup=20)],
        env="Pendulum-v1",
        frames_per_batch=20,
        final_episodes=1,
        eval_episodes=1,
        quantum=150,
        budget=1_200,
        env_kwargs={"max_episode_steps": 20},
    )
    # The pods themselves refuse a load that changes an option.
    assert rows(tmp_path, "SELECT COUNT(*) FROM pod WHERE state = 'failed'") == [(0,)]
    parents = {
        pod: json.loads(options) for pod, options in rows(tmp_path, "SELECT id, options FROM pod")
    }
    found = rows(tmp_path, "SELECT parents, options FROM pod WHERE operation = 'exploit'")
    assert found
    for parent, options in found:
        assert parents[json.loads(parent)[0]] != json.loads(options)
    assert result.policy().metadata["frames"] <= 300


@pytest.mark.parametrize("unit", ["updates", "seconds"])
def test_budgets_of_updates_and_of_seconds(tmp_path, unit):
    budget = {"updates": (160, 20), "seconds": (8, 1)}[unit]
    plan = {"budget": budget[0], "quantum": budget[1], "total_frames": 4_000}
    if unit == "seconds":
        plan |= {"total_frames": 400, "population": 2, "budget": 2}
    result = small(tmp_path, unit=unit, **plan)
    check_whole(tmp_path)
    (amounts,) = zip(*rows(tmp_path, "SELECT amount FROM pod WHERE member >= 0"), strict=True)
    if unit == "updates":
        assert min(amounts) >= 20
    else:
        # A plan that is fulfilled ends a pod before its time.
        assert max(amounts) < 1
    assert result.leaders


def test_options_that_form_networks_stay_with_what_was_learned(tmp_path):
    small(
        tmp_path,
        space={"num_cells": [(8,), (12,)], "lr": LogUniform(1e-4, 1e-2), "epochs": Integer(1, 3)},
        resample=1.0,
    )
    options = {pod: json.loads(text) for pod, text in rows(tmp_path, "SELECT id, options FROM pod")}
    explored = rows(tmp_path, "SELECT id, parents FROM pod WHERE operation = 'exploit'")
    assert explored
    for pod, parents in explored:
        parent = options[json.loads(parents)[0]]
        assert options[pod]["num_cells"] == parent["num_cells"]
        assert options[pod]["lr"] != parent["lr"]
    assert rows(tmp_path, "SELECT COUNT(*) FROM pod WHERE state = 'failed'") == [(0,)]


WRONG = [
    (
        {"budget": 700},
        r"`budget` must allow each of the 4 members one quantum of 200 frames, which makes 800",
    ),
    (
        {"quantum": 50},
        r"`quantum` must be at least 100, the frames that ppo collects at a time, got `50`",
    ),
    (
        {"space": {"lrr": "log:1e-4..1e-2"}},
        r"unknown option `space.lrr`: did you mean `space.lr`\?",
    ),
    (
        {"space": {"ppo.lrr": "log:1e-4..1e-2"}},
        r"unknown option `space.lrr` of ppo: did you mean `space.lr`\?",
    ),
    ({"space": {"lr": "log:1e-2..1e-4"}}, r"finite bounds, the lower one first, got 0.01..0.0001"),
    ({"space": {"lr": "log:0..1"}}, r"positive bounds for log, got 0.0"),
    (
        {"space": {"lr": "1e-4"}},
        r"`space.lr` must be log:low..high, uniform:low..high, int:low..high or choices",
    ),
    (
        {"space": {"lr": "log:a..b"}},
        r"`space.lr` must have two numbers with .. between, each a finite number, got 'log:a..b'",
    ),
    ({"space": {"epochs": "int:1.5..4"}}, r"numbers with .. between, each an integer, got"),
    (
        {"space": {"gamma": "uniform:0.9..1.5"}},
        r"`space.gamma` must hold values that ppo takes, got 1.5: `gamma` must be a number in",
    ),
    ({"space": {"epochs": "uniform:1..5"}}, r"`space.epochs` must be int:... or a list of choices"),
    (
        {"space": {"activation": "tanh,rlu"}},
        r"`space.activation` must hold values that ppo takes, got rlu: `activation` must be one of",
    ),
    (
        {"env": "Pendulum-v1", "configs": [PPO, DQNConfig(warmup=20, batch_size=4)]},
        r"continuous actions: .*ppo",
    ),
    (
        {"configs": DQNConfig()},
        r"`budget` must suffice for dqn, got 1600, which gives each member total_frames=400: ",
    ),
    ({"target_return": 9.0}, r"`target_return` must not be given to a tournament"),
    ({"logger": "none!"}, r"`logger` must be one of auto, none, tensorboard, wandb, mlflow"),
    ({"total_frames": 500}, r"`total_frames` must not be given to a tournament with unit=frames"),
    ({"populaton": 4}, r"unknown option `populaton`"),
    ({"slots": 2}, r"`slots` must be 0, 1 or none with executor=inline, got `2`"),
    ({"threads": 2}, r"`threads` must stay 0 with executor=inline"),
    (
        {"selection": "best"},
        r"`selection` must be one of truncation, tournament, softmax, none, got `best`",
    ),
    (
        {"configs": [DQNConfig(num_cells=(8,), warmup=250, batch_size=16)]},
        r"`quantum` must leave frames to learn from after those that fill the replay buffer of dqn",
    ),
    ({"configs": []}, r"`configs` must hold one configuration or more"),
    (
        {"configs": [A2CConfig(networks={"actor": lambda env: None})]},
        r"`networks` must be None in a tournament",
    ),
]


@pytest.mark.parametrize(("change", "message"), WRONG)
def test_mistakes_are_told_before_anything_is_made(tmp_path, change, message):
    change = dict(change)
    with pytest.raises(UsageError, match=message) as told:
        small(tmp_path / "run", change.pop("configs", PPO), **change)
    assert "\n" not in str(told.value)
    assert not (tmp_path / "run").exists()


def test_a_tournament_takes_one_configuration_too():
    assert TournamentConfig(budget=100, population=1, quantum=10).quanta == 10


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    return small(tmp_path_factory.mktemp("finished") / "run").folder


def copy(folder, tmp_path):
    target = tmp_path / "copy"
    return shutil.copytree(folder, target)


def test_folders_that_cannot_go_on_are_refused_and_left_as_they_are(tmp_path, finished):
    newer = copy(finished, tmp_path)
    database = sqlite3.connect(newer / FILE)
    database.execute("UPDATE meta SET value = '2' WHERE name = 'version'")
    database.commit()
    database.close()
    with pytest.raises(
        UsageError, match=r"version 1 or older, got .*, written by version 2 of its format"
    ):
        resume_tournament(newer)
    with pytest.raises(
        UsageError,
        match=r"`resume` must be the folder of a tournament, got .* without leaderboard.sqlite",
    ):
        resume_tournament(tmp_path)
    with pytest.raises(UsageError, match=r"`status` must be the folder of a tournament"):
        status(tmp_path / "nowhere")
    with pytest.raises(
        UsageError, match=r"`budget` must not be given when a tournament goes on, got `5`"
    ):
        resume_tournament(finished, budget=5)
    with pytest.raises(UsageError, match=r"`progress` must be true or false, got"):
        resume_tournament(finished, progress="maybe")
    with pytest.raises(UsageError, match=r"unknown option `slot`"):
        resume_tournament(finished, slot=5)


@pytest.mark.parametrize("place", [0, 4_200, "tail"])
def test_a_damaged_leaderboard_is_refused_and_left_as_it_is(tmp_path, finished, place):
    folder = copy(finished, tmp_path)
    data = bytearray((folder / FILE).read_bytes())
    if place == "tail":
        del data[len(data) // 2 :]
    else:
        data[place : place + 3_000] = b"\x07" * 3_000
    (folder / FILE).write_bytes(data)
    for call in (resume_tournament, status):
        with pytest.raises(
            UsageError, match=r"must hold a whole leaderboard, got .*, which is damaged"
        ) as told:
            call(folder)
        assert "\n" not in str(told.value)
    assert (folder / FILE).read_bytes() == bytes(data)
    assert (folder / "best" / "policy.pt").is_file()


def test_a_folder_that_cannot_be_written_is_told_before_anybody_writes(tmp_path, monkeypatch):
    small(tmp_path / "run", executor="inline")

    def files() -> set:
        # A reader leaves the log of the database behind, which is empty.
        every = (path for path in (tmp_path / "run").rglob("*") if path.is_file())
        return {path for path in every if not path.name.endswith(("-shm", "-wal"))}

    before = files()
    # Not by its permissions, which do not bind every user.
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    with pytest.raises(UsageError, match="`resume` must be a folder that can be written, got "):
        resume_tournament(tmp_path / "run")
    assert files() == before


def test_more_gpus_than_there_are_are_refused_before_anything_is_made(tmp_path, monkeypatch):
    for count in (0, 1):
        monkeypatch.setattr(processes, "visible_gpus", lambda count=count: ("0",) * count)
        with pytest.raises(UsageError, match=f"`gpus` must be .* got 2; set gpus={count}"):
            small(tmp_path / "run", executor="processes", gpus=2)
    assert not (tmp_path / "run").exists()


def test_a_missing_ray_is_told_before_anything_is_made(tmp_path, monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(UsageError, match="`executor` must be processes without Ray, got `ray`"):
        small(tmp_path / "run", executor="ray")
    assert not (tmp_path / "run").exists()
