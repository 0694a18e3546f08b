"""Wrong command lines, made from the options themselves.

``python tests/cli/wrong_lines.py --all`` tries every line and trains those that are accepted, which
takes most of an hour; ``test_wrong_lines.py`` reads every line and trains a few of them.
"""

from __future__ import annotations

import contextlib
import io
import os
import resource
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from torchrl_elegant.algorithms import ALGORITHMS
from torchrl_elegant.cli.commands import (
    CompareOptions,
    EvaluateOptions,
    ExportOptions,
    compare_command,
    evaluate_command,
    export_command,
)
from torchrl_elegant.cli.training import TrainOptions, parse_training, train_command
from torchrl_elegant.config.changes import known_words
from torchrl_elegant.config.machine import own_memory
from torchrl_elegant.runs import Trial
from torchrl_elegant.runs.sweeps.folder import SweepFolder
from torchrl_elegant.runs.sweeps.sweep import note_end
from torchrl_elegant.trainers.run_config import RunConfig

VALUES = {
    "wrong type": ("abc", "true", "none", "1.5", "1,2", "(", "0.1..0", "a=b"),
    "out of range": ("-1", "0", "2", "nan", "inf", "-inf", "1..-1:exponential"),
    "missing": ("",),
    "huge": ("1e15", "9" * 40, "1e400", "x" * 300),
    "unicode": ("\uff11\uff12", "\u8a9e", "\u00bd", "1\u00a0", "\u202e1"),
}
# Words that keep a run short; an option that is tried takes the place of its own.
RUN = {
    "total_frames": "200",
    "eval_episodes": "1",
    "eval_interval": "200",
    "checkpoint_interval": "200",
    "num_cells": "8",
    "batch_size": "8",
    "logger": "none",
    "progress": "false",
    "device": "cpu",
}
SAC = RUN | {"warmup": "20"}
# Options to try on a new sweep, and on one that goes on: an accepted line costs processes.
BEGINNING = ("seeds", "jobs", "seed", "env")
GOING_ON = ("seed", "folder", "total_frames", "gamma", "num_cells", "env")
FOREVER = "total_frames=1e15"
FRAMES, ROOM = 200, 6 << 30
PROGRAM = "script.py"


@dataclass(frozen=True, kw_only=True)
class Line:
    """Words of a command, what is wrong with them, and the option that is tried."""

    command: str
    kind: str
    option: str
    words: tuple[str, ...]

    def __str__(self) -> str:
        return " ".join((self.command, *self.words))


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """End of a command: its exit code, what it wrote to stderr, and its processor time."""

    line: Line
    code: int
    told: str
    seconds: float

    def fault(self) -> str | None:
        """Breaches of the promise: one line and exit code 2, or a run."""
        told = self.told.strip()
        shown = f"{self.line}\n    code {self.code}, {self.seconds:.1f} s: {told[-600:]}"
        if "Traceback" in told or self.code not in (0, 1, 2):
            return f"TRACEBACK {shown}"
        lines = [one for one in told.splitlines() if one.startswith("error: ")]
        if self.code and (len(lines) != 1 or (self.code == 2 and lines != told.splitlines())):
            return f"NOT ONE LINE {shown}"
        if self.code == 2 and self.seconds > 5:
            return f"SLOW {shown}"
        return None


def lines(run: Path, sweep: Path) -> Iterator[Line]:
    """Every option of every command with every wrong value, over a finished run and a sweep."""
    for algorithm, config in ALGORITHMS.items():
        on_policy = config.family == "on_policy"
        base = RUN | ({"frames_per_batch": "64"} if on_policy else {"warmup": "20"})
        names = [*known_words(config)]
        if algorithm in ("sac", "ppo"):
            names += [*known_words(RunConfig), *known_words(TrainOptions), "algorithm"]
        for name in names:
            for kind, word in _words(name):
                rest = [f"{key}={value}" for key, value in base.items() if key != name]
                chosen = () if name == "algorithm" else (f"algorithm={algorithm}",)
                yield Line(command="train", kind=kind, option=name, words=(*chosen, word, *rest))
    going_on = {name for name in known_words(TrainOptions) if name != "resume"}.union(GOING_ON)
    for command, base, names in (
        ("train", SAC | {"seeds": "2"}, BEGINNING),
        ("train", {"resume": str(sweep)}, sorted(going_on)),
        ("evaluate", {"run": str(run)}, known_words(EvaluateOptions)),
        ("export", {"run": str(run)}, known_words(ExportOptions)),
    ):
        for name in names:
            for kind, word in _words(name):
                rest = [f"{key}={value}" for key, value in base.items() if key != name]
                yield Line(command=command, kind=kind, option=name, words=(word, *rest))
    for name in known_words(CompareOptions):
        for kind, word in _words(name):
            yield Line(command="compare", kind=kind, option=name, words=(str(run), word))
    for kind, values in VALUES.items():
        for value in values:
            yield Line(command="compare", kind=kind, option="runs", words=(value, str(run)))


