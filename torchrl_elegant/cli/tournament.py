"""The command `tournament`: words in, the best policy of a population out, an exit code back."""

from __future__ import annotations

import gc
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from torchrl_elegant.algorithms import ALGORITHMS, AlgorithmConfig
from torchrl_elegant.cli.command_line import (
    HELP_WORDS,
    HelpRequest,
    help_rows,
    import_named,
    run_main,
    split_words,
    unknown_hint,
)
from torchrl_elegant.cli.training import keep_freed_blocks
from torchrl_elegant.config.changes import build, known_words, merged, take_words
from torchrl_elegant.config.options import check, check_options, option, options_of
from torchrl_elegant.config.text import UsageError
from torchrl_elegant.runs.config_file import find_algorithm
from torchrl_elegant.runs.monitor import SIGNAL_CODES
from torchrl_elegant.runs.trust import Trust
from torchrl_elegant.tournament import (
    PodsFailedError,
    TournamentConfig,
    TournamentResult,
    report,
    resume_tournament,
    status,
    tournament,
)
from torchrl_elegant.tournament.run import UNUSED, WATCHING
from torchrl_elegant.trainers.run_config import RunConfig


@dataclass(frozen=True, kw_only=True)
class TournamentOptions:
    """Options of the command itself."""

    algorithm: tuple[str, ...] = option(
        ("ppo",),
        f"algorithms, as [ppo,modsac]: {', '.join(sorted(ALGORITHMS))}, or package.module:name",
    )
    resume: str | None = option(
        None, "folder of a tournament to go on with; words of its machine may change"
    )
    status: str | None = option(None, "folder of a tournament whose leaderboard is shown")
    report: str | None = option(
        None, "folder of a tournament whose page report.html is written anew"
    )
    trust: bool = option(
        False, "let names in the stored configuration of resume run code; env= does so for itself"
    )
    module: str | None = option(
        None, "module to import first: one that registers algorithms or defines the environment"
    )

    def __post_init__(self) -> None:
        check_options(self)
        folders = {"resume": self.resume, "status": self.status, "report": self.report}
        given = [name for name, folder in folders.items() if folder is not None]
        for name in given[1:]:
            check(False, name, f"be none with {given[0]}", folders[name])


def tournament_command(argv: Sequence[str], *, program: str) -> int:
    """Run or continue a tournament, or show one; returns the exit code."""

    def main(words: Sequence[str]) -> int:
        if any(word in HELP_WORDS for word in words):
            raise HelpRequest(_help_page(program, words))
        given = split_words(import_named(words))
        chosen = take_words(given, TournamentOptions)
        own = build(TournamentOptions, chosen)
        if own.status is not None:
            _refuse_more(given, "status")
            sys.stdout.write(f"{status(own.status)}\n")
            return 0
        if own.report is not None:
            _refuse_more(given, "report")
            sys.stdout.write(f"page: {report(own.report)}\n")
            return 0
        keep_freed_blocks()
        # What is imported stays: without it Python's collector stops a tournament for milliseconds.
        gc.freeze()
        if own.resume is not None and "algorithm" in chosen:
            raise UsageError("`algorithm` must not be given with resume: the members have theirs")
        try:
            result = (_begin if own.resume is None else _resume)(own, given)
        except PodsFailedError as error:
            sys.stderr.write(f"error: {error}\n")
            return 1
        sys.stdout.write(f"{status(result.folder)}\n")
        return SIGNAL_CODES.get(result.stopped_by or "", 0)

    return run_main(main, argv)


def _resume(own: TournamentOptions, given: dict[str, str]) -> TournamentResult:
    changes = take_words(given, TournamentConfig)
    watching = {word: given.pop(word) for word in WATCHING if word in given}
    changes |= take_words(watching, RunConfig)
    env = given.pop("env", None)
    _refuse_more(given, "resume")
    trust = Trust(everything=own.trust, module=own.module)
    assert own.resume is not None
    return resume_tournament(own.resume, trust=trust, env_factory=env, **changes)


def _begin(own: TournamentOptions, given: dict[str, str]) -> TournamentResult:
    configs = [find_algorithm(name, ALGORITHMS) for name in own.algorithm]
    options = take_words(given, TournamentConfig)
    run = take_words(given, RunConfig)
    built = [_configured(cls, given) for cls in configs]
    taken = {word for _, words in built for word in words}
    left = [word for word in given if word not in taken]
    if left:
        classes = (TournamentOptions, TournamentConfig, RunConfig, *configs)
        every = {name for cls in classes for name in known_words(cls)}
        raise UsageError(f"unknown option `{left[0]}`: {unknown_hint(left[0], every)}")
    return tournament([config for config, _ in built], **options, **run)


def _configured(cls: type[AlgorithmConfig], given: dict[str, str]) -> tuple[Any, set[str]]:
    """A configuration from the words that are its own, and those words.

    A word such as `ppo.lr=3e-4` is for one algorithm alone, and goes before `lr=3e-4`.
    """
    prefix = f"{cls.name}."
    common = dict(given)
    special = {w.removeprefix(prefix): text for w, text in given.items() if w.startswith(prefix)}
    values = merged(cls, take_words(common, cls), take_words(special, cls))
    if special:
        word = next(iter(special))
        raise UsageError(
            f"unknown option `{prefix}{word}`: {unknown_hint(word, set(options_of(cls)))}"
        )
    own = {word for word in given if word not in common or word.startswith(prefix)}
    return build(cls, values), own


def _refuse_more(given: dict[str, str], option: str) -> None:
    if given:
        word = next(iter(given))
        raise UsageError(f"`{word}` must not be given with {option}, got {given[word]!r}")


def _help_page(program: str, words: Sequence[str]) -> str:
    given = split_words([word for word in words if word not in HELP_WORDS])
    own = build(TournamentOptions, take_words(given, TournamentOptions))
    classes = [find_algorithm(name, ALGORITHMS) for name in own.algorithm]
    without = (*UNUSED, "total_frames")
    rows = [
        row
        for cls in (TournamentOptions, TournamentConfig, RunConfig, *classes)
        for row in help_rows(cls, without=without)
    ]
    return "\n".join([f"usage: {program} key=value ...", *rows])
