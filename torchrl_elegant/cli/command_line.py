"""Command line: `key=value` words over configurations, help pages, exit codes."""

from __future__ import annotations

import dataclasses
import logging
import re
import sys
import textwrap
import threading
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tqdm import tqdm

from torchrl_elegant import __version__
from torchrl_elegant.algorithms import ALGORITHMS, AlgorithmConfig
from torchrl_elegant.cli.other_names import our_names
from torchrl_elegant.collectors import WorkerDiedError
from torchrl_elegant.config.changes import build, known_words, merged, take_words
from torchrl_elegant.config.options import options_of
from torchrl_elegant.config.text import UsageError, as_text, brief, nearest
from torchrl_elegant.runs.config_file import Stored, find_algorithm, import_module
from torchrl_elegant.runs.trust import know_environment
from torchrl_elegant.trainers.run_config import RunConfig


class HelpRequest(Exception):
    """Raised on `--help` with the text of the help page."""


def run_main(main: Callable[[Sequence[str]], int | None], argv: Sequence[str]) -> int:
    """Run a command's `main(argv)` and return its exit code; answer `--version`.

    A mistake of the user prints one line and returns 2; a run that could not go on returns 1.

    >>> run_main(lambda argv: None, []), run_main(lambda argv: 1, ["--version"])
    torchrl_elegant 0.1.0
    (0, 0)
    """
    if "--version" in argv:
        sys.stdout.write(f"torchrl_elegant {__version__}\n")
        return 0
    try:
        with console():
            return main(argv) or 0
    except HelpRequest as page:
        sys.stdout.write(f"{page}\n")
        return 0
    except UsageError as error:
        sys.stderr.write(f"error: {' '.join(str(error).split())}\n")
        return 2
    except (FloatingPointError, WorkerDiedError) as error:
        # The first line of a worker's report names the worker, the last one its error.
        lines = str(error).strip().splitlines()
        told = lines[0] if len(lines) == 1 else f"{lines[0]} {lines[-1]}"
        sys.stderr.write(f"error: {told}\n")
        return 1
    except OSError as error:
        if error.errno is None:
            # Not the system's, but somebody's own.
            raise
        place = f": {error.filename}" if error.filename else ""
        sys.stderr.write(f"error: {error.strerror}{place}\n")
        return 1
    except (MemoryError, RuntimeError) as error:
        if not _is_out_of_memory(error):
            raise
        told = " ".join(str(error).split()) or "no more is given"
        sys.stderr.write(f"error: out of memory, {_WAY_OUT}: {told}\n")
        return 1
    except KeyboardInterrupt:
        sys.stderr.write("error: interrupted\n")
        return 130


_WAY_OUT = "lower batch_size, num_cells, num_envs or buffer_size"
_NO_MEMORY = re.compile(r"can't allocate memory|not enough memory|out of memory")


def _is_out_of_memory(error: Exception) -> bool:
    return isinstance(error, MemoryError) or bool(_NO_MEMORY.search(str(error)))


class _Console(logging.Handler):
    """Plain lines on stderr, above a progress bar where there is one."""

    def emit(self, record: logging.LogRecord) -> None:
        mark = f"{record.levelname.lower()}: " if record.levelno >= logging.WARNING else ""
        tqdm.write(mark + self.format(record), file=sys.stderr)


@contextmanager
def console() -> Iterator[None]:
    """Show on stderr what this package and TorchRL log; both are as before afterwards.

    A thread that cannot write its file, such as TensorBoard's, is told of in a line as well.
    """
    own, handler = logging.getLogger("torchrl_elegant"), _Console()
    loggers = (own, logging.getLogger("torchrl"))
    before = [(log.handlers, log.propagate, log.level) for log in loggers]
    for log in loggers:
        log.handlers, log.propagate = [handler], False
    own.setLevel(logging.INFO)
    in_thread = threading.excepthook

    def told(failure: threading.ExceptHookArgs) -> None:
        if isinstance(failure.exc_value, OSError):
            own.warning("a writing thread has ended: %s", failure.exc_value)
        else:
            in_thread(failure)

    threading.excepthook = told
    try:
        yield
    finally:
        threading.excepthook = in_thread
        for log, (handlers, propagate, level) in zip(loggers, before, strict=True):
            log.handlers, log.propagate = handlers, propagate
            log.setLevel(level)


_INDENT, _WIDTH = " " * 30, 79


def _help(
    usage: str, first: Sequence[str], *classes: type, usual: Mapping[str, Any] | None = None
) -> HelpRequest:
    rows = [row for cls in classes for row in help_rows(cls, usual)]
    return HelpRequest("\n".join([f"usage: {usage}".rstrip(), *first, *rows]))


