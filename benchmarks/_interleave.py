"""Times contenders side by side: one process each, one running at a time, round after round.

A machine's speed drifts over minutes. Contenders timed one after another meet different machines;
contenders whose rounds alternate meet the same one, and the medians of their rounds compare.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import statistics
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from contenders.case import Case

HERE = Path(__file__).resolve().parent


@dataclass(frozen=True, kw_only=True)
class Contender:
    """A name for the tables, the module in ``contenders/``, and the interpreter that has it.

    A ``group`` above 1 is run only on the ``kinds`` of case where it changes what is run.
    """

    name: str
    module: str
    python: str = sys.executable
    imports: tuple[str, ...] = ()
    group: int = 1
    kinds: tuple[str, ...] = ("update", "loop")


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


def require(contenders: Sequence[Contender]) -> None:
    """End with the command that mends it where an interpreter lacks a contender's packages."""
    for contender in contenders:
        source = f"import {', '.join(contender.imports)}"
        finished = subprocess.run(
            [contender.python, "-c", source], capture_output=True, text=True, check=False
        )
        if finished.returncode:
            reason = (finished.stderr.strip().splitlines() or ["it does not start"])[-1]
            sys.exit(
                f"`--peers-python` must be an interpreter that has {contender.name}, got "
                f"{contender.python!r}: {reason}\nInstall it with:\n"
                f'  {contender.python} -m pip install -c constraints.txt -e ".[bench]"\n'
                f"or name contenders that are there with --only."
            )


class Worker:
    """A contender's process: started, warm, and waiting for the word to run a round."""

    def __init__(self, contender: Contender, case: Case) -> None:
        self.contender = contender
        self.process = subprocess.Popen(
            [
                contender.python,
                str(HERE / "contenders" / "worker.py"),
                contender.module,
                json.dumps(dataclasses.asdict(case) | {"group": contender.group}),
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=os.environ | thread_settings(case.threads),
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
        units = 64
        while (answer := self.run(units))["seconds"] < seconds / 3:
            units *= 2
        self.units = max(1, round(answer["units"] * seconds / answer["seconds"]))
        self.run(self.units)

    def rate(self) -> float:
        answer = self.run(self.units)
        return answer["units"] / answer["seconds"]

    def close(self) -> None:
        if self.process.stdin is not None:
            with contextlib.suppress(BrokenPipeError):
                self.process.stdin.close()
        try:
            self.process.wait(timeout=20)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


def thread_settings(threads: int) -> dict[str, str]:
    """What the numeric libraries read at import: the same number of threads for every contender.

    The worker also keeps to as many processors, which is what JAX sizes its pool by.
    """
    names = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NPROC")
    settings = {name: str(threads) for name in names}
    if threads == 1:
        settings["XLA_FLAGS"] = "--xla_cpu_multi_thread_eigen=false"
    return settings | {"JAX_PLATFORMS": "cpu", "CUDA_VISIBLE_DEVICES": ""}


@contextlib.contextmanager
def workers(contenders: Sequence[Contender], case: Case) -> Iterator[list[Worker]]:
    started: list[Worker] = []
    try:
        for contender in contenders:
            started.append(Worker(contender, case))
        yield started
    finally:
        for worker in started:
            worker.close()


def measure(
    contenders: Sequence[Contender], case: Case, *, rounds: int, seconds: float
) -> list[Result]:
    """Rates of all contenders on one case; warm-up rounds are run and thrown away."""
    chosen = [contender for contender in contenders if case.kind in contender.kinds]
    with workers(chosen, case) as running:
        for worker in running:
            worker.warm(seconds)
        results = [
            Result(case=case, contender=worker.contender.name, versions=worker.versions)
            for worker in running
        ]
        for number in range(rounds):
            # Rotated, so that nobody always runs after the same neighbour.
            for step in range(len(running)):
                index = (number + step) % len(running)
                results[index].rates.append(running[index].rate())
        return results
