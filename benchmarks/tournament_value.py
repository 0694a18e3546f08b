"""Value of a tournament: what a population of eight reaches with the frames that it is given.

    python benchmarks/tournament_value.py --tasks cartpole pendulum --seeds 10

Each arm has the same frames, the same search space and the same evaluations; only the way in which
members are replaced differs. A seed of an arm is a tournament of its own with ``--slots`` worker
processes of one thread each. With one slot the two schemes decide alike: take as many as there are
cores. The arm ``tune`` is Ray Tune's PBT over trials of this package: ``--tune-python`` names an
interpreter that has both it (``benchmarks/requirements-rllib.txt``) and this package.

Finished seeds are kept in ``benchmarks/studies/tournament_value``, by task and settings: the same
command goes on with a study that was interrupted. A change of the code is no change of settings:
remove a folder there to train its seeds again. Writes ``benchmarks/results/tournament_value.md``,
``.csv`` and ``.png``; ``--results`` has it write elsewhere.
"""

from __future__ import annotations

import argparse
import fcntl
import json
import math
import os
import shutil
import signal
import sqlite3
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import asdict, dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from _report import results_parser
from _seeds import HERE, SCRIPTS, Children, folder_name
from _value_tasks import ARMS, HELD_OUT, TASKS, Outcome, words_of


def run_seed(
    task: str, arm: str, seed: int, slots: int, python: str, children: Children
) -> Outcome:
    """The outcome of one seed: read where it is finished, else trained and kept."""
    words = words_of(task, arm, slots)
    above = HERE / "studies" / "tournament_value" / task / folder_name(arm, words, HELD_OUT)
    folder, kept = above / f"s{seed}", above / f"s{seed}.json"
    if not kept.exists():
        above.mkdir(parents=True, exist_ok=True)
        with folder.with_suffix(".lock").open("w") as claim:
            try:
                fcntl.flock(claim, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                told = f"another process still trains in {folder}: end it first"
                raise RuntimeError(told) from None
            begin = train_by_tune if arm == "tune" else train
            found = begin(folder, words, seed, Run(children, python, claim.fileno()))
        outcome = Outcome(task=task, arm=arm, seed=seed, **found)
        stage = kept.with_suffix(".partial")
        stage.write_text(json.dumps(asdict(outcome)))
        os.replace(stage, kept)
        shutil.rmtree(folder)
    return Outcome(**json.loads(kept.read_text()))


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


def run_all(
    jobs: Sequence[tuple[str, str, int]], processes: int, slots: int, python: str
) -> tuple[list[Outcome], list[str]]:
    children, outcomes, failures = Children(), [], []
    with ThreadPoolExecutor(processes) as pool:
        waiting = {pool.submit(run_seed, *job, slots, python, children): job for job in jobs}
        try:
            for done in as_completed(waiting):
                name = " ".join(map(str, waiting[done]))
                try:
                    outcomes.append(done.result())
                except (OSError, RuntimeError, ValueError) as error:
                    failures.append(f"{name}: {error}")
                    print(f"failed: {failures[-1]}", file=sys.stderr, flush=True)
                    continue
                print(f"{name}: return {outcomes[-1].held_out:.1f}", flush=True)
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            children.stop()
            raise
    return sorted(outcomes, key=lambda one: jobs.index((one.task, one.arm, one.seed))), failures


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
    try:
        outcomes, failures = run_all(
            jobs, arguments.processes, arguments.slots, arguments.tune_python
        )
    except KeyboardInterrupt:
        print("interrupted: the same command goes on from here", file=sys.stderr)
        return 130
    if outcomes:
        named = f"--tasks {' '.join(arguments.tasks)} --arms {' '.join(arguments.arms)}"
        command = f"python benchmarks/tournament_value.py {named} --seeds {arguments.seeds}"
        command += f" --processes {arguments.processes} --slots {arguments.slots}"
        # Here, because it brings matplotlib and torch, which help and mistakes need not wait for.
        from _value_report import write

        write(outcomes, arguments.results, command, arguments.slots)
        print(f"written to {arguments.results / 'tournament_value.md'}")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
