"""Value of a tournament: what a population of eight reaches with the frames that it is given.

    python benchmarks/tournament_value.py --tasks cartpole pendulum --seeds 10

Each arm has the same frames, the same search space and the same evaluations; only the way in which
members are replaced differs. A seed of an arm is a tournament of its own with ``--slots`` worker
processes of one thread each. With one slot the two schemes decide alike: take as many as there are
cores. The arm ``tune`` is Ray Tune's PBT over trials of this package: ``--tune-python`` names an
interpreter that has both it (``benchmarks/requirements-rllib.txt``) and this package.

Writes ``benchmarks/results/tournament_value.md``, ``.csv`` and ``.png``; ``--results`` has it write
elsewhere. The table has a line for each seed, with its settings, and is written whenever a seed has
finished: a study goes on from there, and its page has all tasks and arms that it finds there. Seeds
of other settings are trained again, and left out. A change of the code is no change of settings:
remove lines to train their seeds again. Seconds are told with ``--seconds`` alone, which is for a
machine that has nothing else to do.
"""

from __future__ import annotations

import argparse
import fcntl
import json
import math
import shutil
import signal
import sqlite3
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any

import _value_archive
from _report import results_parser
from _seeds import HERE, SCRIPTS, Children, folder_name, side_by_side
from _value_tasks import ARMS, HELD_OUT, TASKS, Outcome, reached, words_of


