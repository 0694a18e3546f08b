"""Cost of a tournament beside its pods: milliseconds a pod, with pods that only pretend to train.

    python benchmarks/tournament.py --repeats 5

Empty pods show the whole cost; pods of 20 ms in a population of 8 on 2 slots show how much of it is
left beside work, where 10 ms would be ideal. Each pod is decided, stored and flushed to the disk as
any other, and publishes a checkpoint of a kilobyte. The seconds until the first pod has finished,
in which worker processes import what they need, are left out. Writes
`benchmarks/results/tournament.md`; `--results` has it write elsewhere.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from _report import markdown, processor, results_parser, write_page

from torchrl_elegant.algorithms import A2CConfig
from torchrl_elegant.tournament import TournamentConfig
from torchrl_elegant.tournament.executors import Event, ProcessExecutor
from torchrl_elegant.tournament.generator import Generator
from torchrl_elegant.tournament.leaderboard import FILE, Leaderboard
from torchrl_elegant.tournament.orchestrator import Orchestrator
from torchrl_elegant.tournament.pod import Link, Order, Result
from torchrl_elegant.tournament.space import spaces_of
from torchrl_elegant.tournament.store import Store
from torchrl_elegant.tournament.updater import Updater

SLOTS, BYTES = 2, 1_000


@dataclass(frozen=True, kw_only=True)
class Case:
    """Pods of one length; ``goal`` and ``ideal`` are milliseconds a pod."""

    title: str
    pods: int
    population: int
    seconds: float
    goal: float
    ideal: float


CASES = (
    Case(title="empty pods", pods=1_000, population=1_000, seconds=0.0, goal=5, ideal=0),
    Case(title="pods of 20 ms", pods=400, population=8, seconds=0.02, goal=15, ideal=10),
)


@dataclass(frozen=True)
class Pretended:
    """Work of a pod that sleeps and publishes a checkpoint."""

    store: Store
    seconds: float

    def __call__(self, order: Order, link: Link) -> Result:
        time.sleep(self.seconds)
        begun = None if order.parent is None else self.store.get(order.parent)
        data = f"{order.pod} {order.attempt} ".encode().ljust(BYTES, b" " if begun else b"-")
        return Result(
            pod=order.pod,
            attempt=order.attempt,
            kind="done",
            score=order.seed / 2**31,
            amount=order.budget,
            checkpoint=self.store.put(data),
            size=BYTES,
        )


class Timed(Orchestrator):
    """Notes the moments at which the first and the last pod have finished."""

    def __init__(self, *arguments: object, **more: object) -> None:
        super().__init__(*arguments, **more)
        self.moments: list[float] = []

    def _hear(self, event: Event) -> None:
        if event.result is not None:
            self.moments.append(time.perf_counter())
        super()._hear(event)


def milliseconds(case: Case, folder: Path) -> float:
    """Milliseconds a pod, from the first that has finished to the last."""
    for name in ("checkpoints", "results"):
        (folder / name).mkdir()
    config = TournamentConfig(
        budget=case.pods, quantum=1, population=case.population, recheck=False, finalists=1
    )
    store, space = Store(folder / "checkpoints"), {"lr": "log:1e-5..1e-2"}
    meta = {"config": {"budget": case.pods, "unit": "frames"}}
    with Leaderboard.create(folder / FILE, meta, population=case.population) as board:
        made = Timed(
            folder,
            board=board,
            store=store,
            config=config,
            generator=Generator(board, config, spaces_of([A2CConfig()], space), seed=0),
            updater=Updater(board, store, config),
            executor=ProcessExecutor(Pretended(store, case.seconds), folder / "results"),
            slots=lambda: SLOTS,
        )
        made.run()
    first, *_, last = made.moments[: case.pods]
    return 1_000 * (last - first) / (case.pods - 1)


def main() -> None:
    parser = results_parser(__doc__)
    parser.add_argument("--repeats", type=int, default=5, help="runs of each case (default: 5)")
    arguments = parser.parse_args()
    if arguments.repeats < 1:
        parser.error(f"`--repeats` must be at least 1, got {arguments.repeats}")
    load = os.getloadavg()[0]
    if load > 0.5:
        print(f"the machine is busy (load {load:.2f}): repeat when it is not", file=sys.stderr)
    found: dict[Case, list[float]] = {case: [] for case in CASES}
    for _ in range(arguments.repeats):
        for case in CASES:
            with tempfile.TemporaryDirectory() as folder:
                found[case].append(milliseconds(case, Path(folder)))
    head = ["", "pods", "population", "ms a pod, median", "lowest to highest", "at most", "ideal"]
    rows = [
        [
            *(case.title, str(case.pods), str(case.population), f"{median(times):.1f}"),
            *(f"{min(times):.1f} to {max(times):.1f}", f"{case.goal:g}", f"{case.ideal:g}"),
        ]
        for case, times in found.items()
    ]
    table = markdown(head, rows)
    print(table)
    command = f"`python benchmarks/tournament.py --repeats {arguments.repeats}`"
    about = (
        f"{processor()}, {os.cpu_count()} cores, {SLOTS} slots; load of the machine before the run "
        f"{load:.2f}."
    )
    title = "# Tournament: milliseconds a pod"
    write_page(arguments.results, "tournament", title, command, about, table)


if __name__ == "__main__":
    main()
