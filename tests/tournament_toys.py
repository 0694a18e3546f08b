"""Pods that only pretend to train, and tournaments of them: microseconds in place of minutes."""

from __future__ import annotations

import json
import math
import os
import signal
import socket
import sqlite3
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np

from torchrl_elegant.algorithms import A2CConfig
from torchrl_elegant.tournament.executors import Executor, InlineExecutor
from torchrl_elegant.tournament.executors import processes as workers
from torchrl_elegant.tournament.generator import Generator
from torchrl_elegant.tournament.leaderboard import FILE, Leaderboard
from torchrl_elegant.tournament.options import TournamentConfig
from torchrl_elegant.tournament.orchestrator import Orchestrator
from torchrl_elegant.tournament.pod import Link, Order, Result
from torchrl_elegant.tournament.space import spaces_of
from torchrl_elegant.tournament.store import Store
from torchrl_elegant.tournament.updater import Updater
from torchrl_elegant.tournament.views import Watcher

STEPS = 4


@dataclass
class Toy:
    """Work whose skill grows with the budget, faster the closer ``lr`` is to 1e-3.

    Args:
        store: checkpoints.
        seconds: time that one of the steps of a pod takes.
        diary: folder in which each process leaves its number.
    """

    store: Store
    seconds: float = 0.0
    diary: Path | None = None

    def __call__(self, order: Order, link: Link) -> Result:
        about: dict[str, Any] = {"pod": order.pod, "attempt": order.attempt}
        if self.diary is not None:
            (self.diary / str(os.getpid())).touch()
        if order.operation == "fuse":
            return self.fuse(order)
        begin = order.start or order.parent
        page = {"skill": 0.0, "frames": 0} if begin is None else self.read(begin)
        noise = float(np.random.default_rng(order.seed).normal())
        if order.operation in ("recheck", "final"):
            return Result(
                **about, kind="done", score=page["skill"] + noise, score_error=0.1, episodes=5
            )
        step = order.budget / STEPS
        amount = order.amount if order.start else 0.0
        gain = math.exp(-abs(math.log10(order.options["lr"]) + 3))
        while amount < order.budget:
            time.sleep(self.seconds)
            page = {"skill": page["skill"] + gain * step, "frames": page["frames"] + int(step)}
            amount += step
            for rung, goal in enumerate(order.rungs):
                if goal == amount:
                    link.report(rung, page["skill"], page["frames"])
            reason = link.beat()
            if reason is not None and amount < order.budget:
                return self.stopped(reason, order, page, amount)
        score = page["skill"] + noise
        more = {"score": score, "score_error": 0.1, "episodes": 5}
        return Result(
            **about,
            kind="done",
            amount=amount,
            frames=page["frames"],
            **more,
            **self.publish(order, page),
        )

    def fuse(self, order: Order) -> Result:
        """The average of two skills, and by the seed a bit more than the better one or not."""
        about: dict[str, Any] = {"pod": order.pod, "attempt": order.attempt}
        assert order.parent is not None
        assert order.other is not None
        parts = [self.read(digest) for digest in (order.parent, order.other)]
        skills = [part["skill"] for part in parts]
        better = order.seed % 2 == 1
        skill = max(skills) + 1.0 if better else sum(skills) / 2 - 1.0
        more: dict[str, Any] = {"score": skill, "score_error": 0.1, "episodes": 5}
        page = {"skill": skill, "frames": parts[0]["frames"]}
        if not better:
            return Result(**about, kind="ended", error="the average is worse", **more)
        news = self.publish(order, page)
        return Result(**about, kind="done", frames=page["frames"], **more, **news)

    def stopped(self, reason: str, order: Order, page: dict[str, Any], amount: float) -> Result:
        about: dict[str, Any] = {"pod": order.pod, "attempt": order.attempt, "amount": amount}
        if reason == "hopeless":
            return Result(**about, kind="ended")
        return Result(**about, kind="partial", **self.publish(order, page))

    def publish(self, order: Order, page: dict[str, Any]) -> dict[str, Any]:
        data = json.dumps({**page, "pod": order.pod, "attempt": order.attempt}).encode()
        return {"checkpoint": self.store.put(data), "size": len(data)}

    def read(self, digest: str) -> dict[str, Any]:
        page: dict[str, Any] = json.loads(self.store.get(digest))
        return page


