"""Executors: where pods run."""

from pathlib import Path

from torchrl_elegant.tournament.executors.inline import InlineExecutor
from torchrl_elegant.tournament.executors.processes import ProcessExecutor
from torchrl_elegant.tournament.executors.protocol import Event, Executor, Hear
from torchrl_elegant.tournament.pod import Work

__all__ = ["Event", "Executor", "Hear", "InlineExecutor", "ProcessExecutor", "executor_of"]


def executor_of(name: str, work: Work, results: Path, *, threads: int) -> Executor:
    """The executor called ``name``, ``inline`` or ``processes``."""
    if name == "inline":
        return InlineExecutor(work, results)
    return ProcessExecutor(work, results, threads=threads)