def help_rows(
    cls: type, usual: Mapping[str, Any] | None = None, *, without: Collection[str] = ()
) -> list[str]:
    """A heading for each topic, a row for each option: its default, its use, the values it takes.

    ``usual`` are values in place of defaults. Options ``without`` are left out, and those of an
    actor where there is none. A class is headed by its ``heading``, or else by its name.

    >>> rows = help_rows(RunConfig)
    >>> rows[1], " ".join(rows[2].split())
    ('RunConfig: environment', 'env=Pendulum-v1 Gymnasium id, or package.module:factory (a text)')
    """
    bare = issubclass(cls, AlgorithmConfig) and not cls.has_actor
    hidden = {*without, *(("actor_keys", "hterm") if bare else ())}
    topics: dict[str, list[str]] = {}
    for name, item in options_of(cls).items():
        if name in hidden:
            continue
        default = (usual or {}).get(name, item.default)
        rows = topics.setdefault(item.topic, [])
        if item.group is None:
            rows += _row(
                name, as_text(default, item.annotation), f"{item.help} ({item.requirement})"
            )
            continue
        members = options_of(item.group).items()
        on = isinstance(default, item.group)
        rows += _row(name, as_text(on), f"{item.help} (true or false; true with any word below)")
        for below, member in members:
            value = getattr(default, below) if on else member.default
            rows += _row(
                f"{name}.{below}",
                as_text(value, member.annotation),
                f"{member.help} ({member.requirement})",
            )
    heading = getattr(cls, "heading", cls.__name__)
    return [
        line
        for topic, rows in topics.items()
        for line in ("", f"{heading}: {topic}" if topic else heading, *rows)
    ]


def _row(word: str, default: str, text: str) -> list[str]:
    head = f"  {word}={default}"
    body = textwrap.wrap(text, _WIDTH, initial_indent=_INDENT, subsequent_indent=_INDENT)
    if len(head) < len(_INDENT) - 1:
        return [head.ljust(len(_INDENT)) + body[0].lstrip(), *body[1:]]
    return [head, *body]


#: Words that ask for the help page.
HELP_WORDS = ("--help", "-h")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Options:
    """Result of a command line: the algorithm's name, both configs and the script's own options."""

    algorithm: str
    run: RunConfig
    config: Any
    extra: Any


def parse(
    argv: Sequence[str],
    *,
    algorithms: Mapping[str, type],
    default: str,
    extra: type | None = None,
    stored: Callable[[Any], Stored | None] | None = None,
    preset: Callable[[Any, str, str | None], Mapping[str, Any]] | None = None,
    program: str = "train",
) -> Options:
    """Read `key=value` words into a `RunConfig`, an algorithm's config and the script's options.

    Args:
        argv: the words, without the program's name.
        algorithms: algorithm names and their config dataclasses; `algorithm=package.module:name`
            imports the module, which adds `name`.
        default: the algorithm unless `algorithm=` is given.
        extra: a dataclass of the options of this script alone, such as `resume`.
        stored: takes the built `extra`; returns the name and configs of the run to continue, whose
            values the words then change, or None.
        preset: takes the built `extra`, the algorithm's name and the environment's, or None where
            no word names one; returns values in place of the defaults of both configs.
        program: the name shown in the help.

    >>> from dataclasses import make_dataclass
    >>> Config = make_dataclass("Config", [("lr", float, 1e-3)])
    >>> parse(["lr=0.1", "seed=3"], algorithms={"sac": Config}, default="sac").config
    Config(lr=0.1)
    """
    words = split_words([word for word in argv if word not in HELP_WORDS])
    name = words.pop("algorithm", None)
    if name == "":
        raise UsageError("`algorithm` must be a name or package.module:name, got nothing")
    wanted = find_algorithm(name or default, algorithms)
    if any(word in HELP_WORDS for word in argv):
        usual = preset(extra(), wanted.name, None) if preset and extra else {}
        named = f"one of {', '.join(sorted(algorithms))}, or package.module:name"
        first = ["", *_row("algorithm", name or default, named)]
        raise _help(
            f"{program} key=value ...",
            first,
            *([extra] if extra else []),
            RunConfig,
            wanted,
            usual=usual,
        )
    built = build(extra, take_words(words, extra)) if extra else None
    before = stored(built) if stored else None
    if before and name is not None and wanted is not type(before[2]):
        raise UsageError(
            f"the stored run trains algorithm={before[0]}, got algorithm={name}; leave the word "
            "out to go on, or start a new run in another folder=..."
        )
    chosen, *bases = before or (name or default, None, None)
    classes = (RunConfig, type(before[2]) if before else wanted)
    values = {} if preset is None else preset(built, wanted.name, words.get("env"))
    taken = [take_words(words, cls) for cls in classes]
    presets = [{key: values[key] for key in options_of(cls) if key in values} for cls in classes]
    given = map(merged, classes, presets, taken)
    if words:
        key = next(iter(words))
        known = {name for cls in (*classes, *filter(None, [extra])) for name in known_words(cls)}
        having = sorted(name for name, cls in algorithms.items() if key in known_words(cls))
        hint = f"an option of {', '.join(having)}, not of {chosen}" if having else None
        raise UsageError(
            f"unknown option `{key}`: {hint or unknown_hint(key, known | {'algorithm'})}"
        )
    run, config = map(build, classes, given, bases)
    return Options(algorithm=chosen, run=run, config=config, extra=built)


