"""Cost of a tournament beside its pods, with pods that only pretend to train.

    python benchmarks/tournament.py --repeats 5 --tune-python path/to/python

Each pod is decided, stored and flushed to the disk as any other, and publishes a checkpoint of a
kilobyte. Three questions:

- Milliseconds a pod: empty pods show the whole cost; pods of 20 ms in a population of 8 on 2 slots
  show how much of it is left beside work, where 10 ms would be ideal. The seconds until the first
  pod has finished, in which processes import what they need, are left out. With ``--tune-python``,
  an interpreter that has Ray Tune, the same pods run under Ray Tune in turn: its actors are used
  again, and its checkpoints are flushed as well.
- Idle share of the slots with pods of lognormal length, whose standard deviation is half their
  mean: on 2 slots in truth, on more slots by a simulated clock. The members are twice as many as
  the slots, and the share is taken until nobody waits for a slot any more.
- Decisions with 5,000 pods in flight on a disk that takes 10 ms more for each commit.

Writes `benchmarks/results/tournament.md`; `--results` has it write elsewhere. With ``--flights``
only the last question is asked, by processor time, which other work on the machine hardly changes;
that writes `tournament_flights.md`.
"""

from __future__ import annotations

import gc
import json
import os
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import numpy as np
from _pods import (
    Pretended,
    ProcessorClock,
    Simulated,
    WallClock,
    lengths,
    tournament_of,
)
from _report import markdown, processor, results_parser, write_page

from torchrl_elegant.tournament.executors import Event, ProcessExecutor
from torchrl_elegant.tournament.orchestrator import Orchestrator

SLOTS, VARIATION = 2, 0.5
TUNE = Path(__file__).parent / "contenders" / "tune_pods.py"


@dataclass(frozen=True, kw_only=True)
class Case:
    """Pods of one length; ``goal`` and ``ideal`` are milliseconds a pod."""

    title: str
    tune: str
    pods: int
    population: int
    seconds: float
    goal: float
    ideal: float


CASES = (
    Case(
        title="empty pods",
        tune="empty",
        pods=1_000,
        population=1_000,
        seconds=0.0,
        goal=5,
        ideal=0,
    ),
    Case(
        title="pods of 20 ms",
        tune="steps",
        pods=400,
        population=8,
        seconds=0.02,
        goal=15,
        ideal=10,
    ),
)
# Slots, mean length of a pod in seconds, and pods of each member.
MACHINES = ((16, 10.0, 10), (100, 10.0, 10), (1_000, 10.0, 10))
# Slots, mean length, pods of each member, and seconds that a commit takes more. With 5 s only 950
# pods would end in a second: the first ones have begun together, and few of them are short.
FLIGHTS = ((5_000, 4.5, 3, 0.01), (5_000, 1.0, 3, 0.01))


class Timed(Orchestrator):
    """Notes the moment at which each pod has finished, and how long it took."""

    def __init__(self, *arguments: object, **more: object) -> None:
        super().__init__(*arguments, **more)
        self.moments: list[tuple[float, float]] = []

    def _hear(self, event: Event) -> None:
        if event.result is not None:
            self.moments.append((time.perf_counter(), event.result.seconds))
        super()._hear(event)


def real(pods: int, population: int, seconds: float, variation: float) -> list[tuple[float, float]]:
    """Moments and lengths of pods in processes on 2 slots."""
    with tempfile.TemporaryDirectory() as folder:
        made = tournament_of(
            Path(folder),
            lambda store, results: ProcessExecutor(Pretended(store, seconds, variation), results),
            pods=pods,
            population=population,
            slots=SLOTS,
            kind=Timed,
        )
        with made.board:
            made.run()
    return made.moments[:pods]


def simulated(
    slots: int, mean: float, each: int, commit: float = 0.0, clock: WallClock | None = None
) -> Simulated:
    """A tournament on a simulated machine."""
    population, clock = 2 * slots, clock or WallClock()
    with tempfile.TemporaryDirectory() as folder:
        made = tournament_of(
            Path(folder),
            lambda store, results: Simulated(
                store, slots, mean=mean, variation=VARIATION, clock=clock
            ),
            pods=population * each,
            population=population,
            slots=None,
            commit=commit,
            clock=clock,
        )
        with made.board:
            made.run()
    return made.executor


