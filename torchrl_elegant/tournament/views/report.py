"""Writer of `report.html`, in a thread beside the tournament and on request."""

from __future__ import annotations

import logging
import sqlite3
import threading
from pathlib import Path

from torchrl_elegant.runs.files import write_file
from torchrl_elegant.tournament.views.page import RELOAD, report_page
from torchrl_elegant.tournament.views.standings import Standings
from torchrl_elegant.tournament.views.watcher import Pace

logger = logging.getLogger(__name__)

REPORT = "report.html"


class ReportWriter:
    """Writes the page anew while a tournament runs, and once more at its end.

    The page of thousands of pods takes longer than a decision may; so it is made in a thread, which
    reads by a connection of its own.

    Args:
        folder: that of the tournament.
        seconds: from one page to the next, at least.
    """

    def __init__(self, folder: Path, *, seconds: float = RELOAD) -> None:
        self._folder = folder
        self._standings = Standings(folder)
        self._pace = Pace(seconds, share=0.02)
        self._thread: threading.Thread | None = None

    def look(self, slots: int) -> None:
        """Have the page made, if the last one is old and ready."""
        busy = self._thread is not None and self._thread.is_alive()
        if not busy and self._pace.is_due():
            self._thread = threading.Thread(target=self._write, name="report", daemon=True)
            self._thread.start()

    def close(self) -> None:
        """Write the page of the end."""
        if self._thread is not None:
            self._thread.join()
        self._write(is_running=False)
        self._standings.close()

    def _write(self, *, is_running: bool = True) -> None:
        with self._pace.look():
            try:
                self._standings.look()
                page = report_page(self._standings, is_running=is_running)
                write_file(self._folder / REPORT, page.encode())
            except (OSError, sqlite3.Error) as error:
                # A page can be made again, a tournament cannot.
                logger.warning("%s could not be written: %s", REPORT, error)


def write_report(folder: Path) -> Path:
    """Write the page of a tournament anew; returns its path."""
    standings = Standings(folder)
    try:
        standings.look()
        path = folder / REPORT
        write_file(path, report_page(standings, is_running=False).encode())
    finally:
        standings.close()
    return path
