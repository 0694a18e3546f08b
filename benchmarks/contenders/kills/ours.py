"""A tournament of this package."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent.parent))
from contenders.kills import task
from torchrl_elegant.algorithms import A2CConfig
from torchrl_elegant.tournament import TournamentConfig
from torchrl_elegant.tournament.executors import ProcessExecutor
from torchrl_elegant.tournament.generator import Generator
from torchrl_elegant.tournament.leaderboard import FILE, Leaderboard
from torchrl_elegant.tournament.orchestrator import Orchestrator
from torchrl_elegant.tournament.pod import Link, Order, Result
from torchrl_elegant.tournament.space import spaces_of
from torchrl_elegant.tournament.store import Store
from torchrl_elegant.tournament.updater import Updater

BUDGET = task.MEMBERS * task.STEPS


@dataclass(frozen=True)
class Work:
    store: Store
    folder: Path

    def __call__(self, order: Order, link: Link) -> Result:
        begun = {"skill": 0.0} if order.parent is None else json.loads(self.store.get(order.parent))
        about = {"pod": order.pod, "attempt": order.attempt, "kind": "done"}
        if order.operation == "final":
            return Result(**about, score=begun["skill"])
        skill = task.train(begun["skill"], order.options["lr"], self.folder)
        digest = self.store.put(json.dumps({"skill": skill, "pod": order.pod}).encode())
        return Result(**about, score=skill, amount=order.budget, checkpoint=digest, size=100)


def main(folder: Path) -> None:
    config = TournamentConfig(
        budget=BUDGET, quantum=1, population=task.MEMBERS, recheck=False, finalists=1
    )
    for name in ("checkpoints", "results"):
        (folder / name).mkdir(exist_ok=True)
    if not (folder / FILE).exists():
        meta = {"config": {"budget": BUDGET, "unit": "frames"}}
        Leaderboard.create(folder / FILE, meta, population=task.MEMBERS).close()
    store = Store(folder / "checkpoints")
    space = spaces_of([A2CConfig()], {"lr": "log:1e-5..1e-1"})
    with Leaderboard(folder / FILE) as board:
        Orchestrator(
            folder,
            board=board,
            store=store,
            config=config,
            generator=Generator(board, config, space, seed=0),
            updater=Updater(board, store, config),
            executor=ProcessExecutor(Work(store, folder), folder / "results"),
            slots=lambda: task.SLOTS,
        ).run()
        task.finish(folder, [pod.depth for pod in board.best_of_members()])


if __name__ == "__main__":
    main(Path(sys.argv[1]))