def _words(name: str) -> Iterator[tuple[str, str]]:
    for kind, values in VALUES.items():
        for value in values:
            yield kind, f"{name}={value}"
    yield "missing", name
    yield "missing", f"--{name}"
    yield "wrong type", f"{name}.below=1"


def read(line: Line) -> Outcome:
    """Read the words alone; exit code 0 if they are accepted."""
    if line.command != "train":
        return call(line, lambda words: COMMANDS[line.command](words, program=PROGRAM))

    def main(words: tuple[str, ...]) -> int:
        parse_training(words, default="sac")
        return 0

    from torchrl_elegant.cli.command_line import run_main

    return call(line, lambda words: run_main(main, words))


def run(line: Line) -> Outcome:
    """Do what the words say; a run is left after some frames if it asks for very many."""
    if FOREVER in line.words:
        return call(line, _train_a_little)
    return call(line, lambda words: COMMANDS[line.command](words, program=PROGRAM))


def _train_a_little(words: tuple[str, ...]) -> int:
    from torchrl_elegant.cli.command_line import run_main

    def main(words: tuple[str, ...]) -> int:
        options = parse_training(words, default="sac")
        with Trial(options.config, run=options.run) as trial:
            trial.train(frames=FRAMES)
        return 0

    return run_main(main, words)


COMMANDS: dict[str, Callable[..., int]] = {
    "train": lambda words, program: train_command(words, program=program, default="sac"),
    "evaluate": evaluate_command,
    "export": export_command,
    "compare": compare_command,
}


def call(line: Line, command: Callable[[tuple[str, ...]], int]) -> Outcome:
    """Exit code and error lines of a command, called in this process."""
    told = io.StringIO()
    start = time.process_time()
    with contextlib.redirect_stderr(told), contextlib.redirect_stdout(io.StringIO()):
        try:
            code = command(line.words)
        except BaseException:
            code = -1
            told.write(traceback.format_exc())
    seconds = time.process_time() - start
    return Outcome(line=line, code=code, told=told.getvalue(), seconds=seconds)


@contextlib.contextmanager
def guarded() -> Iterator[None]:
    """Some memory more than there is in use, and no more; in a folder that goes afterwards."""
    before, limits = Path.cwd(), resource.getrlimit(resource.RLIMIT_AS)
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    most = max(pages * os.sysconf("SC_PAGE_SIZE"), own_memory()) + ROOM
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        resource.setrlimit(resource.RLIMIT_AS, (most, limits[1]))
        try:
            yield
        finally:
            resource.setrlimit(resource.RLIMIT_AS, limits)
            os.chdir(before)


def trained(place: Path) -> tuple[Path, Path]:
    """A finished run, and a finished sweep of two seeds."""
    words = [f"{key}={value}" for key, value in SAC.items()]
    options = parse_training(words, default="sac")
    sweep = SweepFolder.create(place / "sweep", run=options.run, config=options.config, seeds=2)
    train = partial(
        train_command, program=PROGRAM, default="sac", end=partial(note_end, sweep.total_frames)
    )
    assert train([*words, f"folder={place / 'run'}"]) == 0
    for seed in sweep.seeds:
        assert train([*words, f"seed={seed}", f"folder={sweep.of(seed)}"]) == 0
    return place / "run", sweep.path


def _too_long(number: int, frame: object) -> None:
    raise TimeoutError("the line neither ended nor was refused within five minutes")


def main() -> int:
    """Try every line, and print those that do not keep the promise."""
    signal.signal(signal.SIGALRM, _too_long)
    part, parts = (int(word) for word in (sys.argv[2:] or ("0/1",))[0].split("/"))
    faults = refused = ran = 0
    with guarded():
        every = list(lines(*trained(Path.cwd() / "trained")))
        for number, line in enumerate(every):
            if number % parts != part:
                continue
            outcome = read(line)
            refused += outcome.code == 2
            if outcome.code == 0 and line.command == "train":
                signal.alarm(300)
                outcome = run(line)
                signal.alarm(0)
                refused, ran = refused + (outcome.code == 2), ran + (outcome.code != 2)
                if outcome.seconds > 20:
                    sys.stdout.write(f"took {outcome.seconds:.0f} s: {line}\n")
            if fault := outcome.fault():
                faults += 1
                sys.stdout.write(f"{fault}\n")
                sys.stdout.flush()
            if number % 500 == 0:
                sys.stdout.write(f"{number} of {len(every)}: {refused} refused, {ran} ran\n")
                sys.stdout.flush()
    sys.stdout.write(f"{refused} refused, {ran} trained, {faults} faults\n")
    return int(faults > 0)


if __name__ == "__main__":
    sys.exit(main())
