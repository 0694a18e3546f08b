"""Losses of population training whose program is killed: ours, Ray Tune, AgileRL.

    python benchmarks/tournament_kills.py --rllib-python <python> --agilerl-python <python>

A program that trains eight members (``contenders/kills/``) gets SIGKILL at random moments, while it
works, and is started anew with its own way to go on. Each unit of work that is ever done is a line
in a diary, so that work done twice is seen. Without a path, a contender is left out. Writes
``benchmarks/results/tournament_kills.md``.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
import uuid
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from statistics import mean

from _interleave import HERE
from _report import markdown, processor, results_parser, write_page

# Seconds after which a life that does no work is over, and those that processes have to end in.
SILENT, GRACE = 120.0, 5.0
MARK = "TOURNAMENT_KILLS"


@dataclass
class Found:
    """Outcome of one contender, over all of its lives."""

    name: str
    needed: int  # units without a kill
    steps: list[int] = field(default_factory=list)  # of each member, at the end; [] if it had none
    units: int = 0
    kills: int = 0
    left: list[int] = field(default_factory=list)  # processes a while after each kill
    errors: list[str] = field(default_factory=list)


def units(folder: Path) -> int:
    diary = folder / "units"
    return diary.stat().st_size // len("unit\n") if diary.exists() else 0


def processes(mark: str) -> list[int]:
    """Processes of a life, by what stands in their environment."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            about = (folder / "environ").read_bytes()
            zombie = (folder / "stat").read_text().rpartition(")")[2].split()[0] == "Z"
        except OSError:
            continue
        if f"{MARK}={mark}".encode() in about and not zombie:
            found.append(int(folder.name))
    return found


class Life:
    """One start of a program in ``folder``."""

    def __init__(self, python: str, module: str, folder: Path) -> None:
        self.mark, self.folder = uuid.uuid4().hex, folder
        self.log = (folder / "log").open("wb+")
        one = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS"), "1")
        environment = os.environ | one | {MARK: self.mark, "PYTHONWARNINGS": "ignore"}
        # Workers of Ray import `contenders`, too.
        environment["PYTHONPATH"] = os.pathsep.join([str(HERE.parent), str(HERE)])
        self.process = subprocess.Popen(
            [python, str(HERE / "contenders" / "kills" / f"{module}.py"), str(folder)],
            stdout=self.log,
            stderr=self.log,
            env=environment,
            start_new_session=True,
        )

    def works(self) -> bool:
        """Wait until it does something; False if it ended before."""
        before, start = units(self.folder), time.monotonic()
        while units(self.folder) == before and time.monotonic() - start < SILENT:
            if self.process.poll() is not None:
                return False
            time.sleep(0.01)
        return units(self.folder) > before

    def ends_within(self, seconds: float | None) -> bool:
        try:
            self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            return False
        return True

    def kill(self) -> int:
        """Kill the program, and give the number of its processes that are alive a while later."""
        self.process.kill()
        self.process.wait()
        time.sleep(GRACE)
        return len(processes(self.mark))

    def error(self) -> str:
        self.log.seek(0)
        lines = self.log.read().decode(errors="replace").strip().splitlines()
        return lines[-1] if lines else "no word"

    def clear(self) -> None:
        for pid in processes(self.mark):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


def whole(python: str, module: str) -> int:
    """Units of a run that nobody kills."""
    with tempfile.TemporaryDirectory() as name:
        life = Life(python, module, Path(name))
        life.process.wait()
        life.clear()
        if life.process.returncode:
            sys.exit(f"{module} does not run by {python}: {life.error()}")
        return units(Path(name))


def measure(found: Found, python: str, module: str, kills: int, draw: random.Random) -> None:
    """Kill until it was killed so many times, then let it come to its end."""
    with tempfile.TemporaryDirectory() as name:
        folder, failures = Path(name), 0
        while not (folder / "ended.json").exists() and failures < 3:
            life = Life(python, module, folder)
            works = life.works()
            seconds = draw.uniform(0.1, 4.0) if found.kills < kills else None
            if works and not life.ends_within(seconds):
                found.kills += 1
                found.left.append(life.kill())
            elif not works and life.process.poll() is None:
                failures += 1
                found.errors.append(f"no work for {SILENT:.0f} s")
            elif life.process.returncode:
                failures += 1
                found.errors.append(life.error())
            life.clear()
            print(found.name, found.kills, "kills", units(folder), "units", flush=True)
        found.units += units(folder)
        if (folder / "ended.json").exists():
            found.steps = json.loads((folder / "ended.json").read_text())


def row(found: Found) -> list[str]:
    again = found.units - found.needed
    return [
        found.name,
        str(found.kills),
        "yes" if found.steps else "no",
        str(found.needed),
        str(found.units),
        f"{again / max(1, found.kills):.1f}",
        f"{min(found.steps)} to {max(found.steps)}" if found.steps else "-",
        f"{mean(found.left):.1f}" if found.left else "-",
        str(len(found.errors)),
    ]


HEAD = (
    *("", "kills", "came to its end", "units without kills", "units with kills"),
    *("units again, a kill", "steps of members", "processes left, a kill", "failed starts"),
)


def main() -> None:
    parser = results_parser(__doc__)
    parser.add_argument("--kills", type=int, default=10, help="of each program (default: 10)")
    parser.add_argument("--rllib-python", help="interpreter with requirements-rllib.txt")
    parser.add_argument("--agilerl-python", help="interpreter with requirements-agilerl.txt")
    arguments = parser.parse_args()
    if arguments.kills < 1:
        parser.error(f"`--kills` must be at least 1, got {arguments.kills}")
    contenders = [
        ("torchrl_elegant", "ours", sys.executable),
        ("Ray Tune PBT", "tune", arguments.rllib_python),
        ("AgileRL", "agile", arguments.agilerl_python),
    ]
    every = []
    for name, module, python in contenders:
        if python is not None:
            found = Found(name, whole(python, module))
            measure(found, python, module, arguments.kills, random.Random(0))
            every.append(found)
    table = markdown(HEAD, [row(found) for found in every])
    print(table)
    about = (
        f"`python benchmarks/tournament_kills.py --kills {arguments.kills} --rllib-python <python> "
        f"--agilerl-python <python>`\n\n{processor()}, "
        f"{os.cpu_count()} cores; torch {version('torch')}. Eight members of 30 steps of 10 units, "
        "two at a time (AgileRL: one after another, 20 units a step and others for evaluation). A "
        f"kill is SIGKILL to the program alone; processes are counted {GRACE:.0f} s later, and "
        "killed before the next start. A program that fails to start three times has not come to "
        "its end."
    )
    errors = [f"- {found.name}: {error}" for found in every for error in found.errors]
    parts = ["# Tournament: kills", about, table]
    if errors:
        parts += ["Errors of starts:", "\n".join(dict.fromkeys(errors))]
    write_page(arguments.results, "tournament_kills", *parts)


if __name__ == "__main__":
    main()
