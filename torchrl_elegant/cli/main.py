"""Command `torchrl-elegant`: the first word names a command, the others are that command's own."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from torchrl_elegant import __version__
from torchrl_elegant.config.text import nearest

PROGRAM = "torchrl-elegant"


@dataclass(frozen=True, kw_only=True)
class Command:
    """A line of the help page, an example, and the function that takes the words."""

    about: str
    example: str
    run: Callable[[Sequence[str], str], int]


# Imported when a command runs: the help page need not wait for torch.
def _train(words: Sequence[str], program: str) -> int:
    from torchrl_elegant.cli.training import train_command

    return train_command(words, program=program, default="sac")


def _evaluate(words: Sequence[str], program: str) -> int:
    from torchrl_elegant.cli.commands import evaluate_command

    return evaluate_command(words, program=program)


def _compare(words: Sequence[str], program: str) -> int:
    from torchrl_elegant.cli.commands import compare_command

    return compare_command(words, program=program)


def _export(words: Sequence[str], program: str) -> int:
    from torchrl_elegant.cli.commands import export_command

    return export_command(words, program=program)


def _tournament(words: Sequence[str], program: str) -> int:
    from torchrl_elegant.cli.tournament import tournament_command

    return tournament_command(words, program=program)


def _info(words: Sequence[str], program: str) -> int:
    from torchrl_elegant.cli.info import info_command

    return info_command(words, program=program)


COMMANDS = {
    "train": Command(
        about="train a policy, or go on with a run",
        example="train env=Pendulum-v1 algorithm=sac total_frames=20_000",
        run=_train,
    ),
    "tournament": Command(
        about="train a population whose members go on from the best ones",
        example="tournament env=CartPole-v1 algorithm=[ppo,a2c] population=8 budget=400_000",
        run=_tournament,
    ),
    "evaluate": Command(
        about="play episodes with a run's policy and sum up their returns",
        example="evaluate runs/my-run episodes=20 video=true",
        run=_evaluate,
    ),
    "compare": Command(
        about="put runs and sweeps side by side on one page",
        example="compare runs/a runs/b out=comparison",
        run=_compare,
    ),
    "export": Command(
        about="write a run's policy as ONNX or as a program of torch.export",
        example="export runs/my-run to=policy.onnx policy=best",
        run=_export,
    ),
    "info": Command(
        about="versions, hardware, extras, algorithms and environments",
        example="info",
        run=_info,
    ),
}


def help_page() -> str:
    """The commands with a line and an example each.

    >>> help_page().splitlines()[0]
    'usage: torchrl-elegant <command> key=value ...'
    """
    width = max(map(len, COMMANDS))
    rows = [f"  {name.ljust(width)}  {command.about}" for name, command in COMMANDS.items()]
    examples = [f"  {PROGRAM} {command.example}" for command in COMMANDS.values()]
    return "\n".join(
        [
            f"usage: {PROGRAM} <command> key=value ...",
            "",
            "Train policies with ElegantRL's ideas on TorchRL's parts.",
            "",
            "commands",
            *rows,
            "",
            "examples",
            *examples,
            "",
            f"{PROGRAM} <command> --help lists the options of a command, --version the version.",
        ]
    )


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command that the words name and return its exit code; 2 for a mistake in them.

    >>> main(["--version"])
    torchrl_elegant 0.1.0
    0
    """
    words = list(sys.argv[1:] if argv is None else argv)
    first = words[0] if words else "--help"
    if first in COMMANDS:
        try:
            return COMMANDS[first].run(words[1:], f"{PROGRAM} {first}")
        except KeyboardInterrupt:  # while its modules are imported
            sys.stderr.write("error: interrupted\n")
            return 130
    if first in ("--help", "-h", "help"):
        sys.stdout.write(f"{help_page()}\n")
        return 0
    if first == "--version":
        sys.stdout.write(f"torchrl_elegant {__version__}\n")
        return 0
    if "=" in first:
        told = f"`{first}` must come after a command: write {PROGRAM} train {first}"
    else:
        told = f"unknown command {first!r}: {nearest(first, COMMANDS)}"
    sys.stderr.write(f"error: {told}\n")
    return 2


if __name__ == "__main__":
    sys.exit(main())
