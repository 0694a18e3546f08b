"""Tasks side by side, each in a process of its own, whose output does not mix."""

from __future__ import annotations

import logging
import os
import pickle
import selectors
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import IO

import cloudpickle
import torch

from torchrl_elegant.config.text import UsageError
from torchrl_elegant.runs.monitor import StopSignals

logger = logging.getLogger(__name__)

Task = Callable[[], int]

#: Exit code of a mistake in the words.
MISTAKE = 2
_ERROR = "error: "
# Seconds between two looks at the signals, and those that a second Ctrl-C leaves to the tasks.
_LOOK, _PATIENCE = 0.2, 10.0
# The path comes first, because the task may be of a module that only its starter can find.
_PROGRAM = (
    "import pickle, sys; sys.path[:] = pickle.load(sys.stdin.buffer); "
    "from torchrl_elegant.runs.sweeps.side_by_side import serve; serve()"
)


@dataclass(eq=False)
class _Process:
    name: str
    popen: subprocess.Popen[bytes]
    output: IO[bytes]
    torn: bytes = b""
    last: str = ""
    held: bool = False

    def read(self) -> bool:
        """Show what has come; False once nothing more will."""
        data = os.read(self.output.fileno(), 1 << 16)
        self.show(data)
        return bool(data)

    def show(self, data: bytes) -> None:
        *lines, self.torn = (self.torn + data).split(b"\n")
        for line in lines:
            # Of a bar that redraws itself, the newest state.
            text = line.decode(errors="replace").rstrip("\r").rpartition("\r")[2].rstrip()
            if text:
                self.release()
                # The starter may say it itself, once for all.
                self.last, self.held = text, text.startswith(_ERROR)
                if not self.held:
                    logger.info("%s | %s", self.name, text)

    def release(self) -> None:
        """Log a line that was held back."""
        if self.held:
            logger.info("%s | %s", self.name, self.last)
        self.held = False


@dataclass(kw_only=True)
class Ending:
    """Exit codes of the tasks that ran, the last line of each, and the signal that ended all."""

    codes: dict[str, int] = field(default_factory=dict)
    last_lines: dict[str, str] = field(default_factory=dict)
    stopped_by: str | None = None


def run_side_by_side(
    tasks: Mapping[str, Task], *, jobs: int, last_codes: Collection[int] = ()
) -> Ending:
    """Run each task in a process of its own, ``jobs`` of them at a time.

    Every process has its share of the cores as torch threads, and every line that it writes is
    logged here behind the task's name. A task that fails stops no other; after one that ends with a
    code in ``last_codes`` no more are started. A first SIGINT or SIGTERM is handed on to all as
    SIGTERM; a second SIGINT interrupts. A process whose starter has died gets a SIGTERM as well.

    >>> from functools import partial
    >>> run_side_by_side({"a": int, "b": partial(int, "3")}, jobs=1).codes
    {'a': 0, 'b': 3}
    """
    ending, waiting, running = Ending(), dict(tasks), dict[str, _Process]()
    threads = max(1, (os.cpu_count() or 1) // jobs)
    with StopSignals() as signals, selectors.DefaultSelector() as selector:
        try:
            while running or (waiting and ending.stopped_by is None):
                while waiting and len(running) < jobs and ending.stopped_by is None:
                    name = next(iter(waiting))
                    process = running[name] = _start(name, waiting.pop(name), threads)
                    selector.register(process.output, selectors.EVENT_READ, process)
                ready = [key.data for key, _ in selector.select(_LOOK)]
                for process in list(running.values()):
                    # Workers that outlive it may hold its output open: its own end counts too.
                    over = process not in ready and process.popen.poll() is not None
                    if over or (process in ready and not process.read()):
                        selector.unregister(process.output)
                        code = _finish(running.pop(process.name), ending)
                        if code in last_codes:
                            waiting.clear()
                        else:
                            process.release()
                if signals.reason is not None and ending.stopped_by is None:
                    ending.stopped_by = signals.reason
                    _signal_all(running, signal.SIGTERM)
        except KeyboardInterrupt:
            _signal_all(running, signal.SIGINT)
            raise
        finally:
            _end(running)
    return ending


def _start(name: str, task: Task, threads: int) -> _Process:
    popen = subprocess.Popen(
        [sys.executable, "-c", _PROGRAM],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        # The terminal's Ctrl-C reaches this process alone, which hands it on once.
        start_new_session=True,
    )
    assert popen.stdin is not None
    assert popen.stdout is not None
    try:
        order = (task, threads, logger.getEffectiveLevel())
        popen.stdin.write(pickle.dumps(sys.path) + cloudpickle.dumps(order))
        popen.stdin.flush()
    except BrokenPipeError:
        logger.warning("%s ended before it began", name)
    return _Process(name, popen, popen.stdout)


def _finish(process: _Process, ending: Ending) -> int:
    process.show(b"\n")
    code = process.popen.wait()
    code = ending.codes[process.name] = 128 - code if code < 0 else code
    ending.last_lines[process.name] = process.last
    _close(process)
    return code


def _signal_all(running: Mapping[str, _Process], number: signal.Signals) -> None:
    for process in running.values():
        process.popen.send_signal(number)


def _end(running: Mapping[str, _Process]) -> None:
    """End all processes after an interruption: nobody is left behind."""
    for process in running.values():
        assert process.popen.stdin is not None
        process.popen.stdin.close()
        try:
            process.popen.wait(_PATIENCE)
        except subprocess.TimeoutExpired:
            process.popen.kill()
            process.popen.wait()
        _close(process)


def _close(process: _Process) -> None:
    for stream in (process.popen.stdin, process.popen.stdout):
        if stream is not None:
            stream.close()


def serve() -> None:
    """Run the one task that comes over stdin, and end with its exit code."""
    task, threads, level = pickle.load(sys.stdin.buffer)
    threading.Thread(target=_end_with_starter, daemon=True).start()
    torch.set_num_threads(threads)
    logging.basicConfig(level=level, format="%(message)s")
    try:
        sys.exit(task())
    except UsageError as error:
        sys.stderr.write(f"{_ERROR}{' '.join(str(error).split())}\n")
        sys.exit(MISTAKE)


def _end_with_starter() -> None:
    # The descriptor itself: a stream would be locked when the interpreter ends.
    if not os.read(0, 1):
        os.kill(os.getpid(), signal.SIGTERM)
