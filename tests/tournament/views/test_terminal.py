"""The live table: in a terminal that is resized, interrupted, closed, and where there is none."""

from __future__ import annotations

import fcntl
import logging
import os
import pty
import re
import signal
import struct
import termios
import threading
import time

import pytest
from tournament_toys import play
from tqdm import tqdm

from torchrl_elegant.tournament.views import terminal
from torchrl_elegant.tournament.views.standings import Standings
from torchrl_elegant.tournament.views.terminal import TerminalLines, TerminalTable, lines
from torchrl_elegant.tournament.views.watcher import Pace


class Terminal:
    """A terminal that keeps what is written, and shows it as a screen would."""

    def __init__(self, rows, columns):
        self.master, slave = pty.openpty()
        self.slave = os.fdopen(slave, "w")
        self.resize(rows, columns)
        self.data, self.marks = b"", 0
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def resize(self, rows, columns):
        size = struct.pack("HHHH", rows, columns, 0, 0)
        fcntl.ioctl(self.slave, termios.TIOCSWINSZ, size)

    def _read(self):
        while True:
            try:
                part = os.read(self.master, 65_536)
            except OSError:
                return
            if not part:
                return
            self.data += part

    def settle(self):
        """Wait until all is read: the mark is written last."""
        self.marks += 1
        mark = f"\x1b[{self.marks}m"
        self.slave.write(mark)
        self.slave.flush()
        end = time.monotonic() + 30
        while not self.data.endswith(mark.encode()):
            assert time.monotonic() < end
            time.sleep(0.001)

    def screen(self):
        """Lines that stand there, of a terminal without end and without breaks."""
        self.settle()
        shown, row = [""], 0
        for text in re.split(r"(\r\n|\r|\x1b\[\d*[AJm])", self.data.decode()):
            if text == "\r\n":
                row += 1
                if row == len(shown):
                    shown.append("")
            elif text.endswith("A") and text.startswith("\x1b"):
                row -= int(text[2:-1])
                assert row >= 0
            elif text == "\x1b[J":
                del shown[row + 1 :]
                shown[row] = ""
            elif text != "\r" and not text.startswith("\x1b"):
                shown[row] += text
        return shown

    def close(self):
        self.slave.close()
        # Its end is an error for whoever reads; only then may others have the number of the file.
        self._thread.join()
        os.close(self.master)


@pytest.fixture
def watched():
    made = Terminal(24, 100)
    yield made
    made.close()


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    made = tmp_path_factory.mktemp("toys")
    play(made, population=40, budget=4_000)
    return made


@pytest.fixture
def standings(folder):
    made = Standings(folder)
    yield made
    made.close()


@pytest.fixture(autouse=True)
def always(monkeypatch):
    """Every look is one that is due."""
    monkeypatch.setattr(terminal, "Pace", lambda *_, **__: Pace(0.0, share=1e9))


def test_the_table_is_drawn_in_place_and_log_lines_stand_above(watched, standings):
    modes = termios.tcgetattr(watched.slave)
    table = TerminalTable(standings, watched.slave)
    table.look(2)
    table.look(3)
    tqdm.write("a line of the log", file=watched.slave)
    tqdm.write("another", file=watched.slave)
    table.look(4)
    shown = watched.screen()
    assert shown[:2] == ["a line of the log", "another"]
    assert sum("slots" in line for line in shown) == 1
    assert "slots 4" in shown[2]
    assert sum(line.startswith("member ") for line in shown) == 1
    table.close()
    # The table goes; its terminal is as it was, and the log stays.
    assert watched.screen() == ["a line of the log", "another", ""]
    assert termios.tcgetattr(watched.slave) == modes
    assert b"\x1b[?" not in watched.data


@pytest.mark.parametrize(("rows", "columns"), [(24, 100), (8, 40), (3, 12), (0, 0)])
def test_the_table_fits_its_terminal(watched, standings, rows, columns):
    watched.resize(rows, columns)
    table = TerminalTable(standings, watched.slave)
    table.look(2)
    shown = [line for line in watched.screen() if line]
    assert len(shown) < max(rows or 24, 6)
    assert max(map(len, shown)) < (columns or 80)
    if rows in (0, 24):
        assert shown[-1].startswith("... and ")
    table.close()


def test_lines_that_a_narrower_terminal_breaks_are_removed(watched, standings):
    table = TerminalTable(standings, watched.slave)
    table.look(2)
    drawn = [line for line in watched.screen() if line]
    watched.resize(24, 30)
    before = len(watched.data)
    table.look(2)
    watched.settle()
    up = re.search(rb"\x1b\[(\d+)A", watched.data[before:])
    assert int(up[1]) == sum(-(-len(line) // 30) for line in drawn) > len(drawn)
    table.close()


def test_ctrl_c_ends_the_table_with_the_tournament(watched, tmp_path):
    modes = termios.tcgetattr(watched.slave)
    calls = []

    def slots():
        calls.append(1)
        if len(calls) == 4:
            os.kill(os.getpid(), signal.SIGINT)
        return 1

    class Table:
        table = None

        def look(self, count):
            if self.table is None:
                self.standings = Standings(tmp_path)
                self.table = TerminalTable(self.standings, watched.slave)
            self.table.look(count)

    seen = Table()
    made = play(tmp_path, slots=slots, watchers=[seen])
    assert made.stopped_by == "SIGINT"
    assert any(line.startswith("member ") for line in watched.screen())
    seen.table.close()
    seen.standings.close()
    assert watched.screen() == [""]
    assert termios.tcgetattr(watched.slave) == modes


def test_what_an_error_says_cannot_steer_the_terminal(watched, standings):
    standings.look()
    row = standings.pods[1]
    standings.failed.append(row._replace(error="red \x1b[31m\x07 and\nmore", state="failed"))
    table = TerminalTable(standings, watched.slave)
    table.look(1)
    (told,) = [line for line in watched.screen() if line.startswith("failed: pod 1")]
    assert told.endswith("red [31m and more")
    table.close()


def test_a_terminal_that_is_closed_ends_the_table_and_nothing_else(watched, standings):
    table = TerminalTable(standings, watched.slave)

    def gone(*_):
        raise OSError(5, "Input/output error")

    table._screen._size = gone
    table.look(1)
    assert table._screen is None
    table.look(1)
    table.close()


def test_without_a_terminal_a_line_is_logged_now_and_then(standings, caplog):
    told = TerminalLines(standings)
    with caplog.at_level(logging.INFO):
        told.look(2)
        told.look(2)
    told.close()
    (message,) = caplog.messages
    assert message.startswith("frames 4,000 of 4,000 (100 %) | pods 40 done | slots 2 | best ")
    assert message.endswith("final evaluation")


def test_rows_tell_members_by_their_best_score(standings):
    standings.look()
    shown = lines(standings, 1, 75.0, 60)
    assert len(shown) == 2 + 1 + 40
    members = [line.split()[0] for line in shown[3:]]
    assert members == [str(row.member) for row in standings.ranked()]
    first = standings.ranked()[0]
    assert f"best {first.score:.2f}" in shown[1] or standings.is_over
    assert "a2c" in shown[3]
