"""The command line of a study over seeds: key=value words in, an exit code out."""

from __future__ import annotations

import re
import shlex
import shutil
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import Field, dataclass, field, fields
from pathlib import Path
from typing import Any, Protocol, TypeVar

from _seeds import HERE, Training, check_words, folder_name, threads_each

# The arm that others are compared with.
BASE = "base"


class Study(Protocol):
    @property
    def trainings(self) -> Sequence[Training]: ...


@dataclass(frozen=True, kw_only=True)
class StudyOptions:
    """What every study can be told; ``words`` go to all its trainings."""

    processes: int = field(default=2, metadata={"help": "runs at a time"})
    episodes: int = field(default=20, metadata={"help": "episodes of the evaluation at the end"})
    results: str = field(
        default=str(HERE / "results"), metadata={"help": "folder of the table and the picture"}
    )
    runs: str = field(
        default=str(HERE / "studies"), metadata={"help": "folder of the runs themselves"}
    )
    peers: str = field(
        default=sys.executable, metadata={"help": "interpreter that has Stable-Baselines3"}
    )
    words: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        check_counts({"processes": self.processes, "episodes": self.episodes})
        check_words(self.words)

    def training(self, name: str, algorithm: str, words: tuple[str, ...], *, of: str) -> Training:
        """A training of the study ``of``; what it leaves is found by whoever trains the same."""
        stored = folder_name(algorithm, words, self.episodes)
        env = dict(word.split("=", 1) for word in words)["env"].replace(":", "-")
        return Training(
            name=name,
            algorithm=algorithm,
            words=words,
            # Trainings run in a folder of their own.
            folder=Path(self.runs).resolve() / of / stored,
            archive=Path(self.results).resolve() / "seeds" / env / f"{stored}.jsonl",
            episodes=self.episodes,
            threads=threads_each(self.processes),
            peers=found(self.peers),
        )


def found(interpreter: str) -> str:
    """Where it is, for trainings that run in a folder of their own."""
    path = shutil.which(interpreter)
    if path is None:
        raise ValueError(f"`peers` must be an interpreter that can be run, got {interpreter!r}")
    return str(Path(path).absolute())


StudyT = TypeVar("StudyT", bound=Study)


def options_of(kind: type[Any]) -> dict[str, Field[Any]]:
    """The fields that a word can set: those that have a line of help."""
    return {item.name: item for item in fields(kind) if "help" in item.metadata}


def value_of(name: str, text: str, default: object) -> object:
    if isinstance(default, bool):
        if text not in ("true", "false"):
            raise ValueError(f"`{name}` must be true or false, got {text!r}")
        return text == "true"
    if isinstance(default, int):
        if not text.isdecimal():
            raise ValueError(f"`{name}` must be an integer, got {text!r}")
        return int(text)
    return text


def split(argv: Sequence[str], kind: type[Any]) -> tuple[dict[str, Any], tuple[str, ...]]:
    """A study's own options, and the words left over."""
    own: dict[str, Any] = {}
    rest, known = [], options_of(kind)
    for word in argv:
        key, equals, text = word.partition("=")
        if not equals:
            raise ValueError(f"a word must be key=value, got {word!r}")
        if key in known:
            own[key] = value_of(key, text, known[key].default)
        else:
            rest.append(word)
    return own, tuple(rest)


def split_arms(words: Sequence[str]) -> tuple[dict[str, tuple[str, ...]], tuple[str, ...]]:
    """The words of each `arm.NAME="words"`, and the words left over."""
    arms: dict[str, tuple[str, ...]] = {}
    rest = []
    for word in words:
        if not word.startswith("arm."):
            rest.append(word)
            continue
        name, _, text = word.removeprefix("arm.").partition("=")
        if name in arms:
            raise ValueError(f"`arm.{name}` must be given once, got {text!r} as well")
        arms[name] = tuple(shlex.split(text))
    return arms, tuple(rest)


def arm_words(arms: Mapping[str, Sequence[str]]) -> list[str]:
    """The words that `split_arms` takes apart."""
    return [f"arm.{name}={shlex.quote(' '.join(words))}" for name, words in arms.items()]


def check_arm(name: str, words: Sequence[str]) -> None:
    if name == BASE or not re.fullmatch(r"[\w.-]+", name):
        raise ValueError(f"`arm.{name}` must be named by letters, digits, - and ., but not {BASE}")
    if not words:
        raise ValueError(f"`arm.{name}` must have words of its own, got none")
    check_words(words)
    for word in words:
        key, equals, _ = word.partition("=")
        if not equals:
            raise ValueError(f"`arm.{name}` must be made of key=value words, got {word!r}")
        if key in ("env", "total_frames", "tuned"):
            raise ValueError(f"`arm.{name}` must leave {key} to all arms, got {word!r}")


def check_distinct(compared: Mapping[str, Sequence[str]]) -> None:
    """Refuse arms of the same settings: a study would train the same seeds twice."""
    for name, words in compared.items():
        for other in compared:
            if other != name and sorted(compared[other]) == sorted(words):
                raise ValueError(f"`arm.{other}` must differ from {name}, got {words}")


def explain(kind: type[Any], doc: str | None) -> None:
    print(doc)
    for name, item in options_of(kind).items():
        default = str(item.default).lower() if isinstance(item.default, bool) else item.default
        shown = str(default).replace(str(HERE), "benchmarks")
        print(f"  {f'{name}={shown}':<32} {item.metadata['help']}")


def study_main(
    argv: Sequence[str],
    *,
    kind: type[Any],
    doc: str | None,
    parse: Callable[[Sequence[str]], StudyT],
    run: Callable[[StudyT, Sequence[Training]], int],
) -> int:
    """Run the study that the words ask for; 2 for a mistake in them, 130 where interrupted."""
    if {"--help", "-h"} & set(argv):
        explain(kind, doc)
        return 0
    try:
        study = parse(argv)
        # Settings that are in no table show here, before anything is trained.
        trainings = study.trainings
    except ValueError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    # A polite end is asked for by either signal, and both leave checkpoints.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        return run(study, trainings)
    except KeyboardInterrupt:
        print("interrupted: the same command goes on from here", file=sys.stderr)
        return 130


def report_failures(failures: Sequence[str]) -> int:
    for failure in failures:
        print(f"failed: {failure}", file=sys.stderr)
    return 1 if failures else 0


def check_counts(counts: Mapping[str, int]) -> None:
    for name, count in counts.items():
        if count < 1:
            raise ValueError(f"`{name}` must be at least 1, got {count}")