def parse_one(argv: Sequence[str], cls: type, *, program: str, takes: str = "key=value ...") -> Any:
    """Read `key=value` words into one dataclass, for commands that train nothing.

    `takes` stands behind the program's name on the help page.

    >>> from dataclasses import make_dataclass
    >>> parse_one(["episodes=5"], make_dataclass("Words", [("episodes", int, 20)]), program="x")
    Words(episodes=5)
    """
    words = split_words([word for word in argv if word not in HELP_WORDS])
    if len(words) < len(argv):
        raise _help(f"{program} {takes}", [], cls)
    values = take_words(words, cls)
    if words:
        key = next(iter(words))
        raise UsageError(f"unknown option `{key}`: {unknown_hint(key, set(known_words(cls)))}")
    return build(cls, values)


def unknown_hint(word: str, known: set[str]) -> str:
    """The end of an error about a word that is no option.

    >>> unknown_hint("sed", {"seed", "env"})
    'did you mean `seed`?'
    """
    ours = our_names(word, known)
    return (
        f"here it is {' or '.join(f'`{name}`' for name in ours)}" if ours else nearest(word, known)
    )


def split_words(argv: Sequence[str]) -> dict[str, str]:
    """Texts by their words.

    >>> split_words(["lr=0.1", "seed=3"])
    {'lr': '0.1', 'seed': '3'}
    """
    words: dict[str, str] = {}
    for word in argv:
        key, equals, value = word.partition("=")
        if not equals or key.startswith("-") or not key:
            raise UsageError(f"unexpected word {brief(word)!r}: write {_as_option(key, value)}")
        if key in words:
            raise UsageError(f"`{key}` is given twice: {words[key]!r} and {value!r}")
        words[key] = value
    return words


def _as_option(key: str, value: str) -> str:
    """A word without a name, or with dashes before it, as it should have been written."""
    if not value and key in ALGORITHMS:
        return f"algorithm={key}"
    # Ids and import paths hold what names of options do not.
    if not value and not key.startswith("-") and re.search(r"-v\d+$|[/:]", key):
        return f"env={brief(key)}"
    name = key.lstrip("-").replace("-", "_")
    return f"{brief(name) or 'key'}={brief(value) or 'value'}"


def import_named(words: Sequence[str]) -> list[str]:
    """Import what ``module=`` names, before other words ask for it; trust what ``env=`` names.

    Names may lead to modules in the current folder. Returns the words with ``module=my_file`` in
    place of ``module=my_file.py``.
    """
    words = [_as_module(word) for word in words]
    # Python puts the folder of the script on its path, not the current one.
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.append(here)
    given = dict(word.split("=", 1) for word in words if "=" in word)
    if "env" in given:
        know_environment(given["env"])
    if (module := given.get("module", "none")) != "none":
        import_module(module, module, "module")
    return words


def _as_module(word: str) -> str:
    """A file that was named in place of its module, as a shell completes it, by the module's name.

    >>> _as_module("module=mine/my_file.py"), _as_module("module=my_file")
    ('module=mine.my_file', 'module=my_file')
    """
    if not (word.startswith("module=") and word.endswith(".py")):
        return word
    path = Path(word.removeprefix("module="))
    if path.is_absolute() or ".." in path.parts:
        raise UsageError(
            f"`module` must be in the current folder or below it, got {brief(path)!r}; run the "
            f"command from {brief(path.parent)!r} with module={brief(path.stem)}"
        )
    return f"module={'.'.join(path.with_suffix('').parts)}"
