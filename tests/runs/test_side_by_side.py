"""Processes side by side: their output, their failures, their end."""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

from faults.runs import environment, wait_until

from torchrl_elegant.runs.sweeps.side_by_side import run_side_by_side


def task(source: str) -> Callable[[], int]:
    """A task that runs a program, and ends with the ``code`` that it leaves."""

    def run() -> int:
        space = {"code": 0}
        exec(source, space)
        return space["code"]

    return run


def waiting(ready: Path) -> Callable[[], int]:
    """A task that writes its process id and then sleeps until it is told to end."""
    return task(
        "import os, pathlib, signal, sys, time\n"
        "signal.signal(signal.SIGTERM, lambda *ignored: sys.exit(143))\n"
        f"pathlib.Path({str(ready)!r}).write_text(str(os.getpid()))\n"
        "time.sleep(300)"
    )


def test_tasks_share_the_cores_and_neither_their_lines_nor_their_failures_mix(caplog):
    caplog.set_level(logging.INFO)
    rows = "import sys, time, torch\n"
    for number in range(3):
        rows += (
            f"sys.stderr.write('row '); sys.stderr.flush(); time.sleep(0.1); print('{number}')\n"
        )
        rows += "sys.stdout.flush()\n"
    rows += "sys.stderr.write('1 %\\r50 %\\r100 %\\ntorn end'); code = torch.get_num_threads()"
    killed = "import os, signal; os.kill(os.getpid(), signal.SIGKILL)"
    tasks = {"a": task(rows), "b": task(f"{rows}\nraise KeyError('x')"), "c": task(killed)}
    ending = run_side_by_side(tasks, jobs=2)
    assert ending.codes == {"a": max(1, (os.cpu_count() or 1) // 2), "b": 1, "c": 137}
    assert (ending.last_lines["a"], ending.last_lines["b"]) == ("torn end", "KeyError: 'x'")
    lines = [record.getMessage() for record in caplog.records]
    for name in "ab":
        own = [line for line in lines if line.startswith(name)]
        assert own[:4] == [*(f"{name} | row {number}" for number in range(3)), f"{name} | 100 %"]


def test_after_a_last_code_no_more_are_started_and_the_error_is_left_to_the_starter(caplog):
    caplog.set_level(logging.INFO)
    mistake = "from torchrl_elegant.config.text import UsageError\nraise UsageError('a\\nb')"
    ending = run_side_by_side({"a": task(mistake), "b": int}, jobs=1, last_codes=[2])
    assert (ending.codes, ending.last_lines) == ({"a": 2}, {"a": "error: a b"})
    assert not caplog.records


def test_a_signal_ends_all_and_starts_no_more(tmp_path):
    ready = [tmp_path / name for name in ("a", "b")]
    tasks = {path.name: waiting(path) for path in ready}

    def send() -> None:
        wait_until(lambda: all(path.exists() for path in ready))
        os.kill(os.getpid(), signal.SIGTERM)

    thread = threading.Thread(target=send)
    thread.start()
    ending = run_side_by_side({**tasks, "c": int}, jobs=2)
    thread.join()
    assert ending.stopped_by == "SIGTERM"
    assert ending.codes == {"a": 143, "b": 143}


def test_a_task_ends_with_its_starter(tmp_path):
    ready = tmp_path / "ready"
    program = (
        "import sys\n"
        f"sys.path.insert(0, {str(Path(__file__).parent)!r})\n"
        "from pathlib import Path\n"
        "from test_side_by_side import waiting\n"
        "from torchrl_elegant.runs.sweeps.side_by_side import run_side_by_side\n"
        f"run_side_by_side({{'a': waiting(Path({str(ready)!r}))}}, jobs=1)"
    )
    starter = subprocess.Popen([sys.executable, "-c", program], env=environment())
    wait_until(lambda: ready.exists() and bool(ready.read_text()), starter)
    starter.kill()
    starter.wait()
    wait_until(lambda: not Path(f"/proc/{ready.read_text()}").exists())
