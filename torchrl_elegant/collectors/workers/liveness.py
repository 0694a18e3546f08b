"""Ends of processes: none outlives its parent, and each death is reported."""

from __future__ import annotations

import atexit
import multiprocessing
import os
import signal
import threading
import weakref
from collections.abc import Callable, Sequence
from multiprocessing import connection
from multiprocessing.process import BaseProcess
from typing import Protocol


class _Closable(Protocol):
    def shutdown(self, *, raise_on_error: bool) -> None: ...


# Process groups exist on POSIX systems only.
_HAS_GROUPS = os.name == "posix"

_open: weakref.WeakSet[_Closable] = weakref.WeakSet()


def close_at_exit(collector: _Closable) -> None:
    """Shuts `collector` down when the interpreter exits, if it still exists then."""
    _open.add(collector)


@atexit.register
def _close_all() -> None:
    # Worker processes are not daemons: multiprocessing would join them for ever at exit.
    for collector in list(_open):
        collector.shutdown(raise_on_error=False)


def leave_with_parent() -> None:
    """Ends this process and its children as soon as the parent has ended in any way."""
    parent = multiprocessing.parent_process()
    if parent is None:
        raise RuntimeError("`leave_with_parent` must run in a multiprocessing worker process")
    if _HAS_GROUPS:
        # In a group of its own it takes the processes of its environments with it.
        os.setpgid(0, 0)

    def watch() -> None:
        connection.wait([parent.sentinel])
        if _HAS_GROUPS:
            os.killpg(0, signal.SIGKILL)
        os._exit(1)

    threading.Thread(target=watch, name="parent-watch", daemon=True).start()


def leave_now() -> None:
    """Ends this process in good order, but skips the second in which torch is torn down."""
    atexit._run_exitfuncs()
    os._exit(0)


def end_group(group: int) -> None:
    """Kills the processes that a dead worker has left in its group."""
    if _HAS_GROUPS:
        try:
            os.killpg(group, signal.SIGKILL)
        except (ProcessLookupError, PermissionError):
            return


class WorkerDiedError(RuntimeError):
    """A worker process ended, or reported an exception, while it was needed."""


def raise_if_dead(processes: Sequence[BaseProcess], message: Callable[[int], str]) -> None:
    """Raises for the first process that has ended or left a `message`; names it and the cause."""
    for worker, process in enumerate(processes):
        report, code = message(worker), process.exitcode
        if code is not None or report:
            raise WorkerDiedError(
                f"worker {worker} (pid {process.pid}) {cause_of_death(code)}"
                + (f"; its traceback:\n{report}" if report else "")
            )


def cause_of_death(exitcode: int | None) -> str:
    """Cause of a process's end, in words.

    >>> cause_of_death(-9), cause_of_death(1)
    ('was killed by SIGKILL (exit code -9)', 'died with exit code 1')
    """
    if exitcode is None:
        return "raised an exception"
    if exitcode >= 0:
        return f"died with exit code {exitcode}"
    try:
        return f"was killed by {signal.Signals(-exitcode).name} (exit code {exitcode})"
    except ValueError:
        return f"was killed by signal {-exitcode}"
