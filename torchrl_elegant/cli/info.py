"""Command `info`: versions, hardware, extras, algorithms and environments on one page."""

from __future__ import annotations

import os
import platform
import re
import sys
import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib import metadata

import torch
from packaging.requirements import Requirement

from torchrl_elegant import __version__
from torchrl_elegant.algorithms import ALGORITHMS
from torchrl_elegant.cli.command_line import parse_one, run_main
from torchrl_elegant.envs.make import PREFIXES

_LIBRARIES = ("torch", "torchrl", "tensordict", "gymnasium", "numpy")
# Extras of those who work on this package itself, and the sum of all others.
_NOT_FOR_USERS = ("dev", "bench", "docs", "all")
_WIDTH = 18


@dataclass(frozen=True, kw_only=True)
class InfoOptions:
    """Options of `info`: none."""


def info_command(argv: Sequence[str], *, program: str) -> int:
    """Write the page to stdout; returns the exit code, 2 for a mistake in the words."""

    def main(words: Sequence[str]) -> None:
        parse_one(words, InfoOptions, program=program, takes="")
        sys.stdout.write(info_page() + "\n")

    return run_main(main, argv)


def info_page() -> str:
    """The page that `info` prints.

    >>> info_page().splitlines()[0].split()
    ['torchrl_elegant', '0.1.0']
    """
    versions = [("torchrl_elegant", __version__), ("Python", platform.python_version())]
    versions += [(name, metadata.version(name)) for name in _LIBRARIES]
    algorithms = [(name, algorithm_line(name)) for name in sorted(ALGORITHMS)]
    environments = [f"{prefix}/{name}" for prefix, names in PREFIXES.items() for name in names]
    return "\n".join(
        [
            *_rows([*versions, *_hardware(), *_extras()]),
            "",
            "algorithms",
            *(f"  {line}" for line in _rows(algorithms)),
            "",
            "environments of this package, beside all ids of Gymnasium",
            *(f"  {name}" for name in environments),
        ]
    )


def algorithm_line(name: str) -> str:
    """First sentence about an algorithm, and the actions that it can choose.

    >>> algorithm_line("sac")
    'Soft actor-critic. Actions: continuous'
    """
    config = ALGORITHMS[name]
    paragraph = " ".join((config.__doc__ or name).split("\n\n")[0].split())
    # References hold points that end no sentence.
    told = re.sub(r" \([^)]*\d{4}[^)]*\)", "", paragraph).partition(". ")[0].rstrip(".")
    return f"{told.replace('``', '')}. Actions: {', '.join(config.actions)}"


def _rows(pairs: Sequence[tuple[str, str]]) -> Iterator[str]:
    for name, text in pairs:
        lines = textwrap.wrap(text, 96 - _WIDTH) or [""]
        yield f"{name.ljust(_WIDTH)}{lines[0]}"
        yield from (" " * _WIDTH + line for line in lines[1:])


def _hardware() -> list[tuple[str, str]]:
    usable = len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count()
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / 2**30
    devices = ["cpu"]
    for index in range(torch.cuda.device_count()):
        about = torch.cuda.get_device_properties(index)
        devices.append(f"cuda:{index} ({about.name}, {about.total_memory / 2**30:.1f} GiB)")
    return [
        ("CPU cores", f"{usable} usable, {os.cpu_count()} in the machine"),
        ("memory", f"{memory:.1f} GiB"),
        ("devices", ", ".join(devices)),
    ]


def _extras() -> list[tuple[str, str]]:
    found = extras_installed()
    if not found:
        return [("extras", "unknown: the package is not installed, only found")]
    missing = sorted(name for name, installed in found.items() if not installed)
    rows = [("extras", ", ".join(sorted(name for name in found if found[name])) or "none")]
    if missing:
        way = f"pip install torchrl_elegant[{missing[0]}]"
        rows.append(("extras missing", f"{', '.join(missing)}; for example: {way}"))
    return rows


def extras_installed() -> dict[str, bool]:
    """True for each extra of this package whose requirements are all there; {} without metadata.

    >>> "tensorboard" in extras_installed()
    True
    """
    try:
        lines = metadata.requires("torchrl_elegant") or []
    except metadata.PackageNotFoundError:
        return {}
    requirements = [Requirement(line) for line in lines]
    names = {
        found[1] for line in lines if (found := re.search(r"extra\s*==\s*['\"]([\w-]+)", line))
    }
    return {
        name: all(
            _is_there(requirement)
            for requirement in requirements
            if requirement.marker is not None
            and requirement.marker.evaluate({"extra": name})
            and not requirement.marker.evaluate({"extra": ""})
        )
        for name in names.difference(_NOT_FOR_USERS)
    }


def _is_there(requirement: Requirement) -> bool:
    try:
        return requirement.specifier.contains(metadata.version(requirement.name), prereleases=True)
    except metadata.PackageNotFoundError:
        return False