class Quick:
    """Forks workers from this process, which has imported everything already."""

    def fork(self) -> Connection:
        ours, theirs = socket.socketpair()
        if os.fork() == 0:
            try:
                ours.close()
                workers._serve(Connection(theirs.detach()))
            finally:
                os._exit(1)
        theirs.close()
        return Connection(ours.detach())

    def close(self) -> None:
        pass


def toy_tournament(
    folder: Path,
    *,
    work: Callable[[Order, Link], Result] | None = None,
    executor: Callable[[Any, Path], Executor] = InlineExecutor,
    slots: Callable[[], int] | None = None,
    seed: int = 0,
    algorithms: int = 1,
    watchers: Sequence[Watcher] = (),
    **options: Any,
) -> Orchestrator:
    """An orchestrator of toys in a folder, new or going on; close its ``board``."""
    config = TournamentConfig(
        **{"budget": 2_000, "quantum": 100, "population": 4, "final_episodes": 5, **options}
    )
    for name in ("checkpoints", "results"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    if not (folder / FILE).exists():
        Leaderboard.create(
            folder / FILE,
            {"config": {"budget": config.budget, "unit": "frames"}},
            population=config.population,
        ).close()
    board, store = Leaderboard(folder / FILE), Store(folder / "checkpoints")
    spaces = spaces_of([A2CConfig()] * algorithms, {"lr": "log:1e-5..1e-1"})
    return Orchestrator(
        folder,
        board=board,
        store=store,
        config=config,
        generator=Generator(board, config, spaces, seed),
        updater=Updater(board, store, config),
        executor=executor(work or Toy(store), folder / "results"),
        slots=slots,
        episodes=5,
        watchers=watchers,
    )


def play(folder: Path, **options: Any) -> Orchestrator:
    """Run a tournament of toys to its end."""
    made = toy_tournament(folder, **options)
    with made.board:
        made.run()
    return made


def rows(folder: Path, query: str) -> list[tuple[Any, ...]]:
    """Rows of a leaderboard, read by SQL."""
    database = sqlite3.connect(folder / FILE)
    try:
        return [tuple(row) for row in database.execute(query)]
    finally:
        database.close()


def check_whole(folder: Path) -> None:
    """Nothing is left over, nothing is missing, nothing is twice."""
    states = dict(rows(folder, "SELECT state, COUNT(*) FROM pod GROUP BY state"))
    assert not {"queued", "running"} & states.keys(), states
    assert list((folder / "results").iterdir()) == []
    store = Store(folder / "checkpoints")
    live = {
        digest for (digest,) in rows(folder, "SELECT digest FROM checkpoint WHERE state = 'live'")
    }
    assert {path.name for path in store.path.iterdir()} == live
    for digest in live:
        store.get(digest)
    decided = [pod for (pod,) in rows(folder, "SELECT pod FROM decision ORDER BY sequence")]
    assert len(set(decided)) == len(decided)
    sequences = [
        number for (number,) in rows(folder, "SELECT sequence FROM decision ORDER BY sequence")
    ]
    assert sequences == list(range(1, len(sequences) + 1))


def history(folder: Path) -> list[tuple[Any, ...]]:
    """All decisions, and how every pod ended; without times and attempts."""
    decisions = rows(folder, "SELECT pod, inputs, choice, random FROM decision ORDER BY sequence")
    pods = rows(
        folder,
        "SELECT id, state, operation, member, depth, parents, lineage, options, seed, amount, "
        "score, frames FROM pod ORDER BY id",
    )
    return [*decisions, *pods]


def outlives(arm: Callable[[], None], run: Callable[[], Any]) -> bool:
    """Run in a child process, which ``arm`` may end; True if it came to its end."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            arm()
            run()
            code = 0
        finally:
            os._exit(code)
    _, status = os.waitpid(child, 0)
    assert status == 0 or os.WTERMSIG(status) == signal.SIGKILL, status
    return status == 0


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)