def milliseconds(case: Case) -> float:
    """Milliseconds a pod, from the first that has finished to the last."""
    (first, _), *_, (last, _) = real(case.pods, case.population, case.seconds, 0.0)
    return 1_000 * (last - first) / (case.pods - 1)


def tune_milliseconds(python: str, case: Case) -> float:
    """The same under Ray Tune."""
    done = subprocess.run(
        [python, str(TUNE), case.tune, str(case.pods)], capture_output=True, text=True, check=True
    )
    return json.loads(done.stdout.splitlines()[-1])["ms"]


def idle_share() -> float:
    """Idle share of 2 slots, from the first pod that has finished to the last that was begun."""
    found = real(pods=200, population=2 * SLOTS, seconds=0.2, variation=VARIATION)
    first, last = found[0][0], found[-SLOTS][0]
    busy = sum(max(0.0, min(end, last) - max(end - took, first)) for end, took in found)
    return 1 - busy / (SLOTS * (last - first))


def together(slots: int) -> float:
    """Idle share if as many members as slots waited for the slowest of each generation."""
    rng = np.random.default_rng(0)
    drawn = lengths(rng.normal(size=(2_000_000 // slots, slots)), 1.0, VARIATION)
    return 1 - drawn.mean() / drawn.max(1).mean()


def share(value: float) -> str:
    return f"{100 * value:.2f} %"


def cost_table(found: dict[str, dict[Case, list[float]]]) -> str:
    head = ["", "pods", "population", "ms a pod, median", "lowest to highest", "at most", "ideal"]
    rows = [
        [
            *(f"{case.title}, {name}", str(case.pods), str(case.population)),
            *(f"{median(times):.1f}", f"{min(times):.1f} to {max(times):.1f}"),
            *(f"{case.goal:g}", f"{case.ideal:g}"),
        ]
        for name, cases in found.items()
        for case, times in cases.items()
    ]
    return markdown(head, rows)


def idle_table(shares: list[float], machines: list[Simulated]) -> str:
    head = ["slots", "mean length", "idle", "at most", "idle if all waited for the slowest"]
    goal = "3 %"
    rows = [[f"{SLOTS}, in truth", "0.2 s", share(median(shares)), goal, share(together(SLOTS))]]
    for (slots, mean, _), machine in zip(MACHINES, machines, strict=True):
        told = [str(slots), f"{mean:g} s", share(machine.idle()), goal, share(together(slots))]
        rows.append(told)
    return markdown(head, rows)


def flight_table(machines: list[Simulated]) -> str:
    head = ["in flight", "pods end", "decisions/s", "seconds to a decision, median", "p99"]
    rows = []
    for (slots, mean, _, _), machine in zip(FLIGHTS, machines, strict=True):
        rate, middle, high = flight(machine, slots)
        told = (f"{rate:,.0f}", f"{middle:.0f} ms", f"{high:.0f} ms")
        rows.append([f"{slots:,}", f"{slots / mean:,.0f} a second", *told])
    return markdown(head, rows)


def flight(machine: Simulated, slots: int) -> tuple[float, float, float]:
    """Decisions in a second, and milliseconds to one: their median and their 99th percentile."""
    waits = np.array(machine.latencies[slots:])
    begun = [begin for begin, _ in machine.pods[slots : slots + len(machine.latencies)]]
    middle, high = 1_000 * np.quantile(waits, [0.5, 0.99])
    return len(begun) / (begun[-1] - begun[0]), middle, high


def flights_by_processor_time(folder: Path, repeats: int) -> None:
    """The table of flights alone, each in turn, in a file of its own."""
    found: dict[tuple[float, ...], list[tuple[float, float, float]]] = {one: [] for one in FLIGHTS}
    for _ in range(repeats):
        for one, told in found.items():
            told.append(flight(simulated(*one, clock=ProcessorClock()), one[0]))
    rows = []
    for (slots, mean, _, _), told in found.items():
        columns = (sorted(column) for column in zip(*told, strict=True))
        texts = [f"{median(one):,.0f} ({one[0]:,.0f} to {one[-1]:,.0f})" for one in columns]
        rows.append([f"{slots:,}", f"{slots / mean:,.0f} a second", *texts])
    head = ["in flight", "pods end", "decisions/s", "ms to a decision, median", "p99"]
    table = markdown(head, rows)
    print(table)
    about = (
        f"{processor()}, {os.cpu_count()} cores. {repeats} runs of each row, in turn: median, and "
        "lowest to highest. The clock is the processor time of the orchestrator and 10 ms for each "
        "transaction that writes; waits for the real disk are not in it. Goals: 1,000 decisions/s "
        "and p99 of 50 ms in the first row; in the second more pods end than can be decided."
    )
    title = "# Tournament: decisions with 5,000 pods in flight, by processor time"
    command = f"`python benchmarks/tournament.py --flights --repeats {repeats}`"
    write_page(folder, "tournament_flights", title, command, about, table)


def main() -> None:
    parser = results_parser(__doc__)
    parser.add_argument("--repeats", type=int, default=5, help="runs of each case (default: 5)")
    parser.add_argument("--tune-python", help="interpreter that has Ray Tune (default: without)")
    about = "ask only about pods in flight, by processor time"
    parser.add_argument("--flights", action="store_true", help=about)
    arguments = parser.parse_args()
    if arguments.repeats < 1:
        parser.error(f"`--repeats` must be at least 1, got {arguments.repeats}")
    # As the command does.
    gc.freeze()
    if arguments.flights:
        return flights_by_processor_time(arguments.results, arguments.repeats)
    load = os.getloadavg()[0]
    if load > 0.5:
        print(f"the machine is busy (load {load:.2f}): repeat when it is not", file=sys.stderr)
    names = ("ours", "Ray Tune") if arguments.tune_python else ("ours",)
    found: dict[str, dict[Case, list[float]]] = {
        name: {case: [] for case in CASES} for name in names
    }
    shares = []
    for _ in range(arguments.repeats):
        for case in CASES:
            found["ours"][case].append(milliseconds(case))
            if arguments.tune_python:
                found["Ray Tune"][case].append(tune_milliseconds(arguments.tune_python, case))
        shares.append(idle_share())
    machines = [simulated(*one) for one in MACHINES]
    flights = [simulated(*one) for one in FLIGHTS]
    tables = cost_table(found), idle_table(shares, machines), flight_table(flights)
    print("\n\n".join(tables))
    return write(arguments.results, names, arguments.repeats, load, tables)


def write(
    folder: Path, names: tuple[str, ...], repeats: int, load: float, tables: tuple[str, str, str]
) -> None:
    tune = " --tune-python ..." if "Ray Tune" in names else ""
    about = (
        f"{processor()}, {os.cpu_count()} cores, {SLOTS} slots where no other number stands; load "
        f"of the machine before the run {load:.2f}. {repeats} runs of each case, in turn."
    )
    idle = (
        "Until nobody waits for a slot any more; lengths are lognormal, with half their mean as "
        "standard deviation, and members twice as many as slots. On simulated slots pods only pass "
        "time on a clock of its own, which goes by what the orchestrator takes in truth and jumps "
        "to the next end of a pod while there is nothing to do. The last column is of as many "
        "members as slots, computed from the same lengths."
    )
    flight = (
        "On a simulated machine as above, with the real leaderboard on the real disk: a sleep of "
        "10 ms is added to each transaction that writes, before it commits. A decision takes from "
        "the end of one pod to the begin of the next in its slot: entering the result, choosing, "
        "the commit, and the order. The first pod of each slot is left out. Goals: 1,000 "
        "decisions/s, and p99 of 50 ms where 1,000 pods end in a second; in the second row more "
        "end than can be decided, and so the queue grows."
    )
    cost, idling, flying = tables
    write_page(
        folder,
        "tournament",
        "# Tournament: what it costs beside its pods",
        f"`python benchmarks/tournament.py --repeats {repeats}{tune}`",
        about,
        *("## Milliseconds a pod", cost, "## Idle slots", idle, idling),
        *("## Decisions with 5,000 pods in flight", flight, flying),
    )


if __name__ == "__main__":
    main()
