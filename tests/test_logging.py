"""Messages: one logger of the package's own, plain lines, nothing of TorchRL's in between."""

from __future__ import annotations

import logging
import re
import sys
import threading
import warnings
from pathlib import Path

import pytest
from faults.runs import SMALL, run
from tqdm import tqdm

from torchrl_elegant.algorithms import ALGORITHMS
from torchrl_elegant.cli.command_line import console, run_main
from torchrl_elegant.runs.trial import Trial

PACKAGE = Path(__file__).parents[1] / "torchrl_elegant"


@pytest.mark.parametrize("path", sorted(PACKAGE.rglob("*.py")), ids=lambda path: path.name)
def test_no_file_logs_under_torchrls_name(path):
    text = path.read_text()
    # One leaves messages of TorchRL out, and writes none.
    if path.name != "prioritized.py":
        assert not re.search(r"from torchrl(\._utils)? import .*logger", text)
    assert "torchrl_logger." not in text.replace("torchrl_logger.addFilter", "").replace(
        "torchrl_logger.removeFilter", ""
    )


@pytest.fixture
def own():
    return logging.getLogger("torchrl_elegant.runs.somewhere")


def test_a_command_shows_plain_lines_on_stderr_and_leaves_no_trace(own, capsys):
    loggers = [logging.getLogger(name) for name in ("torchrl_elegant", "torchrl")]
    before = [(log.handlers, log.propagate, log.level) for log in loggers]

    def main(words):
        own.info("frames 10 | return 1.0")
        own.debug("nobody wants to know")
        own.warning("the disk is full")
        logging.getLogger("torchrl").warning("from below")
        return 0

    assert run_main(main, []) == 0
    streams = capsys.readouterr()
    assert streams.out == ""
    assert streams.err == (
        "frames 10 | return 1.0\nwarning: the disk is full\nwarning: from below\n"
    )
    assert [(log.handlers, log.propagate, log.level) for log in loggers] == before


def test_lines_stand_above_a_bar(own, capsys):
    with console(), tqdm(total=10, file=sys.stderr) as bar:
        bar.update(5)
        own.info("a row")
    lines = re.split(r"[\r\n]+", capsys.readouterr().err)
    assert "a row" in [line.strip() for line in lines]


def test_a_thread_that_cannot_write_is_told_of_in_a_line(capsys):
    def work():
        raise OSError(28, "No space left on device")

    hook = threading.excepthook
    with console():
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
    assert threading.excepthook is hook
    err = capsys.readouterr().err
    assert err == "warning: a writing thread has ended: [Errno 28] No space left on device\n"


@pytest.mark.parametrize("mode", [(), ("collector=async", "num_workers=1", "frames_per_batch=4")])
def test_a_log_file_holds_one_line_a_row_and_nothing_else(tmp_path, mode):
    words = [word for word in SMALL if word != "progress=false"]
    done = run([*words, "total_frames=96", "eval_interval=48", f"folder={tmp_path / 'run'}", *mode])
    assert (done.returncode, done.stdout) == (0, "")
    rows = done.stderr.splitlines()
    assert [row.split()[0] for row in rows] == ["frames"] * 2 + ["last", "time:", "run"]
    assert not {"\r", "\x1b"} & set(done.stderr)


@pytest.mark.parametrize("name", sorted(n for n, kind in ALGORITHMS.items() if not kind.teams))
def test_no_algorithm_begins_with_warnings(name):
    """Those of TorchRL's losses would be the first lines of a log file."""
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always", UserWarning)
        with Trial(ALGORITHMS[name](num_cells=(8,)), total_frames=30_000):
            pass
    assert [str(warning.message)[:80] for warning in found] == []
