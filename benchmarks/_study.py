"""The command that every speed study here is: choose, time, compare, write."""

from __future__ import annotations

import argparse
import os
import shlex
import signal
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from _interleave import Contender, Interpreter, Result, measure
from _report import Ratio, ratio_table, results_parser, table, write
from contenders.case import Case

PEERS = Interpreter()
RLLIB = Interpreter(
    install="-r benchmarks/requirements-rllib.txt", option="--rllib-python", path=""
)


@dataclass(frozen=True, kw_only=True)
class Study:
    """What ``python benchmarks/<name>.py`` times, and how its options are called.

    Contenders of an interpreter whose option has no default are left out until it is given.
    """

    name: str
    title: str
    about: str
    cases: Sequence[Case]
    contenders: Mapping[str, Contender]
    interpreters: Mapping[str, Interpreter] = field(default_factory=lambda: {"peers": PEERS})
    ratios: Sequence[Ratio] = ()
    notes: str = ""
    seconds: float = 3.0

    def main(self) -> None:
        arguments = self.parse()
        # Ended in good order, so that no contender is left behind.
        signal.signal(signal.SIGTERM, lambda *_: sys.exit("ended by SIGTERM"))
        interpreters = {"here": Interpreter()} | {
            name: replace(interpreter, path=getattr(arguments, f"{name}_python"))
            for name, interpreter in self.interpreters.items()
        }
        chosen = self.chosen(arguments.only, interpreters)
        # Before the checks below, which are a load of their own.
        load = os.getloadavg()[0]
        if load > 0.5:
            print(f"the machine is busy (load {load:.2f}): rates will not compare", file=sys.stderr)
        for contender in chosen:
            interpreters[contender.python].require(contender)
        results = self.timed(arguments, chosen, interpreters)
        write(
            results,
            arguments.results,
            name=self.name,
            title=self.title,
            command=self.command(arguments),
            load=(load, os.getloadavg()[0]),
            ratios=self.ratios,
            notes=self.notes,
        )
        print(f"\n{ratio_table(results, self.ratios)}\n\nwritten to {arguments.results}")

    def timed(
        self,
        arguments: argparse.Namespace,
        chosen: Sequence[Contender],
        interpreters: Mapping[str, Interpreter],
    ) -> list[Result]:
        results: list[Result] = []
        for case in self.cases:
            if case.slug in arguments.cases and any(contender.takes(case) for contender in chosen):
                print(f"\n{case.title}", flush=True)
                rounds, seconds = arguments.rounds, arguments.seconds
                timed = measure(chosen, case, interpreters, rounds=rounds, seconds=seconds)
                print(table(timed), flush=True)
                results += timed
        if not results:
            sys.exit("`--only` and `--cases` must leave something to time, got nothing in common")
        return results

    def chosen(
        self, names: Sequence[str], interpreters: Mapping[str, Interpreter]
    ) -> list[Contender]:
        """Contenders by name; a note about those whose interpreter is not known."""
        found = []
        for contender in map(self.contenders.__getitem__, names):
            interpreter = interpreters[contender.python]
            if interpreter.path:
                found.append(contender)
            else:
                print(f"{contender.name} is left out: no {interpreter.option}", file=sys.stderr)
        return found

    def parse(self) -> argparse.Namespace:
        parser = results_parser(self.about)
        names, slugs = tuple(self.contenders), tuple(case.slug for case in self.cases)
        add = parser.add_argument
        for name, interpreter in self.interpreters.items():
            packages = [c.imports[0] for c in self.contenders.values() if c.python == name]
            about = f"interpreter that has {', '.join(dict.fromkeys(packages))}"
            add(interpreter.option, dest=f"{name}_python", default=interpreter.path, help=about)
        add("--rounds", type=int, default=5, help="rounds a contender (default: 5)")
        about = f"length of a round, in seconds (default: {self.seconds:g})"
        add("--seconds", type=float, default=self.seconds, help=about)
        add("--only", nargs="+", choices=names, default=names, help="these contenders")
        add("--cases", nargs="+", choices=slugs, default=slugs, help="these cases")
        arguments = parser.parse_args()
        if arguments.rounds < 1:
            parser.error(f"`--rounds` must be at least 1, got {arguments.rounds}")
        if arguments.seconds <= 0:
            parser.error(f"`--seconds` must be above 0, got {arguments.seconds}")
        return arguments

    def command(self, arguments: argparse.Namespace) -> str:
        """The line that repeats this run, without the paths of this machine."""
        words = [f"python benchmarks/{self.name}.py"]
        for name, interpreter in self.interpreters.items():
            if getattr(arguments, f"{name}_python") != interpreter.path:
                words.append(f"{interpreter.option} PYTHON")
        words.append(f"--rounds {arguments.rounds} --seconds {arguments.seconds:g}")
        for name, chosen, every in (
            ("only", arguments.only, self.contenders),
            ("cases", arguments.cases, [case.slug for case in self.cases]),
        ):
            if list(chosen) != list(every):
                words.append(f"--{name} {shlex.join(chosen)}")
        return " ".join(words)