def run_seed(
    job: tuple[str, str, int], slots: int, python: str, children: Children, *, is_timed: bool
) -> Outcome:
    """Train and evaluate one seed."""
    task, arm, seed = job
    words = words_of(task, arm, slots)
    above = HERE / "studies" / "tournament_value" / task / folder_name(arm, words, HELD_OUT)
    folder = above / f"s{seed}"
    above.mkdir(parents=True, exist_ok=True)
    with folder.with_suffix(".lock").open("w") as claim:
        try:
            fcntl.flock(claim, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            told = f"another process still trains in {folder}: end it first"
            raise RuntimeError(told) from None
        begin = train_by_tune if arm == "tune" else train
        found = begin(folder, words, seed, Run(children, python, claim.fileno()))
        shutil.rmtree(folder)
    rows = found["curve"]
    timed = {"seconds": reached(task, rows, 1), "whole": rows[-1][1]} if is_timed else {}
    return Outcome(
        task=task,
        arm=arm,
        seed=seed,
        settings=settings_of(task, arm, slots),
        held_out=found["held_out"],
        frames=reached(task, rows, 0),
        **timed,
        curve=tuple((frames, best) for frames, _, best in rows),
    )


def settings_of(task: str, arm: str, slots: int) -> str:
    """Digest of all words of an arm."""
    return folder_name(arm, words_of(task, arm, slots), HELD_OUT).rpartition("-")[2]


@dataclass(frozen=True)
class Run:
    """Children of the study, the interpreter that has Ray Tune, and the claim on a seed."""

    children: Children
    python: str
    lock: int

    def __call__(self, *command: str, log: Path) -> None:
        self.children.run(command, threads=1, log=log, lock=self.lock)


def train(folder: Path, words: Sequence[str], seed: int, run: Run) -> dict[str, Any]:
    """Train and evaluate; what was begun is begun again, as its seconds would tell nothing."""
    log, best = folder.with_suffix(".log"), folder / "best"
    shutil.rmtree(folder, ignore_errors=True)
    own = (f"folder={folder}", f"seed={seed}")
    run(sys.executable, str(SCRIPTS / "train_tournament.py"), *own, *words, log=log)
    if not (best / "policy.pt").exists():
        raise RuntimeError("stopped before its end; the command begins it again")
    run(
        *(sys.executable, str(SCRIPTS / "evaluate.py"), str(best), f"episodes={HELD_OUT}"),
        log=log,
    )
    held_out = json.loads((best / "evaluation.json").read_text())["return_mean"]
    return {"held_out": held_out, "curve": curve_of(folder)}


def train_by_tune(folder: Path, words: Sequence[str], seed: int, run: Run) -> dict[str, Any]:
    """The same members, frames and evaluations under Ray Tune's PBT."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    job = folder / "job.json"
    job.write_text(json.dumps({"words": words, "seed": seed, "held_out": HELD_OUT}))
    run(run.python, str(HERE / "_tune_pbt.py"), str(job), log=folder.with_suffix(".log"))
    found: dict[str, Any] = json.loads((folder / "outcome.json").read_text())
    return found


def curve_of(folder: Path) -> tuple[tuple[float, float, float], ...]:
    """Total frames, seconds since the start and best return so far, after each pod."""
    database = sqlite3.connect(folder / "leaderboard.sqlite")
    pods = database.execute(
        "SELECT operation, amount, score, created, ended FROM pod "
        "WHERE operation != 'final' ORDER BY ended, id"
    ).fetchall()
    database.close()
    begun = min(datetime.fromisoformat(created) for *_, created, _ in pods)
    found, frames, best = [], 0.0, -math.inf
    for operation, amount, score, _, ended in pods:
        frames += amount
        if operation != "recheck" and score is not None:
            best = max(best, score)
        if math.isfinite(best):
            seconds = (datetime.fromisoformat(ended) - begun).total_seconds()
            found.append((frames, seconds, best))
    return tuple(found)


class Study:
    """Outcomes of seeds, kept in a table whenever one more is there.

    Args:
        path: the table, whose seeds of the same settings are taken.
        slots: of each tournament.
    """

    def __init__(self, path: Path, slots: int) -> None:
        self._path = path
        found = _value_archive.read(path)
        self._outcomes = {
            (one.task, one.arm, one.seed): one
            for one in found
            if one.settings == settings_of(one.task, one.arm, slots)
        }
        others = len(found) - len(self._outcomes)
        if others:
            print(f"{others} seeds in {path} have other settings: left out", file=sys.stderr)

    def __contains__(self, job: tuple[str, str, int]) -> bool:
        return job in self._outcomes

    def add(self, outcome: Outcome) -> None:
        """Keep an outcome."""
        self._outcomes[outcome.task, outcome.arm, outcome.seed] = outcome
        self._path.parent.mkdir(parents=True, exist_ok=True)
        _value_archive.write(self._path, self.outcomes())

    def outcomes(self) -> list[Outcome]:
        """All outcomes in the order of tasks, arms and seeds."""
        tasks, arms = list(TASKS), list(ARMS)
        place = {job: (tasks.index(job[0]), arms.index(job[1]), job[2]) for job in self._outcomes}
        return [self._outcomes[job] for job in sorted(self._outcomes, key=place.__getitem__)]


def run_all(
    jobs: Sequence[tuple[str, str, int]], study: Study, arguments: argparse.Namespace
) -> list[str]:
    """Train what is not finished; returns failures."""
    children, failures = Children(), []
    train_one = partial(
        run_seed,
        slots=arguments.slots,
        python=arguments.tune_python,
        children=children,
        is_timed=arguments.seconds,
    )
    waiting = [job for job in jobs if job not in study]
    count = arguments.processes
    with side_by_side(train_one, waiting, processes=count, children=children) as ended:
        for job, done in ended:
            name = " ".join(map(str, job))
            try:
                study.add(done.result())
            except (OSError, RuntimeError, ValueError) as error:
                failures.append(f"{name}: {error}")
                print(f"failed: {failures[-1]}", file=sys.stderr, flush=True)
                continue
            print(f"{name}: return {done.result().held_out:.1f}", flush=True)
    return failures


def parse(argv: Sequence[str] | None = None) -> argparse.Namespace:
    parser = results_parser(__doc__)
    add = parser.add_argument
    add("--tasks", nargs="+", choices=TASKS, default=list(TASKS), help="these tasks")
    ours = [arm for arm in ARMS if arm != "tune"]
    add("--arms", nargs="+", choices=ARMS, default=ours, help="these arms (default: all but tune)")
    about = "interpreter that has Ray Tune and this package (default: this one)"
    add("--tune-python", default=sys.executable, help=about)
    add("--seeds", type=int, default=10, help="runs of each arm, seeds 0, 1, ... (default: 10)")
    add("--processes", type=int, default=1, help="tournaments at a time (default: 1)")
    add("--slots", type=int, default=2, help="pods at a time of each (default: 2)")
    about = "keep and tell seconds: the machine has nothing else to do"
    add("--seconds", action="store_true", help=about)
    arguments = parser.parse_args(argv)
    for name in ("seeds", "processes", "slots"):
        if (count := vars(arguments)[name]) < 1:
            parser.error(f"`--{name}` must be at least 1, got {count}")
    return arguments


def main() -> int:
    arguments = parse()
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    # Seed by seed, so that a study that is cut short has compared all arms.
    jobs = [
        (task, arm, seed)
        for seed in range(arguments.seeds)
        for task in arguments.tasks
        for arm in arguments.arms
    ]
    table = arguments.results / "tournament_value.csv"
    study, failures = Study(table, arguments.slots), []
    interrupted = False
    try:
        failures = run_all(jobs, study, arguments)
    except KeyboardInterrupt:
        interrupted = True
        print("interrupted: the same command goes on from here", file=sys.stderr)
    if outcomes := study.outcomes():
        # Here, because it brings matplotlib and torch, which help and mistakes need not wait for.
        from _value_report import write

        write(outcomes, arguments.results, arguments.processes, arguments.slots)
        print(f"written to {table.with_suffix('.md')}")
    return 130 if interrupted else 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
