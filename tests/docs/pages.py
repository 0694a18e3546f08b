"""Reads the pages of the documentation, and runs their blocks in the order in which they stand."""

from __future__ import annotations

import re
import runpy
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path

from torchrl_elegant.cli.main import main

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]

#: Frames that a run of the pages gets here: more than SAC's warm-up, or a batch of PPO.
SHORT, A_BATCH = 1_200, 2_100

#: Words that begin a line of a `console` block, which needs a network, a GPU or a whole machine.
NOT_RUN = ("pip", "make", "git", "torchrun", "cd", "source", "tensorboard", "python -m venv")

_BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_FRAMES = re.compile(r"(total_frames\s*=\s*)([\d_]+)")


def blocks(page: Path) -> Iterator[tuple[str, str]]:
    """Language and text of each block of a page."""
    yield from _BLOCK.findall(page.read_text(encoding="utf-8"))


def shortened(text: str) -> str:
    """The text with small budgets of frames, in the order that they had."""
    least = shortest(text)

    def smaller(found: re.Match[str]) -> str:
        frames = int(found[2].replace("_", ""))
        return found[1] + str(min(frames, least + 16 * min(frames // 1_000, 32)))

    return _FRAMES.sub(smaller, text)


def shortest(text: str) -> int:
    """Frames with which what the text trains learns something."""
    return A_BATCH if re.search(r"ppo|a2c|tuned|resume\(", text, re.IGNORECASE) else SHORT


def commands(text: str) -> Iterator[list[str]]:
    """Words of each command of a block; comments go, and a backslash joins lines."""
    for line in text.replace("\\\n", " ").splitlines():
        if words := shlex.split(line, comments=True):
            yield words


def run_command(words: list[str]) -> int:
    """Run a command of a page in this process."""
    program, *rest = words
    if ("train" in rest or "train_" in words[1]) and not {"total_frames", "resume"} & {
        word.split("=")[0] for word in rest
    }:
        rest.append(f"total_frames={shortest(' '.join(words))}")
    if program == "torchrl-elegant":
        return main(rest)
    assert program == "python", f"a page runs {program!r}; put it into a console block"
    if rest[:2] == ["-m", "torchrl_elegant"]:
        return main(rest[2:])
    path, before = ROOT / rest[0], sys.argv
    sys.argv = [str(path), *rest[1:]]
    try:
        runpy.run_path(str(path), run_name="__main__")
    except SystemExit as end:
        return int(end.code or 0)
    finally:
        sys.argv = before
    return 0
