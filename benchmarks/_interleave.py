"""Times contenders side by side: one process each, one running at a time, round after round.

A machine's speed drifts over minutes. Contenders timed one after another meet different machines;
contenders whose rounds alternate meet the same one, and the medians of their rounds compare.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from contenders.case import Case

HERE = Path(__file__).resolve().parent


def calls_per_second(
    run: Callable[[], Any], seconds: float, clock: Callable[[], float] = time.perf_counter
) -> float:
    """Rate of calls over so many seconds of ``clock``."""
    count, start = 0, clock()
    while (taken := clock() - start) < seconds:
        run()
        count += 1
    return count / taken


@dataclass(frozen=True, kw_only=True)
class Contender:
    """A name for the tables, the module in ``contenders/``, and the interpreter that has it.

    It runs the cases of its ``kinds`` (all, where None is given), with its ``options`` in place of
    what the case says.
    """

    name: str
    module: str
    python: str = "here"
    imports: tuple[str, ...] = ()
    kinds: tuple[str, ...] | None = None
    options: Mapping[str, Any] = field(default_factory=dict)

    def takes(self, case: Case) -> bool:
        return self.kinds is None or case.kind in self.kinds


@dataclass(kw_only=True)
class Result:
    """The rates of one contender on one case, a number per round."""

    case: Case
    contender: str
    versions: dict[str, str]
    rates: list[float] = field(default_factory=list)

    @property
    def median(self) -> float:
        return statistics.median(self.rates)


@dataclass(frozen=True, kw_only=True)
class Interpreter:
    """The program that runs a contender, and the command that installs what it lacks."""

    path: str = sys.executable
    install: str = '-c constraints.txt -e ".[bench]"'
    option: str = "--peers-python"

    def require(self, contender: Contender) -> None:
        """End with the command that mends it where packages are missing."""
        source = f"import {', '.join(contender.imports)}"
        finished = subprocess.run(
            [self.path, "-c", source], capture_output=True, text=True, check=False
        )
        if finished.returncode:
            reason = (finished.stderr.strip().splitlines() or ["it does not start"])[-1]
            sys.exit(
                f"`{self.option}` must be an interpreter that has {contender.name}, got "
                f"{self.path!r}: {reason}\nInstall it with:\n"
                f"  {self.path} -m pip install {self.install}\n"
                f"or name contenders that are there with --only."
            )


class Worker:
    """A contender's process: started, warm, and waiting for the word to run a round."""

    def __init__(self, contender: Contender, case: Case, python: str) -> None:
        self.contender = contender
        self.case = replace(case, **contender.options)
        script = str(HERE / "contenders" / "worker.py")
        self.process = subprocess.Popen(
            [python, script, contender.module, self.case.encode()],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=os.environ | thread_settings(self.case.threads),
            # A session of its own, which ends with it: some contenders have processes of theirs.
            start_new_session=True,
        )
        self.versions: dict[str, str] = self._answer()["versions"]
        self.units = 0

    def _answer(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            raise RuntimeError(
                f"the worker of {self.contender.name} ended with status {self.process.wait()}; "
                "its own lines above say why"
            )
        return json.loads(line)

    def run(self, units: int) -> dict[str, Any]:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps({"units": units}) + "\n")
        self.process.stdin.flush()
        return self._answer()

    def warm(self, seconds: float) -> None:
        """Compile, fill caches, and find the number of units that take ``seconds``."""
        self.run(1)
        answer = self.run(1)
        while answer["seconds"] < seconds / 3:
            answer = self.run(2 * answer["units"])
        self.units = max(self.case.least, round(answer["units"] * seconds / answer["seconds"]))
        self.run(self.units)

    def rate(self) -> float:
        answer = self.run(self.units)
        return answer["units"] / answer["seconds"]

    def close(self) -> None:
        if self.process.stdin is not None:
            with contextlib.suppress(BrokenPipeError):
                self.process.stdin.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(timeout=20)
        end_session(self.process.pid)
        self.process.wait()


def end_session(leader: int) -> None:
    """Kill what is left of a session that was started here, in whatever groups it has."""
    for entry in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if os.getsid(int(entry.name)) == leader:
                os.kill(int(entry.name), signal.SIGKILL)
    # Where there is no /proc, the group of the first process alone.
    with contextlib.suppress(OSError):
        os.killpg(leader, signal.SIGKILL)


def thread_settings(threads: int) -> dict[str, str]:
    """What the numeric libraries read at import: the same number of threads for every contender.

    The worker also keeps to the case's processors, which is what JAX sizes its pool by.
    """
    names = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NPROC")
    settings = {name: str(threads) for name in names}
    if threads == 1:
        settings["XLA_FLAGS"] = "--xla_cpu_multi_thread_eigen=false"
    return settings | {"JAX_PLATFORMS": "cpu", "CUDA_VISIBLE_DEVICES": ""}


@contextlib.contextmanager
def workers(
    contenders: Sequence[Contender], case: Case, interpreters: Mapping[str, Interpreter]
) -> Iterator[list[Worker]]:
    started: list[Worker] = []
    try:
        for contender in contenders:
            started.append(Worker(contender, case, interpreters[contender.python].path))
        yield started
    finally:
        for worker in started:
            worker.close()


def measure(
    contenders: Sequence[Contender],
    case: Case,
    interpreters: Mapping[str, Interpreter],
    *,
    rounds: int,
    seconds: float,
) -> list[Result]:
    """Rates of all contenders on one case; warm-up rounds are run and thrown away."""
    chosen = [contender for contender in contenders if contender.takes(case)]
    with workers(chosen, case, interpreters) as running:
        for worker in running:
            worker.warm(seconds)
        results = [
            Result(case=case, contender=worker.contender.name, versions=worker.versions)
            for worker in running
        ]
        for number in range(rounds):
            # Rotated, so that nobody always runs after the same neighbor.
            for step in range(len(running)):
                index = (number + step) % len(running)
                results[index].rates.append(running[index].rate())
        return results
