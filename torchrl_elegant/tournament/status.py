"""Status of a tournament as a page of text."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from torchrl_elegant.config.text import as_text
from torchrl_elegant.tournament.leaderboard import Leaderboard, Pod
from torchrl_elegant.tournament.run import open_leaderboard

_HEAD = ("rank", "member", "pod", "depth", "algorithm", "return", "episodes", "frames", "from")
_STATES = ("done", "running", "queued", "ended", "failed")


def status(folder: str | Path) -> str:
    """The leaderboard in a folder, also while its tournament runs.

    The best pod of each member is a row, and its line says which pod it went on from.
    """
    with open_leaderboard(folder, option="status") as board:
        rows = [_row(rank, pod) for rank, pod in enumerate(board.best_of_members(), 1)]
        return "\n".join([*_table([(*_HEAD, "options"), *rows]), "", *_summary(board)])


def _row(rank: int, pod: Pod) -> tuple[str, ...]:
    error = "" if pod.score_error is None else f" ± {pod.score_error:.2f}"
    origin = f"{pod.operation} {' '.join(map(str, pod.parents))}".rstrip()
    options = " ".join(f"{name}={_short(value)}" for name, value in pod.options.items())
    score = f"{pod.score:.2f}{error}"
    return (
        *map(str, (rank, pod.member, pod.id, pod.depth, pod.algorithm, score, pod.episodes)),
        *(f"{pod.frames:,}", origin, options),
    )


def _short(value: Any) -> str:
    return f"{value:.3g}" if isinstance(value, float) else as_text(value)


def _table(rows: list[tuple[str, ...]]) -> list[str]:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    ]


def _summary(board: Leaderboard) -> list[str]:
    config, counts = board.meta("config"), board.states()
    pods = ", ".join(f"{counts[state]} {state}" for state in _STATES if counts.get(state))
    spent = f"{board.spent():,.0f} of {config['budget']:,} {config['unit']} used or under way"
    lines = [f"pods: {pods or 'none yet'}; {spent}"]
    for final in board.pods("operation = 'final' AND state = 'done'"):
        score = f"return {final.score:.2f} over {final.episodes} new episodes"
        lines.append(f"final evaluation of pod {final.parents[0]}: {score}")
    failed = board.pods("state = 'failed'")
    if failed:
        lines.append(f"last failure, pod {failed[-1].id}: {failed[-1].error}")
    return lines
