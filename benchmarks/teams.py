"""Learning of teams on VMAS: ours beside BenchMARL, at the same settings.

    python benchmarks/teams.py --benchmarl-python path/to/python --seeds 5

BenchMARL needs an interpreter of its own (``benchmarks/requirements-benchmarl.txt``); without
``--benchmarl-python`` it is left out. A seed is a process of one thread. Both libraries are
evaluated by the same code, on the same episodes, with the policy's best actions.

Finished seeds are kept in ``benchmarks/results/teams.csv``: the same command goes on with a study
that was interrupted, and the table tells all that is finished. A change of the code is no change of
settings: remove rows there to train their seeds again. Writes ``benchmarks/results/teams.md`` and
``.png``; ``--results`` has it write elsewhere.
"""

from __future__ import annotations

import argparse
import json
import shutil
import signal
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from _report import results_parser
from _seeds import HERE, Children, side_by_side
from _team_store import Job, Outcome, Store
from contenders.teams.setting import ALGORITHMS, TASKS, setting_of

LIBRARIES = ("ours", "ours_compiled", "benchmarl")
POINTS, EPISODES = 10, 200


def run(job: Job, python: str, children: Children, store: Store) -> Outcome:
    """Train a seed in a process of its own, and keep it."""
    folder = Path(tempfile.mkdtemp(prefix="teams_"))
    told, outcome, log = folder / "job.json", folder / "outcome.json", folder / "log"
    words = {"library": job.library, "setting": asdict(job.setting), "seed": job.seed}
    words |= {"points": POINTS, "episodes": job.episodes, "outcome": str(outcome)}
    told.write_text(json.dumps(words))
    with (folder / "lock").open("w") as lock:
        command = (python, str(HERE / "_team_learner.py"), str(told))
        children.run(command, threads=1, log=log, lock=lock.fileno())
    curve = json.loads(outcome.read_text())["curve"]
    found = Outcome(job, tuple(tuple(row) for row in curve))
    store.add(found)
    shutil.rmtree(folder)
    return found


def run_all(
    jobs: Sequence[Job], pythons: dict[str, str], processes: int, store: Store
) -> list[str]:
    """Train what is not finished; what went wrong."""
    children, failures = Children(), []
    finished = {outcome.job for outcome in store.outcomes(jobs)}
    waiting = [job for job in jobs if job not in finished]

    def train(job: Job) -> Outcome:
        return run(job, pythons[job.library], children, store)

    with side_by_side(train, waiting, processes=processes, children=children) as ended:
        for job, done in ended:
            try:
                frames, seconds, cpu, value = done.result().last
            except (OSError, RuntimeError, ValueError) as error:
                failures.append(f"{job.name}: {error}")
                print(f"failed: {failures[-1]}", file=sys.stderr, flush=True)
                continue
            took = f"{seconds:.0f} s ({cpu:.0f} s of the processor)"
            print(f"{job.name}: {value:.3f} after {frames:.0f} frames, {took}", flush=True)
    return failures


def parse(argv: Sequence[str] | None = None) -> argparse.Namespace:
    parser = results_parser(__doc__)
    add = parser.add_argument
    add("--tasks", nargs="+", choices=TASKS, default=list(TASKS), help="these tasks")
    add("--algorithms", nargs="+", choices=ALGORITHMS, default=ALGORITHMS, help="these algorithms")
    add("--libraries", nargs="+", choices=LIBRARIES, default=LIBRARIES, help="these libraries")
    add("--benchmarl-python", help="interpreter that has BenchMARL (default: it is left out)")
    add("--seeds", type=int, default=5, help="runs of each, seeds 0, 1, ... (default: 5)")
    add("--processes", type=int, default=1, help="runs at a time (default: 1)")
    arguments = parser.parse_args(argv)
    for name in ("seeds", "processes"):
        if (count := vars(arguments)[name]) < 1:
            parser.error(f"`--{name}` must be at least 1, got {count}")
    return arguments


def jobs_of(
    tasks: Sequence[str], algorithms: Sequence[str], libraries: Sequence[str], seeds: int
) -> list[Job]:
    """Seed by seed, so that a study that is cut short has compared all."""
    return [
        Job(setting_of(task, algorithm), library, seed, EPISODES)
        for seed in range(seeds)
        for task in tasks
        for algorithm in algorithms
        for library in libraries
    ]


def main() -> int:
    arguments = parse()
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    pythons = {"ours": sys.executable, "ours_compiled": sys.executable}
    if arguments.benchmarl_python:
        pythons["benchmarl"] = arguments.benchmarl_python
    libraries = [name for name in arguments.libraries if name in pythons]
    store = Store(arguments.results / "teams.csv")
    jobs = jobs_of(arguments.tasks, arguments.algorithms, libraries, arguments.seeds)
    try:
        failures = run_all(jobs, pythons, arguments.processes, store)
    except KeyboardInterrupt:
        print("interrupted: the same command goes on from here", file=sys.stderr)
        return 130
    # All that was ever finished, and not only what this command asks for.
    known = store.outcomes(jobs_of(list(TASKS), ALGORITHMS, LIBRARIES, 100))
    if known:
        # Here, because it brings matplotlib and torch, which help and mistakes need not wait for.
        from _team_report import write

        write(known, arguments.results)
        print(f"written to {arguments.results / 'teams.md'}")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
