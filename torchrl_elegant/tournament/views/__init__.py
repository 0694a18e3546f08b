"""Views of a tournament: live table, page, scalars, picture of a lineage. They decide nothing."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from torchrl_elegant.runs.reporter import make_logger
from torchrl_elegant.tournament.leaderboard import Leaderboard
from torchrl_elegant.tournament.views.lineage import lineage_picture
from torchrl_elegant.tournament.views.report import ReportWriter, write_report
from torchrl_elegant.tournament.views.scalars import ScalarWriter
from torchrl_elegant.tournament.views.standings import Standings
from torchrl_elegant.tournament.views.terminal import TerminalLines, TerminalTable
from torchrl_elegant.tournament.views.watcher import Watcher
from torchrl_elegant.trainers.run_config import RunConfig

__all__ = ["Watcher", "lineage_picture", "watching", "write_report"]


@contextmanager
def watching(folder: Path, board: Leaderboard, run: RunConfig) -> Iterator[list[Watcher]]:
    """Whoever looks on while the tournament in a folder runs, by ``progress`` and ``logger``."""
    with ExitStack() as ends:
        standings = Standings(folder)
        ends.callback(standings.close)
        watchers: list[Watcher] = [ReportWriter(folder)]
        target = make_logger(run.logger_name(), folder)
        if target is not None:
            watchers.append(ScalarWriter(standings, board, target))
        if run.progress:
            seen = sys.stderr.isatty()
            watchers.append(
                TerminalTable(standings, sys.stderr) if seen else TerminalLines(standings)
            )
        for watcher in watchers:
            ends.callback(watcher.close)
        yield watchers
